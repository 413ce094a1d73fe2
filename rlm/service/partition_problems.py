"""Gathers the problems of the partitions we lead from snapshots, tasks and pools.

Keeps what no other component knows: since when we lead a partition, and since when its log start
has not moved. The rules are in `rlm/plans/problem_rules.py`. Never waits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentState
from rlm.api.per_partition import AT_EACH_REPORT_MS, FOREVER_MS, PerPartition, columns
from rlm.broker.deletions import RecordDeletions
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock
from rlm.plans.copy import CopyLag, WhyNot
from rlm.plans.copy_problems import CopyMeasure, CopyObservation, copy_findings, known_lag
from rlm.plans.problem_rules import (
    Failure,
    Limits,
    TrimObservation,
    expiry_findings,
    partition_finding,
    trim_findings,
    unknown_trim_finding,
)
from rlm.plans.problems import Finding, ProblemKind
from rlm.plans.retention import effective_local_retention
from rlm.plans.trim import NoTrim, segments_beyond
from rlm.remote_log.history import Losses
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.service.coming_losses import ComingLosses
from rlm.service.tasks import PartitionTasks
from rlm.tasks.copy import CopyStatus
from rlm.tasks.copy_progress import Copying
from rlm.tasks.pool import TaskPool
from rlm.tasks.schedule import led_rows
from rlm.topics.rules import retention_of

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_NO_TRIM = {reason.value: reason for reason in NoTrim}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Still:
    """The log start has not moved since `since_ms` (monotonic); `excess_bytes` lay beyond it
    then.
    """

    log_start_offset: int
    since_ms: int
    excess_bytes: int


class PartitionProblems:
    """`findings()` and `lags()` cover all partitions that we lead; `lag()` answers for one."""

    def __init__(
        self,
        *,
        node_id: int,
        leadership: Leadership,
        snapshots: SnapshotCache,
        settings: Settings,
        ledger: Ledger,
        partition_tasks: PartitionTasks,
        deletions: RecordDeletions,
        losses: Losses,
        clock: Clock,
        limits: Callable[[], Limits],
        losses_to_come: ComingLosses,
        copy_limit: Callable[[], int],
    ) -> None:
        """`copy_limit`: bytes a second that copies may take now."""
        self._node_id = node_id
        self._leadership = leadership
        self._snapshots = snapshots
        self._settings = settings
        self._ledger = ledger
        self._partition_tasks = partition_tasks
        self._deletions = deletions
        self._losses = losses
        self._clock = clock
        self._limits = limits
        self.losses_to_come = losses_to_come
        self._copy_limit = copy_limit
        self._led_since: dict[PartitionKey, tuple[int, int]] = {}
        self._still: dict[PartitionKey, _Still] = {}
        self._excess: dict[PartitionKey, tuple[PartitionSnapshot, int]] = {}
        self._measures: dict[PartitionKey, tuple[CopyStatus, CopyMeasure]] = {}
        self._found = PerPartition(self._of)
        self._lags = PerPartition(self._lag)

    def findings(self) -> Iterator[Finding]:
        """Problems of every partition of an enabled topic that we lead."""
        rows = self.led()
        led = {row.key: row for row in rows}
        for remembered in (self._led_since, self._still, self._excess, self._measures):
            if not remembered.keys() <= led.keys():
                for key in remembered.keys() - led.keys():
                    del remembered[key]
        tasks, keys = self._partition_tasks, tuple(led)
        inputs = (
            self._snapshots.snapshots,
            tasks.copy.statuses,
            tasks.trim.statuses,
            tasks.expiry.statuses,
            tasks.cleanup.statuses,
            tasks.copy_pool.last_errors,
        )
        found = self._found.read(
            keys,
            rows,
            *columns(keys, *inputs),
            now_ms=self._clock.monotonic_ms(),
        )
        yield from chain.from_iterable(found)
        yield from self.losses_to_come.findings(rows)
        yield from tasks.hole_watch.findings(rows)
        yield from self._unknown_trims(rows)
        yield from self._lost_segments(led)

    def lag(self, row: LedPartition) -> CopyLag | None:
        """What is left to copy; None where that is not known (any more)."""
        return self._lag(row, self._partition_tasks.copy.statuses.get(row.key))[0]

    def lags(self) -> Mapping[PartitionKey, CopyLag | None]:
        """The same of all partitions that we lead, of topics on record in any state."""
        rows = led_rows(self._leadership, self._settings, self._node_id)
        keys, copies = [row.key for row in rows], self._partition_tasks.copy.statuses
        found = self._lags.read(
            keys, rows, *columns(keys, copies), now_ms=self._clock.monotonic_ms()
        )
        return dict(zip(keys, found, strict=True))

    def copying(self) -> Copying:
        """What is left of all partitions of enabled topics that we lead."""
        lags, led = self.lags(), [row.key for row in self.led()]
        measured = {key for key in led if lags[key] is not None}
        return Copying(
            progress=self._partition_tasks.copy.progress(measured),
            unmeasured_partitions=len(led) - len(measured),
            limit_bytes_per_second=self._copy_limit(),
        )

    def led(self) -> Sequence[LedPartition]:
        """The partitions of enabled topics that we lead."""
        topics = self._settings.view.topics()
        enabled = {record.topic_id for record in topics if record.state == "enabled"}
        return self._leadership.led_of(self._node_id, enabled)

    def _lag(self, row: LedPartition, copy: CopyStatus | None) -> tuple[CopyLag | None, int]:
        """The lag, and until when it is known by its measurement alone, whatever the pool does."""
        if copy is None or copy.leader_epoch != row.leader_epoch:
            return None, FOREVER_MS
        now_ms, until_ms = self._clock.monotonic_ms(), self._known_until_ms(copy)
        if now_ms <= until_ms:
            return self._measure(row.key, copy).lag, until_ms
        observed = self._copy_observation(row)
        return known_lag(observed, self._limits(), now_ms), AT_EACH_REPORT_MS

    def _of(self, row: LedPartition, *_inputs: object) -> tuple[tuple[Finding, ...], int]:
        """What is found now. Where that is nothing, it need not be computed again before one of the
        inputs (see `findings`) changes, or until time alone may have made a problem.
        """
        now_ms, copy = self._clock.monotonic_ms(), self._copy_status(row)
        is_failing = self._partition_tasks.copy_pool.last_error(row.key) is not None
        trim = self._trim_observation(row, now_ms)
        found = (
            *copy_findings(self._copy_observation(row), self._limits(), now_ms),
            *trim_findings(trim, self._limits(), now_ms),
            *self._others(row),
        )
        if found or is_failing or copy is None or copy.behind_since_ms is not None:
            return found, AT_EACH_REPORT_MS
        return found, min(self._known_until_ms(copy), self._still_until_ms(trim, now_ms))

    def _still_until_ms(self, trim: TrimObservation, now_ms: int) -> int:
        """Until when the log start that does not move is no problem; what is none after its time
        becomes one only by another snapshot or run.
        """
        if trim.still_since_ms is None:
            return FOREVER_MS
        ends_ms = trim.still_since_ms + self._limits().trim_ms
        return ends_ms if now_ms <= ends_ms else FOREVER_MS

    def _unknown_trims(self, led: Iterable[LedPartition]) -> Iterator[Finding]:
        unknown = self._deletions.unknown
        for row in led if unknown else ():
            bound = unknown.get(row.topic_partition)
            if bound is not None:
                yield unknown_trim_finding(row.topic_partition, bound)

    def _lost_segments(self, led: Mapping[PartitionKey, LedPartition]) -> Iterator[Finding]:
        for key in self._losses.partitions:
            if key in led:
                finished = self._ledger.ledger(key).in_state(_FINISHED)
                ids = {one.metadata.segment_id.id for one in finished}
                for text in self._losses.alarms(key, ids):
                    yield partition_finding(
                        led[key].topic_partition, ProblemKind.SEGMENT_LOST, text
                    )

    def _others(self, row: LedPartition) -> Iterator[Finding]:
        partition, snapshot, tasks = (
            row.topic_partition,
            self._snapshots.of(row),
            self._partition_tasks,
        )
        copy = tasks.copy.statuses.get(row.key)
        expiry, cleanup = tasks.expiry.statuses.get(row.key), tasks.cleanup.statuses.get(row.key)
        if snapshot is not None and snapshot.frozen is not None:
            yield partition_finding(
                partition,
                ProblemKind.PARTITION_FROZEN,
                f"frozen: {snapshot.frozen.reason}; `rlm partition adopt` or `discard` ends it",
            )
        if copy is not None:
            yield from copy.findings()
        yield from expiry_findings(partition, expiry.held if expiry else None)
        for text in cleanup.alarms if cleanup else ():
            yield partition_finding(partition, ProblemKind.CLEANUP_REFUSED, text)

    def _copy_status(self, row: LedPartition) -> CopyStatus | None:
        """Of this leadership."""
        copy = self._partition_tasks.copy.statuses.get(row.key)
        return copy if copy is not None and copy.leader_epoch == row.leader_epoch else None

    def _known_until_ms(self, copy: CopyStatus) -> int:
        """Until when its lag is known, whatever the pool does: rules wait at least so long."""
        return copy.measured_at_ms + self._limits().copy_ms

    def _measure(self, key: PartitionKey, copy: CopyStatus) -> CopyMeasure:
        """The same object as long as the status is the same."""
        known = self._measures.get(key)
        if known is None or known[0] is not copy:
            known = self._measures[key] = copy, _measure(copy)
        return known[1]

    def _copy_observation(self, row: LedPartition) -> CopyObservation:
        key, copy = row.key, self._copy_status(row)
        return CopyObservation(
            partition=row.topic_partition,
            led_since_ms=self.led_since_ms(row),
            measure=None if copy is None else self._measure(key, copy),
            failure=_failure(self._partition_tasks.copy_pool, key),
            is_running=self._partition_tasks.copy_pool.is_running(key),
            is_waiting=self._partition_tasks.copy_pool.is_waiting(key),
            service_copied_at_ms=self._partition_tasks.copy.copied_at_ms,
        )

    def led_since_ms(self, row: LedPartition) -> int:
        """Since when (monotonic) we lead it under this leader epoch."""
        key, now_ms = row.key, self._clock.monotonic_ms()
        epoch, since_ms = self._led_since.get(key, (row.leader_epoch, now_ms))
        if epoch != row.leader_epoch:
            epoch, since_ms = row.leader_epoch, now_ms
        self._led_since[key] = epoch, since_ms
        return since_ms

    def _trim_observation(self, row: LedPartition, now_ms: int) -> TrimObservation:
        key = row.key
        trim = self._partition_tasks.trim.statuses.get(key)
        excess = self._excess_bytes(row)
        still = self._stands_still(row, excess, now_ms)
        return TrimObservation(
            partition=row.topic_partition,
            reason=_NO_TRIM.get(trim.reason) if trim else None,
            detail=trim.detail if trim else "",
            failure=_failure(self._partition_tasks.cleanup_pool, key),
            alarm=trim.alarm if trim else None,
            foreign_log_start=trim.foreign_log_start if trim else None,
            still_since_ms=still.since_ms if still else None,
            excess_bytes=excess,
            excess_then_bytes=still.excess_bytes if still else 0,
        )

    def _excess_bytes(self, row: LedPartition) -> int:
        """As of the last snapshot; computed once for each snapshot, since it reads all segments."""
        key, snapshot = row.key, self._snapshots.of(row)
        if snapshot is None:
            return 0
        counted = self._excess.get(key)
        if counted is None or counted[0] is not snapshot:
            counted = self._excess[key] = snapshot, _excess_bytes(snapshot, self._clock.now_ms())
        return counted[1]

    def _stands_still(self, row: LedPartition, excess: int, now_ms: int) -> _Still | None:
        key, snapshot = row.key, self._snapshots.of(row)
        if snapshot is None or excess == 0:
            self._still.pop(key, None)
            return None
        start, known = snapshot.watermarks.log_start_offset, self._still.get(key)
        if known is None or known.log_start_offset != start:
            known = _Still(log_start_offset=start, since_ms=now_ms, excess_bytes=excess)
            self._still[key] = known
        return known


def _measure(copy: CopyStatus) -> CopyMeasure:
    return CopyMeasure(
        at_ms=copy.measured_at_ms,
        lag=CopyLag(
            segments=copy.lag_segments,
            size_bytes=copy.lag_bytes,
            oldest_ms=copy.lag_oldest_ms,
        ),
        behind_since_ms=copy.behind_since_ms,
        is_due=copy.pending_segments > 0,
        reason=WhyNot(copy.reason),
        detail=copy.detail,
    )


def _failure(pool: TaskPool, key: PartitionKey) -> Failure | None:
    found = pool.last_error(key)
    return None if found is None else Failure(error=found.error, since_ms=found.since_ms)


def _excess_bytes(snapshot: PartitionSnapshot, now_ms: int) -> int:
    """Bytes of closed segments that local retention would drop if all of them were copied."""
    if snapshot.topic.record is None or snapshot.topic.record.mode != "tier":
        return 0
    start = snapshot.watermarks.log_start_offset
    retention = effective_local_retention(retention_of(snapshot.topic.record))
    excess = segments_beyond(snapshot.log.segments, retention, start=start, now_ms=now_ms)
    return sum(segment.size_bytes for segment in excess)
