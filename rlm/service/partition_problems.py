"""Gathers the problems of the partitions we lead from snapshots, tasks and pools.

Keeps what no other component knows: since when we lead a partition, and since when its log start
has not moved. The rules are in `rlm/plans/problem_rules.py`. Never waits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentState
from rlm.broker.deletions import RecordDeletions
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock
from rlm.plans.copy import CopyLag, WhyNot
from rlm.plans.problem_rules import (
    CopyMeasure,
    CopyObservation,
    Failure,
    Limits,
    TrimObservation,
    copy_findings,
    expiry_findings,
    known_lag,
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
from rlm.tasks.cleanup import CleanupStatus
from rlm.tasks.copy import CopyStatus
from rlm.tasks.copy_progress import Copying
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.pool import TaskPool
from rlm.tasks.trim import TrimStatus
from rlm.topics.rules import retention_of

_FOREVER_MS = 1 << 62
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


class _Inputs(NamedTuple):
    """What the findings about one partition follow from, and the time. All of it is replaced when
    it changes, never changed.
    """

    row: LedPartition
    snapshot: PartitionSnapshot | None
    copy: CopyStatus | None
    trim: TrimStatus | None
    expiry: ExpiryStatus | None
    cleanup: CleanupStatus | None

    def is_same(self, other: "_Inputs") -> bool:
        return (
            self.row is other.row
            and self.snapshot is other.snapshot
            and self.copy is other.copy
            and self.trim is other.trim
            and self.expiry is other.expiry
            and self.cleanup is other.cleanup
        )


class _Calm(NamedTuple):
    """These inputs are no problem up to `until_ms` (monotonic), unless a job fails."""

    inputs: _Inputs
    until_ms: int


class PartitionProblems:
    """`findings()` covers all partitions that we lead; `lag()` answers for one."""

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
        limits: Limits,
        losses_to_come: ComingLosses,
    ) -> None:
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
        self._led_since: dict[PartitionKey, tuple[int, int]] = {}
        self._still: dict[PartitionKey, _Still] = {}
        self._excess: dict[PartitionKey, tuple[PartitionSnapshot, int]] = {}
        self._measures: dict[PartitionKey, tuple[CopyStatus, CopyMeasure]] = {}
        self._calm: dict[PartitionKey, _Calm] = {}

    def findings(self) -> Iterator[Finding]:
        """Problems of every partition of an enabled topic that we lead."""
        led = {row.key: row for row in self._led()}
        kept = self._led_since, self._still, self._excess, self._measures, self._calm
        for remembered in kept:
            for key in [key for key in remembered if key not in led]:
                del remembered[key]
        self.losses_to_come.keep(led)
        tasks, now_ms = self._partition_tasks, self._clock.monotonic_ms()
        failing, copies, trims = (
            tasks.copy_pool.last_errors,
            tasks.copy.statuses,
            tasks.trim.statuses,
        )
        expiries, cleanups = tasks.expiry.statuses, tasks.cleanup.statuses
        for key, row in led.items():
            inputs = _Inputs(
                row,
                self._snapshots.of(row),
                copies.get(key),
                trims.get(key),
                expiries.get(key),
                cleanups.get(key),
            )
            if key in failing or not self._is_calm(key, inputs, now_ms):
                yield from self._of(key, inputs, now_ms)
            yield from self.losses_to_come.findings(row)
            yield from tasks.hole_watch.findings(row)
        yield from self._unknown_trims(led.values())
        yield from self._lost_segments(led)

    def lag(self, row: LedPartition) -> CopyLag | None:
        """What is left to copy; None where that is not known (any more)."""
        copy, now_ms = self._copy_status(row), self._clock.monotonic_ms()
        if copy is not None and now_ms <= self._known_until_ms(copy):
            return self._measure(row.key, copy).lag
        return known_lag(self._copy_observation(row), self._limits, now_ms)

    def copying(self) -> Copying:
        """What is left of all partitions of enabled topics that we lead."""
        lags = {row.key: self.lag(row) for row in self._led()}
        measured = {key for key, lag in lags.items() if lag is not None}
        return Copying(
            progress=self._partition_tasks.copy.progress(measured),
            unmeasured_partitions=len(lags) - len(measured),
        )

    def _led(self) -> Iterator[LedPartition]:
        topics = self._settings.view.topics()
        enabled = {record.topic_id for record in topics if record.state == "enabled"}
        return self._leadership.snapshot.led_of(self._node_id, enabled)

    def _is_calm(self, key: PartitionKey, inputs: _Inputs, now_ms: int) -> bool:
        calm = self._calm.get(key)
        return calm is not None and now_ms <= calm.until_ms and calm.inputs.is_same(inputs)

    def _of(self, key: PartitionKey, inputs: _Inputs, now_ms: int) -> tuple[Finding, ...]:
        """Findings by the inputs. Where there are none, they need not be computed again before the
        inputs change, or until time alone may have made one.
        """
        row, copy = inputs.row, self._copy_status(inputs.row)
        trim = self._trim_observation(row, now_ms)
        found = (
            *copy_findings(self._copy_observation(row), self._limits, now_ms),
            *trim_findings(trim, self._limits, now_ms),
            *self._others(inputs),
        )
        self._calm.pop(key, None)
        if copy is not None and copy.behind_since_ms is None and not found:
            until_ms = min(self._known_until_ms(copy), self._still_until_ms(trim, now_ms))
            self._calm[key] = _Calm(inputs, until_ms)
        return found

    def _still_until_ms(self, trim: TrimObservation, now_ms: int) -> int:
        """Until when the log start that does not move is no problem; what is none after its time
        becomes one only by another snapshot or run.
        """
        if trim.still_since_ms is None:
            return _FOREVER_MS
        ends_ms = trim.still_since_ms + self._limits.trim_ms
        return ends_ms if now_ms <= ends_ms else _FOREVER_MS

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

    def _others(self, inputs: _Inputs) -> Iterator[Finding]:
        partition, snapshot = inputs.row.topic_partition, inputs.snapshot
        if snapshot is not None and snapshot.frozen is not None:
            yield partition_finding(
                partition,
                ProblemKind.PARTITION_FROZEN,
                f"frozen: {snapshot.frozen.reason}; `rlm partition adopt` or `discard` ends it",
            )
        if inputs.copy is not None:
            yield from inputs.copy.findings()
        yield from expiry_findings(partition, inputs.expiry.held if inputs.expiry else None)
        for text in inputs.cleanup.alarms if inputs.cleanup else ():
            yield partition_finding(partition, ProblemKind.CLEANUP_REFUSED, text)

    def _copy_status(self, row: LedPartition) -> CopyStatus | None:
        """Of this leadership."""
        copy = self._partition_tasks.copy.statuses.get(row.key)
        return copy if copy is not None and copy.leader_epoch == row.leader_epoch else None

    def _known_until_ms(self, copy: CopyStatus) -> int:
        """Until when its lag is known, whatever the pool does: rules wait at least so long."""
        return copy.measured_at_ms + self._limits.copy_ms

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
            led_since_ms=self._led_since_ms(row),
            measure=None if copy is None else self._measure(key, copy),
            failure=_failure(self._partition_tasks.copy_pool, key),
            is_running=self._partition_tasks.copy_pool.is_running(key),
            is_waiting=self._partition_tasks.copy_pool.is_waiting(key),
            service_copied_at_ms=self._partition_tasks.copy.copied_at_ms,
        )

    def _led_since_ms(self, row: LedPartition) -> int:
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
        lag=CopyLag(segments=copy.lag_segments, size_bytes=copy.lag_bytes),
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
