"""A core of the next version in the place of ours, in a real service, and back (H24).

An upgrade of what is installed shows in the next core that the supervisor starts. Here every Python
process of the service reads a `sitecustomize` of the test, and a core that finds `next` beside it
is of the next version: it offers a protocol more, every part of its messages has a field more, and
it says things of a kind that workers do not know.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kafka_protocol.primitives import Buffer
from rlm.workers.frames import FrameLink
from rlm_sandbox.sandbox import Sandbox
from tests.rlm.workers.later_messages import NEXT_VERSION, as_later, of_a_later_kind

_ROOT = Path(__file__).parents[2]
_AT_START = f"""
import sys
from pathlib import Path

if "--as-core" in sys.orig_argv and Path(__file__).with_name("next").exists():
    sys.path.append({str(_ROOT)!r})
    from tests.scenarios.next_core import become_next

    become_next()
"""


class InstalledCore:
    """Which version the next core is of that the supervisor of `rlm:1` starts."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._next = folder / "next"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_AT_START)

    @classmethod
    @contextlib.contextmanager
    def at(cls, sandbox: Sandbox, folder: Path) -> Iterator["InstalledCore"]:
        """The service is started again before, and after only where a core of the next version is
        left: without `next` it is one like any other.
        """
        made = cls(sandbox, folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(folder))
            made._start_again()
        try:
            yield made
        finally:
            if made._next.exists():
                made.install(is_next=False)
                made._start_again()

    def _start_again(self) -> None:
        self._sandbox.stop("rlm:1")
        self._sandbox.start("rlm:1")

    def install(self, *, is_next: bool) -> None:
        """What is installed from now on."""
        if is_next:
            self._next.touch()
        else:
            self._next.unlink(missing_ok=True)

    def greetings_of_next(self) -> int:
        """How often a worker was greeted by a core of the next version, as the workers say."""
        lines = self._sandbox.layout.log("rlm:1").read_text(errors="replace").splitlines()
        return sum("core_connected" in line and NEXT_VERSION in line for line in lines)


def become_next() -> None:
    """Makes this process, before it begins, a core of the next version."""
    from rlm.workers import messages  # before what takes its constants

    messages.NEWEST_PROTOCOL += 1
    from rlm.workers import core

    vars(core)["FrameLink"] = _NextLink  # the next version's own


class _NextLink(FrameLink):
    _rewrite = staticmethod(as_later("ToWorker"))
    _has_greeted = False

    def send(self, message: bytes, raw: Sequence[Buffer] = ()) -> None:
        super().send(self._rewrite(message), raw)
        if not self._has_greeted:
            self._has_greeted = True
            super().send(of_a_later_kind("ToWorker"))
