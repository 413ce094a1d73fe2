"""Drivers in processes of their own, for tests that kill them or run another Spark."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.project.tree import ROOT


@contextlib.contextmanager
def own_group(
    command: Sequence[str], *, temporary: Path, environ: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A process group with its JVM and workers, temporary files in `temporary`, and its standard
    output to read; all gone afterwards.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**(os.environ if environ is None else environ), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with process:
            yield process
            kill_group(process)
    finally:
        kill_group(process)


def kill_group(process: "subprocess.Popen[str]") -> None:
    """SIGKILL for all of them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def is_there(group: int) -> bool:
    """Whether any process of the group lives."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
