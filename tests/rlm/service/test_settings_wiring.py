"""Settings reach the components that they are about: each has a value here that nothing else has.

Whether a component obeys its setting is tested where the component is.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlm.service.broker_service import BrokerService
from rlm.service.partition_problems import PartitionProblems
from tests.builders.clock import ManualClock
from tests.builders.service import built_service


def _partition_problems(service: BrokerService) -> PartitionProblems:
    """What the service asks about its partitions when it collects problems."""
    asked = (getattr(source, "__self__", None) for source in service._problems._sources)
    [found] = {one for one in asked if isinstance(one, PartitionProblems)}
    return found


Row = tuple[object, Callable[[BrokerService], object]]
"""The value of a setting, and where the service should have it."""

WIRED: dict[str, Row] = {
    "copy.recovery.point": (
        "always",
        lambda service: service._tasks.partition_tasks.copy._needs_flush.value,
    ),
    "copy.segments.max.in.flight": (
        11,
        lambda service: service._tasks.partition_tasks.copy._limit.slots,
    ),
    "remote.log.manager.copy.max.bytes.per.second": (
        12_345_678,
        lambda service: service._tasks.partition_tasks.copy._copier._quota._bucket.rate,
    ),
    "remote.delete.max.percent": (
        13,
        lambda service: service._tasks.partition_tasks.expiry._config.most_percent,
    ),
    "remote.unreferenced.grace.ms": (
        14_001,
        lambda service: service._tasks.partition_tasks.unreferenced._config.grace_ms,
    ),
    "audit.log.file": (
        "/nowhere/deletions.jsonl",
        lambda service: str(service._dependencies.audit._path),
    ),
    "verify.max.bytes.per.second": (
        15_000_001,
        lambda service: service._tasks.verify.runs._verifier._deep_check._bucket.rate,
    ),
    "problem.loss.ms": (
        16_001,
        lambda service: _partition_problems(service).losses_to_come._lead_ms,
    ),
    "fetch.hedge.max.percent": (
        18,
        lambda service: service._dependencies.stores.routed._hedged_percent,
    ),
    "topic.deletion.max.topics": (
        17,
        lambda service: service._topics.ends._config.limits.max_topics,
    ),
}


async def test_settings_reach_their_components(tmp_path: Path) -> None:
    given = {name: value for name, (value, _) in WIRED.items()}
    async with built_service(tmp_path, ManualClock(), given) as service:
        found = {name: read(service) for name, (_, read) in WIRED.items()}
    assert found == given


class _Asleep(Exception):
    """How long the clock was to sleep."""


class _SleeplessClock(ManualClock):
    async def sleep_ms(self, duration_ms: float) -> None:
        raise _Asleep(duration_ms)


async def test_the_watch_of_log_directories_sleeps_for_its_interval(tmp_path: Path) -> None:
    """It is built when it begins to run."""
    given = {"log.dir.watch.interval.ms": 18_001}
    async with built_service(tmp_path, _SleeplessClock(), given) as service:
        with pytest.raises(_Asleep) as asleep:
            await service._tasks.watch_rolls()
    assert asleep.value.args == (18_001,)
