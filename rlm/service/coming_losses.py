"""When each partition that we lead loses records to the broker's own retention (H15).

By the last snapshot; computed once for each, since it reads all segments. Never waits.
"""

from collections.abc import Container, Iterator
from typing import Protocol

from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.coverage import cover
from rlm.plans.loss import ComingLoss, LossView, coming_loss
from rlm.plans.problem_rules import partition_finding
from rlm.plans.problems import Finding, ProblemKind
from rlm.remote_log.snapshots import PartitionSnapshot


class LastSnapshots(Protocol):
    """Snapshots as they were last taken (rlm.remote_log.snapshot_cache)."""

    def of(self, led: LedPartition) -> PartitionSnapshot | None: ...


class ComingLosses:
    """`lead_ms` is problem.loss.ms."""

    def __init__(self, snapshots: LastSnapshots, clock: Clock, lead_ms: int) -> None:
        self._snapshots = snapshots
        self._clock = clock
        self._lead_ms = lead_ms
        self._known: dict[PartitionKey, tuple[PartitionSnapshot, ComingLoss | None]] = {}

    def in_ms(self, led: LedPartition) -> int | None:
        """Time left until the first loss; None where none is coming, or that is not known."""
        loss = self._of(led)
        return None if loss is None else loss.in_ms(self._clock.now_ms())

    def findings(self, led: LedPartition) -> Iterator[Finding]:
        """A loss that comes soon."""
        loss = self._of(led)
        if loss is None:
            return
        now_ms = self._clock.now_ms()
        if loss.is_near(now_ms, self._lead_ms):
            yield partition_finding(led.topic_partition, ProblemKind.LOSS_NEAR, loss.words(now_ms))

    def keep(self, led: Container[PartitionKey]) -> None:
        """Forget all other partitions."""
        for key in [key for key in self._known if key not in led]:
            del self._known[key]

    def _of(self, led: LedPartition) -> ComingLoss | None:
        snapshot = self._snapshots.of(led)
        if snapshot is None or snapshot.topic.record is None:
            return None
        known = self._known.get(led.key)
        if known is None or known[0] is not snapshot:
            loss = _coming_loss(snapshot, self._clock.now_ms())
            known = self._known[led.key] = snapshot, loss
        return known[1]


def _coming_loss(snapshot: PartitionSnapshot, now_ms: int) -> ComingLoss | None:
    record = snapshot.topic.record
    if record is None or record.state != "enabled":
        return None
    local_start = snapshot.watermarks.log_start_offset
    return coming_loss(
        LossView(
            segments=snapshot.log.segments,
            covered=cover(snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)),
            start=max(local_start, snapshot.remote_log_start_offset or 0),
            retention=snapshot.topic.broker_retention,
            total_ms=record.retention_ms,
            now_ms=now_ms,
        )
    )
