"""Builds the status of the partitions we lead from snapshots, tasks and ledger.

Only `current` and `copy_now` wait; everything else returns what was seen last.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from kip405.errors import Busy, Fenced
from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentState
from rlm.api.ports import CopyOutcome, PartitionStatus
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock
from rlm.plans.expiry import NoExpiry
from rlm.plans.problems import Problem, Severity, human_bytes
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.service.partition_problems import PartitionProblems
from rlm.service.tasks import PartitionTasks
from rlm.tasks.copy import CopyStatus
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.pool import Job
from rlm.tasks.trim import TrimStatus
from rlmm.ledger import PartitionLedger

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_USUAL = (NoExpiry.UNLIMITED, NoExpiry.WITHIN_RETENTION)
_COPY_NOW_DEADLINE_MS = 600_000
_COPY_NOW_RETRY_MS = 100


class Statuses:
    """Implements rlm.api.ports.PartitionStatuses and CopyNow."""

    def __init__(
        self,
        *,
        node_id: int,
        leadership: Leadership,
        snapshots: SnapshotCache,
        settings: Settings,
        ledger: Ledger,
        partition_tasks: PartitionTasks,
        run_copy: Callable[[LedPartition, int | None], Awaitable[None]],
        clock: Clock,
        partition_problems: PartitionProblems,
        problems: Callable[[], Sequence[Problem]],
    ) -> None:
        self._node_id = node_id
        self._leadership = leadership
        self._snapshots = snapshots
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._partition_tasks = partition_tasks
        self._run_copy = run_copy
        self._partition_problems = partition_problems
        self._problems = problems

    def led(self) -> Sequence[PartitionStatus]:
        view, alarms = self._settings.view, self._alarms()
        return tuple(
            self._status(row, alarms)
            for row in self._leadership.snapshot.led_by(self._node_id)
            if view.topic(row.topic_id_partition.topic_id) is not None
        )

    async def current(self, key: PartitionKey) -> PartitionStatus:
        row = self._led_row(key)
        await self._snapshots.take(row)
        return self._status(row, self._alarms())

    async def copy_now(self, key: PartitionKey, up_to_offset: int | None) -> CopyOutcome:
        row = self._led_row(key)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def job() -> None:
            try:
                await self._run_copy(row, up_to_offset)
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
                raise
            if not done.done():
                done.set_result(None)

        await self._submit(key, job)
        await done
        status = self._partition_tasks.copy.statuses[key]
        return CopyOutcome(
            first_uncopied_offset=max(status.copied_next_offset, status.log_start_offset),
            reason=" ".join((status.reason, status.detail)).strip(),
        )

    async def _submit(self, key: PartitionKey, job: Job) -> None:
        deadline_ms = self._clock.monotonic_ms() + _COPY_NOW_DEADLINE_MS
        while not self._partition_tasks.copy_pool.submit(key, job):
            if self._clock.monotonic_ms() > deadline_ms:
                raise Busy(f"partition {key}: the copy task is busy or in back-off")
            await self._clock.sleep_ms(_COPY_NOW_RETRY_MS)

    def _led_row(self, key: PartitionKey) -> LedPartition:
        row = self._leadership.snapshot.partitions.get(key)
        if row is None or row.leader != self._node_id:
            raise Fenced(f"partition {key} is not led by node {self._node_id}")
        return row

    def _alarms(self) -> Mapping[str, Sequence[str]]:
        """The texts of all alarms, by subject."""
        found: dict[str, list[str]] = {}
        for problem in self._problems():
            if problem.severity is Severity.ALARM:
                found.setdefault(problem.subject, []).append(problem.text)
        return found

    def _status(self, row: LedPartition, alarms: Mapping[str, Sequence[str]]) -> PartitionStatus:
        partition = row.topic_id_partition
        snapshot = self._snapshots.of(row)
        ledger = self._ledger.ledger(partition.key)
        finished = [entry.metadata for entry in ledger.in_state(_FINISHED)]
        start = self._settings.view.remote_log_start(partition.key)
        lag = self._partition_problems.lag(row)
        base = PartitionStatus(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader=row.leader,
            leader_epoch=row.leader_epoch,
            remote_log_start_offset=-1 if start is None else start,
            remote_size_bytes=sum(one.segment_size_bytes for one in finished),
            remote_segments=len(finished),
            lag_bytes=None if lag is None else lag.size_bytes,
            lag_segments=None if lag is None else lag.segments,
            last_error=self._last_error(partition.key),
            alarms=tuple(alarms.get(f"{partition.topic}-{partition.partition}", ())),
        )
        return base if snapshot is None else self._checked(base, snapshot, ledger)

    def _checked(
        self, base: PartitionStatus, snapshot: PartitionSnapshot, ledger: PartitionLedger
    ) -> PartitionStatus:
        end = ledger.highest_end(snapshot.lineage, snapshot.log_end_offset)
        return replace(
            base,
            remote_next_offset=-1 if end is None else end,
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            last_stable_offset=snapshot.watermarks.last_stable_offset,
            high_watermark=snapshot.watermarks.high_watermark,
            log_end_offset=snapshot.log_end_offset,
            copy_reason=_reason(self._partition_tasks.copy.statuses.get(snapshot.key)),
            trim_reason=_reason(self._partition_tasks.trim.statuses.get(snapshot.key)),
            expiry_reason=_expiry_reason(self._partition_tasks.expiry.statuses.get(snapshot.key)),
            frozen=snapshot.frozen.reason if snapshot.frozen else "",
        )

    def _last_error(self, key: PartitionKey) -> str:
        pools = self._partition_tasks.copy_pool, self._partition_tasks.cleanup_pool
        errors = (pool.last_errors.get(key) for pool in pools)
        return "; ".join(error.message for error in errors if error is not None)


def _expiry_reason(status: ExpiryStatus | None) -> str:
    """Empty where nothing is deleted and nothing prevents it."""
    if status is None:
        return ""
    words = [] if status.held.reason in _USUAL else [status.held.words]
    if status.deleted_at_ms is not None:
        size = human_bytes(status.deleted_bytes)
        words.append(f"the last run that deleted took {status.deleted_segments} segments, {size}")
    return "; ".join(words)


def _reason(status: CopyStatus | TrimStatus | None) -> str:
    return " ".join((status.reason, status.detail)).strip() if status else ""
