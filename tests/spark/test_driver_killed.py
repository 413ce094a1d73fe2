"""A stream whose driver and service are killed with SIGKILL goes on from its checkpoint.

The long one keeps its raw numbers under bench/results/.
"""

import json
import random
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.kept_results import keep_result
from tests.spark.conftest import Twins
from tests.spark.lab import Lab, assert_equal, seen
from tests.spark.processes import is_there, kill_group, own_group

pytestmark = pytest.mark.integration

_LONG_KILLS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One kill: how long the driver had lived, and how many batches count by the checkpoint."""

    kill: int
    lived_s: float
    committed_batches: int


def _driver(
    folder: Path, options: dict[str, str], temporary: Path
) -> AbstractContextManager["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.spark.driver", str(folder), json.dumps(options)]
    return own_group(command, temporary=temporary)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [1, pytest.param(_LONG_KILLS, marks=pytest.mark.long)])
def test_a_checkpoint_survives_kill_9_of_driver_and_service(
    lab: Lab, twins: Twins, folder: Path, kills: int
) -> None:
    batches = 2 + 4 * kills
    options = {
        **lab.connection(),
        "subscribe": twins.tiered,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(len(twins.rows) // batches),
    }
    (temporary := folder / "tmp").mkdir()
    chance = random.Random(kills)
    samples: list[Sample] = []
    for number in range(kills):
        with _driver(folder, options, temporary) as driver:
            started = time.monotonic()
            _wait_for_batches(driver, chance.randrange(1, 4))
            time.sleep(chance.random() / 2)
            assert driver.poll() is None, "it had ended before the kill"
            lab.cluster.sandbox.kill("rlm:1")
            kill_group(driver)
            lived = round(time.monotonic() - started, 3)
        assert len([*temporary.iterdir()]) == 1, "the one before was not swept"
        samples.append(
            Sample(kill=number, lived_s=lived, committed_batches=_committed_batches(folder))
        )
        lab.cluster.sandbox.start("rlm:1", wait=False)
    with _driver(folder, options, temporary) as driver:
        said = driver.communicate(timeout=400)[0]
        assert driver.returncode == 0, said
        lab.cluster.wait_for(lambda: not is_there(driver.pid), "its JVM and workers are gone")
    assert [*temporary.iterdir()] == [], "it left files behind, or what a killed one left"
    assert_equal(seen(lab.written(folder)), twins.expected())
    _keep(samples, seed=kills, batches=_committed_batches(folder), records=len(twins.rows))


def _committed_batches(folder: Path) -> int:
    return sum(path.name.isdigit() for path in (folder / "checkpoint" / "commits").iterdir())


def _wait_for_batches(driver: "subprocess.Popen[str]", count: int) -> None:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == f"batch {count}":
            return
    raise AssertionError(f"there were no {count} batches")


def _keep(samples: list[Sample], *, seed: int, batches: int, records: int) -> None:
    """Raw numbers of a long run."""
    if len(samples) < _LONG_KILLS:
        return
    content = {
        "killed": "driver of a stream with its JVM and workers, and the service",
        "seed": seed,
        "kills": len(samples),
        "batches": batches,
        "records_equal_to_the_twin": records,
        "samples": [asdict(sample) for sample in samples],
    }
    keep_result("kills-spark", content)
