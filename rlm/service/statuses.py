"""Builds the status of the partitions we lead from snapshots, tasks and ledger.

Only `current` and `copy_now` wait; everything else returns what was seen last.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from kip405.errors import Busy, Fenced
from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentState
from rlm.api.per_partition import FOREVER_MS, PerPartition, columns
from rlm.api.ports import CopyOutcome, PartitionStatus
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock
from rlm.plans.copy import CopyLag
from rlm.plans.coverage import lost_offsets
from rlm.plans.expiry import NoExpiry
from rlm.plans.loss import ComingLoss
from rlm.plans.problems import Problem, Severity, human_bytes
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.service.partition_problems import PartitionProblems
from rlm.service.tasks import PartitionTasks
from rlm.tasks.copy import CopyStatus
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.decisions import reason_of
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.pool import Job, TaskFailure
from rlm.tasks.schedule import led_rows
from rlm.tasks.trim import TrimStatus
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import HolesRecord, StartRecord
from rlmm.settings_view import AdoptedRecord

_NO_ALARMS: tuple[str, ...] = ()
_USUAL = (NoExpiry.UNLIMITED, NoExpiry.WITHIN_RETENTION)
_COPY_NOW_DEADLINE_MS = 600_000
_COPY_NOW_RETRY_MS = 100
_COPY_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_RANGES_SHOWN = 100
"""Of holes and of unfinished copies, in the status of one partition."""


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
        run_copy: Callable[[LedPartition, CopyRequest], Awaitable[None]],
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
        self._known: PerPartition[PartitionStatus] = PerPartition(
            lambda *seen: (_built(_Seen(*seen)), FOREVER_MS)
        )
        self._alarms: dict[str, tuple[str, ...]] = {}

    def led(self, problems: Sequence[Problem]) -> Sequence[PartitionStatus]:
        rows = led_rows(self._leadership, self._settings, self._node_id)
        lags, losses = self._partition_problems.lags(), self._partition_problems.losses_to_come
        keys = [row.key for row in rows]
        inputs = self._inputs(
            rows, list(map(lags.get, keys)), losses.of_all(rows), self._alarms_of(rows, problems)
        )
        return self._known.read(keys, *inputs)

    async def current(self, key: PartitionKey) -> PartitionStatus:
        row = self._led_row(key)
        await self._snapshots.take(row)
        lag = self._partition_problems.lag(row)
        loss = self._partition_problems.losses_to_come.of(row)
        alarms = self._alarms_of([row], self._problems())
        [inputs] = zip(*self._inputs([row], [lag], [loss], alarms), strict=True)
        return _built(_Seen(*inputs))

    async def copy_now(self, key: PartitionKey, up_to_offset: int | None) -> CopyOutcome:
        row = self._led_row(key)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def job() -> None:
            try:
                await self._run_copy(row, CopyRequest(up_to_offset=up_to_offset))
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

    def _inputs(
        self,
        rows: Sequence[LedPartition],
        lags: Sequence[CopyLag | None],
        losses: Sequence[ComingLoss | None],
        alarms: Sequence[tuple[str, ...]],
    ) -> tuple[Sequence[object], ...]:
        """The columns of `_Seen`."""
        keys, tasks, view = [row.key for row in rows], self._partition_tasks, self._settings.view
        by_partition = (
            self._snapshots.snapshots,
            tasks.copy.statuses,
            tasks.trim.statuses,
            tasks.expiry.statuses,
            tasks.copy_pool.last_errors,
            tasks.cleanup_pool.last_errors,
        )
        return (
            rows,
            lags,
            losses,
            alarms,
            list(map(self._ledger.ledger, keys)),
            view.adopted(StartRecord.KIND, keys),
            view.adopted(HolesRecord.KIND, keys),
            *columns(keys, *by_partition),
        )

    def _alarms_of(
        self, rows: Sequence[LedPartition], problems: Sequence[Problem]
    ) -> Sequence[tuple[str, ...]]:
        """The texts of the alarms about each partition; the same objects as before where nobody
        says anything else now.
        """
        before, self._alarms = self._alarms, {}
        for subject, texts in _alarms(problems).items():
            known = before.get(subject)
            self._alarms[subject] = known if known == texts else texts
        if not self._alarms:
            return [_NO_ALARMS] * len(rows)
        return [self._alarms.get(str(row.topic_partition), _NO_ALARMS) for row in rows]


class _Seen(NamedTuple):
    """What the status of one partition is made of; all of it is replaced, never changed."""

    row: LedPartition
    lag: CopyLag | None
    loss: ComingLoss | None
    alarms: tuple[str, ...]
    ledger: PartitionLedger
    start: AdoptedRecord | None
    holes: AdoptedRecord | None
    snapshot: PartitionSnapshot | None
    copy: CopyStatus | None
    trim: TrimStatus | None
    expiry: ExpiryStatus | None
    copy_failure: TaskFailure | None
    cleanup_failure: TaskFailure | None

    @property
    def remote_log_start_offset(self) -> int | None:
        record = self.start.record if self.start else None
        return record.remote_log_start_offset if isinstance(record, StartRecord) else None

    @property
    def lost(self) -> Sequence[tuple[int, int]]:
        """Offsets that no tier has, above the remote log start."""
        record = self.holes.record if self.holes else None
        holes = record.holes if isinstance(record, HolesRecord) else ()
        return lost_offsets(holes, self.remote_log_start_offset or 0)

    @property
    def last_error(self) -> str:
        errors = self.copy_failure, self.cleanup_failure
        return "; ".join(error.message for error in errors if error)


def _built(seen: _Seen) -> PartitionStatus:
    row, partition, lag = seen.row, seen.row.topic_id_partition, seen.lag
    start, finished, lost = seen.remote_log_start_offset, seen.ledger.finished_total, seen.lost
    unfinished = _unfinished(seen)
    base = PartitionStatus(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        remote_log_start_offset=-1 if start is None else start,
        remote_size_bytes=finished.size_bytes,
        remote_segments=finished.segments,
        lag_bytes=None if lag is None else lag.size_bytes,
        lag_segments=None if lag is None else lag.segments,
        lag_oldest_ms=None if lag is None else lag.oldest_ms,
        behind_since_ms=None if lag is None or seen.copy is None else seen.copy.behind_since_ms,
        ledger_segments=len(seen.ledger.entries),
        deleting_segments=seen.ledger.deleting_segments,
        last_error=seen.last_error,
        alarms=seen.alarms,
        holes=len(lost),
        hole_offsets=sum(end - first for first, end in lost),
        hole_ranges=tuple(lost[:_RANGES_SHOWN]),
        unfinished_copies=tuple(islice(unfinished, _RANGES_SHOWN)),
        unfinished_copy_bytes=sum(unfinished.values()),
        loss_at_ms=None if seen.loss is None else seen.loss.at_ms,
    )
    snapshot = seen.snapshot
    if snapshot is None or snapshot.led.leader_epoch != row.leader_epoch:
        return base
    return _checked(base, seen, snapshot)


def _unfinished(seen: _Seen) -> dict[tuple[int, int], int]:
    """Sizes of segments that are being copied, by their offsets. Several attempts at one segment
    count once, and none where the segment is remote by now: such attempts broke, and their cleanup
    may come hours later.
    """
    begun = (one.metadata for one in seen.ledger.in_state(_COPY_STARTED))
    found = {(one.start_offset, one.next_offset): one.segment_size_bytes for one in begun}
    if seen.snapshot is None:
        return found
    lineage, log_end = seen.snapshot.lineage, seen.snapshot.log_end_offset
    return {
        (start, end): size_bytes
        for (start, end), size_bytes in found.items()
        if (one := seen.ledger.usable_segment_for(lineage, log_end, start)) is None
        or not one.metadata.start_offset <= start < end <= one.next_offset
    }


def _checked(base: PartitionStatus, seen: _Seen, snapshot: PartitionSnapshot) -> PartitionStatus:
    end = seen.ledger.highest_end(snapshot.lineage, snapshot.log_end_offset)
    return replace(
        base,
        remote_next_offset=-1 if end is None else end,
        local_log_start_offset=snapshot.watermarks.log_start_offset,
        last_stable_offset=snapshot.watermarks.last_stable_offset,
        high_watermark=snapshot.watermarks.high_watermark,
        log_end_offset=snapshot.log_end_offset,
        local_size_bytes=snapshot.log.size_bytes,
        copy_reason=_reason(seen.copy),
        trim_reason=_reason(seen.trim),
        expiry_reason=_expiry_reason(seen.expiry),
        frozen=snapshot.frozen.reason if snapshot.frozen else "",
    )


def _alarms(problems: Iterable[Problem]) -> Mapping[str, tuple[str, ...]]:
    """The texts of the alarms about topics and their partitions, by subject."""
    found: dict[str, tuple[str, ...]] = {}
    for problem in problems:
        if problem.severity is Severity.ALARM and problem.topic:
            found[problem.subject] = (*found.get(problem.subject, ()), problem.text)
    return found


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
    return "" if status is None else reason_of(status)
