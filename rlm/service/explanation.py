"""Collects what `rlm explain` shows: one new snapshot of a partition, and what the plans say of it.

Nothing is changed, and no store is asked: what is known against a copy is what reads, trims and
verifications have found. rlm.plans.explanation decides what follows.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kip405.errors import Invalid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.coverage import unsettled_end
from rlm.plans.explanation import ExplainView, Explanation, RemoteCopy, explain
from rlm.remote_log.log_starts import sign_of_start
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, SnapshotTaker
from rlm.service.tasks import PartitionTasks
from rlm.stores.reports import StoreStatus
from rlm.tasks.evidence import store_of
from rlm.tasks.lost_segments import LostSegments
from rlm.tasks.pool import TaskPool
from rlmm.settings_records import StartRecord
from rsm_plugins.layout.keys import objects_stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations:
    """Implements rlm.api.ports.Explanations; `stores` is what the service knows of its stores."""

    cluster_id: str
    snapshots: SnapshotTaker
    settings: Settings
    ledger: Ledger
    tasks: PartitionTasks
    lost: LostSegments
    stores: Callable[[], Sequence[StoreStatus]]
    clock: Clock

    async def explain(self, led: LedPartition, offset: int | None) -> Explanation:
        """See rlm.api.ports.Explanations."""
        planned_at_ms = self.clock.monotonic_ms()
        snapshot = await self.snapshots.take(led)
        trim = await self.tasks.trim.planned(snapshot, planned_at_ms)
        ledger, key = snapshot.ledger, snapshot.key
        start, local_start = snapshot.remote_log_start_offset, snapshot.watermarks.log_start_offset
        total, trimmed = ledger.finished_total, self.tasks.trim.statuses.get(key)
        alarm = None if trimmed is None else trimmed.alarm
        view = ExplainView(
            partition=led.topic_partition,
            leader=snapshot.led.leader,
            leader_epoch=snapshot.led.leader_epoch,
            is_enabled=snapshot.topic.state.enabled,
            remote_log_start_offset=start,
            remote_log_start_cause=self._cause(snapshot),
            remote_next_offset=ledger.highest_end(
                snapshot.lineage, snapshot.log_end_offset, disputed=True
            ),
            remote_segments=total.segments,
            remote_size_bytes=total.size_bytes,
            local_log_start_offset=local_start,
            high_watermark=snapshot.watermarks.high_watermark,
            last_stable_offset=snapshot.watermarks.last_stable_offset,
            log_end_offset=snapshot.log_end_offset,
            segments=snapshot.log.segments,
            holes=self.settings.view.holes(key),
            unsettled_end=unsettled_end(
                ledger,
                snapshot.lineage,
                snapshot.log_end_offset,
                start=start or 0,
                next_offset=local_start,
                trusted=self.ledger.problem is None,
            ),
            frozen=self._frozen(snapshot),
            copy=self.tasks.copy.planned(snapshot),
            copy_failure=_failure(self.tasks.copy_pool, led),
            trim=trim,
            trim_failure=_failure(self.tasks.cleanup_pool, led) if alarm is None else alarm,
            copy_of_offset=None if offset is None else self._copy_of(snapshot, offset),
            offset_epoch=None if offset is None else snapshot.lineage.epoch_for_offset(offset),
        )
        return explain(view, offset)

    def _cause(self, snapshot: PartitionSnapshot) -> str:
        [adopted] = self.settings.view.adopted(StartRecord.KIND, [snapshot.key])
        record = adopted.record if adopted else None
        return record.cause if isinstance(record, StartRecord) else ""

    def _frozen(self, snapshot: PartitionSnapshot) -> str:
        """Readers get nothing remote either while the remote log start is lost (H2)."""
        if snapshot.frozen is not None:
            return snapshot.frozen.reason
        if snapshot.remote_log_start_offset is not None:
            return ""
        sign = sign_of_start(self.settings.view, snapshot.ledger)
        return "" if sign is None else f"it has {sign}, and its remote log start is lost"

    def _copy_of(self, snapshot: PartitionSnapshot, offset: int) -> RemoteCopy | None:
        ledger = snapshot.ledger
        found = ledger.usable_segment_for(snapshot.lineage, snapshot.log_end_offset, offset)
        if found is None or not found.metadata.start_offset <= offset < found.next_offset:
            return None
        metadata = found.metadata  # of a disputed one, that of its lawful record
        store, lost = self._store(metadata), self._why_lost(snapshot, metadata)
        return RemoteCopy(
            entry=replace(ledger.entries[metadata.segment_id.id], metadata=metadata),
            next_offset=found.next_offset,
            store="" if store is None else store.name,
            objects_stem=objects_stem(metadata, self.cluster_id),
            problem=lost or _store_problem(store),
            is_lost=bool(lost),
        )

    def _store(self, metadata: RemoteLogSegmentMetadata) -> StoreStatus | None:
        with suppress(Invalid):
            store_id = store_of(metadata)
            return next((one for one in self.stores() if one.store_id == store_id), None)
        return None

    def _why_lost(self, snapshot: PartitionSnapshot, metadata: RemoteLogSegmentMetadata) -> str:
        """Empty = nothing is known against it."""
        segment = metadata.segment_id.id
        if (damage := self.lost.damaged(snapshot).get(segment)) is not None:
            return f"its segment is damaged: {damage}"
        if any(one.segment_id.id == segment for one in self.lost.suspects(snapshot)):
            return "its segment was not found in its store"
        return ""


def _store_problem(store: StoreStatus | None) -> str:
    if store is None:
        return "the service does not know its store"
    return f"store {store.name or store.store_id}: {store.problem}" if store.problem else ""


def _failure(pool: TaskPool, led: LedPartition) -> str:
    failure = pool.last_errors.get(led.key)
    return "" if failure is None else failure.message
