"""A stream whose driver and service are killed with SIGKILL goes on from its checkpoint."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.tree import ROOT
from tests.spark.conftest import Twins
from tests.spark.lab import Lab, assert_equal, seen

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def _driver(
    folder: Path, options: dict[str, str], temporary: Path
) -> Iterator["subprocess.Popen[str]"]:
    """A driver in a process group of its own, with its JVM and workers; all gone afterwards."""
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver", str(folder), json.dumps(options)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with process:
            yield process
            _kill(process)
    finally:
        _kill(process)


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.long)])
def test_a_checkpoint_survives_kill_9_of_driver_and_service(
    lab: Lab, twins: Twins, folder: Path, kills: int
) -> None:
    batches = 4 + 4 * kills
    options = {
        **lab.connection(),
        "subscribe": twins.tiered,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(len(twins.rows) // batches),
    }
    chance = random.Random(kills)
    for number in range(kills):
        with _driver(folder, options, folder / f"tmp-{number}") as driver:
            _wait_for_batches(driver, chance.randrange(1, 4))
            time.sleep(chance.random() / 2)
            assert driver.poll() is None, "it had ended before the kill"
            lab.cluster.sandbox.kill("rlm:1")
            _kill(driver)
        lab.cluster.sandbox.start("rlm:1", wait=False)
    with _driver(folder, options, folder / "tmp-last") as driver:
        said = driver.communicate(timeout=400)[0]
        assert driver.returncode == 0, said
        lab.cluster.wait_for(lambda: not _is_there(driver.pid), "its JVM and workers are gone", 30)
    assert [*(folder / "tmp-last").iterdir()] == [], "it left files behind"
    assert_equal(seen(lab.written(folder)), twins.expected())


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_for_batches(driver: "subprocess.Popen[str]", count: int) -> None:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == f"batch {count}":
            return
    raise AssertionError(f"there were no {count} batches")
