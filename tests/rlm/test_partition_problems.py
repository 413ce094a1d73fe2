"""The cost of collecting problems: the proxy waits meanwhile, since there is one thread (G6). So a
partition without problems is not examined again before something about it has changed (H38).
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt
from kip405.ids import PartitionKey
from rlm.api.per_partition import AT_EACH_REPORT_MS, PerPartition
from rlm.plans.expiry import Held, NoExpiry
from rlm.plans.freeze import Frozen
from rlm.plans.problems import ProblemKind
from rlm.tasks.cleanup import CleanupStatus
from rlm.tasks.expiry import ExpiryStatus
from tests.builders.ledger import PARTITION
from tests.rlm.watched import COPY_MS, LIMITS, Watched

_PARTITIONS = 4_000
_MOST_TIMES = 3


async def _nothing() -> None:
    """A job that has nothing to do."""


def _cost_s(service: Watched) -> float:
    """Of this process, the least of some: others at work do not count."""
    costs = []
    for _ in range(3):
        began_s = time.process_time()
        service.watch.current()
        costs.append(time.process_time() - began_s)
    return min(costs)


async def test_h38_partitions_that_wait_for_a_task_do_not_make_each_others_problems_dearer(
    tmp_path: Path,
) -> None:
    """The set of those that wait was copied once for each of them: a second for 3,000."""
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, end=150)
    await service.run_tasks()
    snapshot = service.leadership.snapshot
    row = snapshot.partitions[PARTITION.key]
    keys = [PartitionKey(PARTITION.topic_id, number) for number in range(_PARTITIONS)]
    service.leadership.snapshot = replace(
        snapshot,
        partitions={
            key: replace(row, topic_id_partition=replace(PARTITION, partition=key.partition))
            for key in keys
        },
    )
    idle_s = _cost_s(service)
    for key in keys:
        service.copy_pool.submit(key, _nothing)
    assert _cost_s(service) < _MOST_TIMES * idle_s


@pytest.fixture
async def calm(tmp_path: Path) -> Watched:
    """A partition that was examined, and has no problem."""
    service = Watched(tmp_path)
    service.rig.write_log(0, 100, end=150)
    await service.run_tasks()
    assert service.watch.current() == ()
    assert service.statuses._partition_problems._found._until_ms != [AT_EACH_REPORT_MS]
    return service


def kinds(service: Watched) -> set[ProblemKind]:
    return {one.kind for one in service.watch.current()}


async def test_h38_a_lag_that_nobody_measures_any_more_is_unknown(calm: Watched) -> None:
    calm.rig.clock.advance(COPY_MS)
    assert ProblemKind.LAG_UNKNOWN not in kinds(calm)
    assert calm.status.lag_bytes == 0
    calm.rig.clock.advance(1)
    assert ProblemKind.LAG_UNKNOWN in kinds(calm)
    assert calm.status.lag_bytes is None


async def test_h38_a_failed_copy_is_seen_at_once(calm: Watched) -> None:
    async def fail() -> None:
        raise Corrupt("a batch is damaged")

    await calm._work(calm.copy_pool, fail)
    assert kinds(calm) == {ProblemKind.CANNOT_COPY}


def _lose_the_copies(service: Watched) -> None:
    statuses = service.statuses._partition_tasks.copy._statuses
    statuses[PARTITION.key] = replace(statuses[PARTITION.key], lost=(0,))


def _refuse_the_trim(service: Watched) -> None:
    statuses = service.statuses._partition_tasks.trim._statuses
    statuses[PARTITION.key] = replace(statuses[PARTITION.key], alarm="copies are gone")


def _stop_expiry(service: Watched) -> None:
    held = Held(reason=NoExpiry.CLOCK)
    service.statuses._partition_tasks.expiry._statuses[PARTITION.key] = ExpiryStatus(held=held)


def _refuse_the_cleanup(service: Watched) -> None:
    found = CleanupStatus(refused=None, leftovers=1, alarms=("unknown objects",))
    service.statuses._partition_tasks.cleanup._statuses[PARTITION.key] = found


def _freeze(service: Watched) -> None:
    snapshots = service.snapshots._snapshots
    frozen = Frozen(reason="they contradict each other")
    snapshots[PARTITION.key] = replace(snapshots[PARTITION.key], frozen=frozen)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (_lose_the_copies, ProblemKind.SEGMENT_LOST),
        (_refuse_the_trim, ProblemKind.TRIM_REFUSED),
        (_stop_expiry, ProblemKind.EXPIRY_STOPPED),
        (_refuse_the_cleanup, ProblemKind.CLEANUP_REFUSED),
        (_freeze, ProblemKind.PARTITION_FROZEN),
    ],
)
async def test_h38_whatever_a_task_or_snapshot_finds_is_seen_at_once(
    calm: Watched, change: Callable[[Watched], None], kind: ProblemKind
) -> None:
    change(calm)
    assert kinds(calm) == {kind}
    assert kinds(calm) == {kind}


async def test_h38_another_leadership_is_examined_from_its_beginning(calm: Watched) -> None:
    """What was measured under the epoch before says nothing about this one."""
    row = calm.leadership.snapshot.partitions[PARTITION.key]
    newer = replace(row, leader_epoch=row.leader_epoch + 1)
    calm.leadership.snapshot = replace(calm.leadership.snapshot, partitions={PARTITION.key: newer})
    calm.watch.current()
    assert calm.status.lag_bytes is None


async def test_h38_a_partition_that_waits_to_be_copied_is_examined_as_time_passes(
    calm: Watched,
) -> None:
    statuses, now_ms = calm.statuses._partition_tasks.copy._statuses, calm.rig.clock.monotonic_ms()
    statuses[PARTITION.key] = replace(
        statuses[PARTITION.key],
        pending_segments=1,
        lag_segments=1,
        measured_at_ms=now_ms,
        behind_since_ms=now_ms - COPY_MS,
    )
    assert kinds(calm) == set()
    calm.rig.clock.advance(1)
    assert kinds(calm) == {ProblemKind.NOTHING_COPIED}


async def test_h38_a_log_start_that_does_not_move_is_examined_as_time_passes(calm: Watched) -> None:
    problems = calm.statuses._partition_problems
    still = problems._still[PARTITION.key]
    since_ms = calm.rig.clock.monotonic_ms() - LIMITS.trim_ms
    before = replace(still, since_ms=since_ms, excess_bytes=still.excess_bytes - 1)
    problems._still[PARTITION.key] = before
    problems._found = PerPartition(problems._of)
    assert kinds(calm) == set()
    calm.rig.clock.advance(1)
    assert kinds(calm) == {ProblemKind.TRIM_BLOCKED}
