"""Builds the status of the partitions we lead from snapshots, tasks and ledger.

Only `current` and `copy_now` wait; everything else returns what was seen last.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kip405.errors import Busy, Fenced
from kip405.ids import PartitionKey
from rlm.api.ports import CopyOutcome, PartitionStatus
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock
from rlm.plans.copy import CopyLag
from rlm.plans.coverage import lost_offsets
from rlm.plans.expiry import NoExpiry
from rlm.plans.problems import Problem, Severity, human_bytes
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.service.partition_problems import PartitionProblems
from rlm.service.tasks import PartitionTasks
from rlm.tasks.copy import CopyStatus
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.pool import Job
from rlm.tasks.trim import TrimStatus
from rlmm.ledger import Hole, PartitionLedger

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
        self._known: dict[PartitionKey, tuple[_Seen, PartitionStatus]] = {}

    def led(self, problems: Sequence[Problem]) -> Sequence[PartitionStatus]:
        ours = {record.topic_id for record in self._settings.view.topics()}
        alarms, results = _alarms(problems), self._results()
        found = {
            row.key: self._status(row.key, row, alarms, results)
            for row in self._leadership.snapshot.led_of(self._node_id, ours)
        }
        for key in self._known.keys() - found.keys():
            del self._known[key]
        return tuple(found.values())

    async def current(self, key: PartitionKey) -> PartitionStatus:
        row = self._led_row(key)
        await self._snapshots.take(row)
        return self._status(key, row, _alarms(self._problems()), self._results())

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

    def _results(self) -> "_Results":
        tasks = self._partition_tasks
        return _Results(tasks.copy.statuses, tasks.trim.statuses, tasks.expiry.statuses)

    def _status(
        self,
        key: PartitionKey,
        row: LedPartition,
        alarms: Mapping[str, Sequence[str]],
        results: "_Results",
    ) -> PartitionStatus:
        """The present status; built again only when one of its inputs has changed."""
        view = self._settings.view
        seen = _Seen(
            row=row,
            snapshot=self._snapshots.of(row),
            ledger=self._ledger.ledger(key),
            remote_log_start_offset=view.remote_log_start(key),
            lag=self._partition_problems.lag(row),
            copy=results.copy.get(key),
            trim=results.trim.get(key),
            expiry=results.expiry.get(key),
            last_error=self._last_error(key),
            alarms=tuple(alarms.get(str(row.topic_partition), ())) if alarms else (),
            holes=view.holes(key),
            loss_in_ms=self._partition_problems.losses_to_come.in_ms(row),
        )
        known = self._known.get(key)
        if known is not None and known[0].is_same(seen):
            return known[1]
        status = self._built(seen)
        self._known[key] = seen, status
        return status

    def _built(self, seen: "_Seen") -> PartitionStatus:
        row, partition, lag = seen.row, seen.row.topic_id_partition, seen.lag
        start, finished = seen.remote_log_start_offset, seen.ledger.finished_total
        lost = lost_offsets(seen.holes, start or 0)
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
            last_error=seen.last_error,
            alarms=seen.alarms,
            holes=len(lost),
            hole_offsets=sum(end - first for first, end in lost),
            loss_in_ms=seen.loss_in_ms,
        )
        return base if seen.snapshot is None else self._checked(base, seen, seen.snapshot)

    def _checked(
        self, base: PartitionStatus, seen: "_Seen", snapshot: PartitionSnapshot
    ) -> PartitionStatus:
        end = seen.ledger.highest_end(snapshot.lineage, snapshot.log_end_offset)
        return replace(
            base,
            remote_next_offset=-1 if end is None else end,
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            last_stable_offset=snapshot.watermarks.last_stable_offset,
            high_watermark=snapshot.watermarks.high_watermark,
            log_end_offset=snapshot.log_end_offset,
            copy_reason=_reason(seen.copy),
            trim_reason=_reason(seen.trim),
            expiry_reason=_expiry_reason(seen.expiry),
            frozen=snapshot.frozen.reason if snapshot.frozen else "",
        )

    def _last_error(self, key: PartitionKey) -> str:
        tasks = self._partition_tasks
        errors = tasks.copy_pool.last_error(key), tasks.cleanup_pool.last_error(key)
        return "; ".join(error.message for error in errors if error) if any(errors) else ""


class _Results(NamedTuple):
    """The results of the tasks' last runs, by partition."""

    copy: Mapping[PartitionKey, CopyStatus]
    trim: Mapping[PartitionKey, TrimStatus]
    expiry: Mapping[PartitionKey, ExpiryStatus]


class _Seen(NamedTuple):
    """What the status of one partition is made of."""

    row: LedPartition
    snapshot: PartitionSnapshot | None
    ledger: PartitionLedger
    remote_log_start_offset: int | None
    lag: CopyLag | None
    copy: CopyStatus | None
    trim: TrimStatus | None
    expiry: ExpiryStatus | None
    last_error: str
    alarms: tuple[str, ...]
    holes: tuple[Hole, ...]
    loss_in_ms: int | None

    def is_same(self, other: "_Seen") -> bool:
        """Compares what is replaced as a whole by identity: a partition may have many segments."""
        return (
            self.row is other.row
            and self.snapshot is other.snapshot
            and self.ledger is other.ledger
            and self.copy is other.copy
            and self.trim is other.trim
            and self.expiry is other.expiry
            and self.remote_log_start_offset == other.remote_log_start_offset
            and self.lag == other.lag
            and self.last_error == other.last_error
            and self.alarms == other.alarms
            and self.holes == other.holes
            and self.loss_in_ms == other.loss_in_ms
        )


def _alarms(problems: Iterable[Problem]) -> Mapping[str, Sequence[str]]:
    """The texts of all alarms, by subject."""
    found: dict[str, list[str]] = {}
    for problem in problems:
        if problem.severity is Severity.ALARM:
            found.setdefault(problem.subject, []).append(problem.text)
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
    return " ".join((status.reason, status.detail)).strip() if status else ""
