"""Gathers the problems of the partitions we lead from snapshots, tasks and pools.

Keeps what no other component knows: since when we lead a partition, and since when its log start
has not moved. The rules are in `rlm/plans/problem_rules.py`. Never waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
from rlm.plans.trim import NoTrim, retention_target
from rlm.remote_log.history import Losses
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshot_cache import SnapshotCache
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.service.tasks import PartitionTasks
from rlm.tasks.copy import CopyStatus
from rlm.tasks.pool import TaskPool
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
        self._led_since: dict[PartitionKey, tuple[int, int]] = {}
        self._still: dict[PartitionKey, _Still] = {}
        self._excess: dict[PartitionKey, tuple[PartitionSnapshot, int]] = {}

    def findings(self) -> Iterator[Finding]:
        """Problems of every partition of an enabled topic that we lead."""
        led = {row.topic_id_partition.key: row for row in self._led()}
        for remembered in (self._led_since, self._still, self._excess):
            for key in remembered.keys() - led.keys():
                del remembered[key]
        for row in led.values():
            yield from self._of(row)

    def lag(self, row: LedPartition) -> CopyLag | None:
        """What is left to copy; None where that is not known (any more)."""
        return known_lag(self._copy_observation(row), self._limits, self._clock.monotonic_ms())

    def _led(self) -> Iterator[LedPartition]:
        view = self._settings.view
        for row in self._leadership.snapshot.led_by(self._node_id):
            record = view.topic(row.topic_id_partition.topic_id)
            if record is not None and record.state == "enabled":
                yield row

    def _of(self, row: LedPartition) -> Iterator[Finding]:
        now_ms = self._clock.monotonic_ms()
        yield from copy_findings(self._copy_observation(row), self._limits, now_ms)
        yield from trim_findings(self._trim_observation(row, now_ms), self._limits, now_ms)
        yield from self._unknown_trim(row)
        yield from self._others(row)

    def _unknown_trim(self, row: LedPartition) -> Iterator[Finding]:
        partition = row.topic_id_partition.topic_partition
        bound = self._deletions.unknown.get(partition)
        if bound is not None:
            yield unknown_trim_finding(partition, bound)

    def _others(self, row: LedPartition) -> Iterator[Finding]:
        partition, key = row.topic_id_partition.topic_partition, row.topic_id_partition.key
        snapshot = self._snapshots.of(row)
        if snapshot is not None and snapshot.frozen is not None:
            yield partition_finding(
                partition,
                ProblemKind.PARTITION_FROZEN,
                f"frozen: {snapshot.frozen.reason}; `rlm partition adopt` ends it",
            )
        copy = self._partition_tasks.copy.statuses.get(key)
        if copy is not None:
            yield from copy.findings()
        expiry = self._partition_tasks.expiry.statuses.get(key)
        yield from expiry_findings(partition, expiry.held if expiry else None)
        cleanup = self._partition_tasks.cleanup.statuses.get(key)
        for text in cleanup.alarms if cleanup else ():
            yield partition_finding(partition, ProblemKind.CLEANUP_REFUSED, text)
        if key in self._losses.partitions:
            finished = self._ledger.ledger(key).in_state(_FINISHED)
            ids = {one.metadata.segment_id.id for one in finished}
            for text in self._losses.alarms(key, ids):
                yield partition_finding(partition, ProblemKind.SEGMENT_LOST, text)

    def _copy_observation(self, row: LedPartition) -> CopyObservation:
        key = row.topic_id_partition.key
        copy = self._partition_tasks.copy.statuses.get(key)
        if copy is not None and copy.leader_epoch != row.leader_epoch:
            copy = None
        return CopyObservation(
            partition=row.topic_id_partition.topic_partition,
            led_since_ms=self._led_since_ms(row),
            measure=None if copy is None else _measure(copy),
            failure=_failure(self._partition_tasks.copy_pool, key),
            is_running=self._partition_tasks.copy_pool.is_running(key),
            is_waiting=self._partition_tasks.copy_pool.is_waiting(key),
            service_copied_at_ms=self._partition_tasks.copy.copied_at_ms,
        )

    def _led_since_ms(self, row: LedPartition) -> int:
        key, now_ms = row.topic_id_partition.key, self._clock.monotonic_ms()
        epoch, since_ms = self._led_since.get(key, (row.leader_epoch, now_ms))
        if epoch != row.leader_epoch:
            epoch, since_ms = row.leader_epoch, now_ms
        self._led_since[key] = epoch, since_ms
        return since_ms

    def _trim_observation(self, row: LedPartition, now_ms: int) -> TrimObservation:
        key = row.topic_id_partition.key
        trim = self._partition_tasks.trim.statuses.get(key)
        excess = self._excess_bytes(row)
        still = self._stands_still(row, excess, now_ms)
        return TrimObservation(
            partition=row.topic_id_partition.topic_partition,
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
        key, snapshot = row.topic_id_partition.key, self._snapshots.of(row)
        if snapshot is None:
            return 0
        counted = self._excess.get(key)
        if counted is None or counted[0] is not snapshot:
            counted = self._excess[key] = snapshot, _excess_bytes(snapshot, self._clock.now_ms())
        return counted[1]

    def _stands_still(self, row: LedPartition, excess: int, now_ms: int) -> _Still | None:
        key, snapshot = row.topic_id_partition.key, self._snapshots.of(row)
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
    found = pool.last_errors.get(key)
    return None if found is None else Failure(error=found.error, since_ms=found.since_ms)


def _excess_bytes(snapshot: PartitionSnapshot, now_ms: int) -> int:
    """Bytes of closed segments that local retention would drop if all of them were copied."""
    if snapshot.topic.record is None or snapshot.topic.record.mode != "tier":
        return 0
    start = snapshot.watermarks.log_start_offset
    target = retention_target(
        snapshot.log.segments,
        effective_local_retention(retention_of(snapshot.topic.record)),
        local_size_bytes=snapshot.log.size_bytes,
        local_log_start_offset=start,
        now_ms=now_ms,
    )
    return sum(
        segment.size_bytes
        for segment in snapshot.log.segments
        if segment.next_offset is not None and start < segment.next_offset <= target
    )
