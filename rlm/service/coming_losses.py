"""When each partition that we lead loses records to the broker's own retention (H15).

By the last snapshot; computed once for each, since it reads all segments. Never waits.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from kip405.ids import PartitionKey
from rlm.api.per_partition import FOREVER_MS, PerPartition, columns
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.coverage import covered
from rlm.plans.loss import ComingLoss, LossView, coming_loss
from rlm.plans.problem_rules import partition_finding
from rlm.plans.problems import Finding, ProblemKind
from rlm.remote_log.snapshots import PartitionSnapshot


class LastSnapshots(Protocol):
    """Snapshots as they were last taken (rlm.remote_log.snapshot_cache)."""

    @property
    def snapshots(self) -> Mapping[PartitionKey, PartitionSnapshot]: ...

    def of(self, led: LedPartition) -> PartitionSnapshot | None: ...


class ComingLosses:
    """`lead_ms` is problem.loss.ms."""

    def __init__(self, snapshots: LastSnapshots, clock: Clock, lead_ms: int) -> None:
        self._snapshots = snapshots
        self._clock = clock
        self._lead_ms = lead_ms
        self._known: PerPartition[ComingLoss | None] = PerPartition(
            lambda row, _snapshot: (self.of(row), FOREVER_MS)
        )

    def of(self, led: LedPartition) -> ComingLoss | None:
        """The first loss of a partition; None where none is coming, or that is not known."""
        snapshot = self._snapshots.of(led)
        return None if snapshot is None else _coming_loss(snapshot, self._clock.now_ms())

    def of_all(self, led: Sequence[LedPartition]) -> Sequence[ComingLoss | None]:
        """The same of all partitions that we lead; what was known of others is forgotten."""
        keys = [row.key for row in led]
        return self._known.read(keys, led, *columns(keys, self._snapshots.snapshots))

    def findings(self, led: Sequence[LedPartition]) -> Iterator[Finding]:
        """The losses that come soon, of all partitions that we lead."""
        now_ms = self._clock.now_ms()
        for row, loss in zip(led, self.of_all(led), strict=True):
            if loss is not None and loss.is_near(now_ms, self._lead_ms):
                text = loss.words(now_ms)
                yield partition_finding(row.topic_partition, ProblemKind.LOSS_NEAR, text)


def _coming_loss(snapshot: PartitionSnapshot, now_ms: int) -> ComingLoss | None:
    record = snapshot.topic.record
    if record is None or record.state != "enabled":
        return None
    local_start = snapshot.watermarks.log_start_offset
    return coming_loss(
        LossView(
            segments=snapshot.log.segments,
            covered=covered(snapshot.ledger, snapshot.lineage, snapshot.log_end_offset),
            start=max(local_start, snapshot.remote_log_start_offset or 0),
            retention=snapshot.topic.broker_retention,
            total_ms=record.retention_ms,
            now_ms=now_ms,
        )
    )
