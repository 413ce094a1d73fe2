"""Deletes segments of dead histories that others have replaced (H8), of the partitions led here.

`rlm/plans/unreferenced.py` decides, twice: by the snapshot of a run, and by another one right
before anything happens. The segments that have the same offsets must be whole in their stores now
(H11). Then `rlm/tasks/segment_deletion.py` deletes, and the reason is checked again, with a third
snapshot, between DELETE_SEGMENT_STARTED and the objects. What an interruption leaves is adopted or
deleted by cleanup.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from kip405.errors import Fenced
from kip405.ids import MAX_OFFSET, PartitionKey
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata
from rlm.broker.leadership import LedPartition
from rlm.plans.expiry import Held
from rlm.plans.freeze import NONE_ACCEPTED, Accepted
from rlm.plans.unreferenced import (
    UnreferencedPlan,
    UnreferencedView,
    is_replaced,
    orphans_of,
    plan_unreferenced,
)
from rlm.remote_log.ports import Settings
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots
from rlm.tasks.audit_log import Audit
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.copy_attempt import LiveAttempts
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.expiry import ExpiryTask
from rlm.tasks.segment_deletion import DeletionPermit, SegmentDeleter
from rlmm.ledger import SegmentEntry

log = structlog.get_logger()
CAUSE_UNREFERENCED = "unreferenced: of another history, and replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreferencedSettings:
    """`grace_ms`: remote.unreferenced.grace.ms; `max_orphans`: how many go without an operator."""

    grace_ms: int
    max_orphans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The orphans of a partition, by one version of its ledger and one lineage."""

    version: int
    lineage: Lineage
    orphans: tuple[SegmentEntry, ...]


class UnreferencedTask:
    """One step of the expiration task. Refusals are those of expiry."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        settings: Settings,
        expiry: ExpiryTask,
        evidence: StoreEvidence,
        deleter: SegmentDeleter,
        live: LiveAttempts,
        audit: Audit,
        time: CertainTime,
        config: UnreferencedSettings,
    ) -> None:
        self._snapshots = snapshots
        self._settings = settings
        self._expiry = expiry
        self._evidence = evidence
        self._deleter = deleter
        self._live = live
        self._audit = audit
        self._time = time
        self._config = config
        self._held: dict[PartitionKey, str] = {}
        self._known: dict[PartitionKey, _Known] = {}

    async def run_on(self, snapshot: PartitionSnapshot) -> bool:
        """One run by a fresh snapshot; whether it changed anything. Errors as ExpiryTask.run_on."""
        first = self.plan(snapshot)
        if not first.segments:
            return False
        fresh = await self._snapshots.take(snapshot.led)
        plan = self.plan(fresh)
        segments = [one for one in plan.segments if one in first.segments]
        missing = await self._evidence.missing(plan.replacements)
        for why in missing.values():
            raise Fenced(f"{snapshot.led.topic_id_partition}: nothing is given up: {why}")
        if segments:
            await self._delete(fresh, segments)
        return True

    def plan(self, snapshot: PartitionSnapshot) -> UnreferencedPlan:
        """What a run would delete now by this snapshot; changes nothing."""
        view = self._view(snapshot) if self._orphans(snapshot) else None
        plan = UnreferencedPlan(segments=()) if view is None else plan_unreferenced(view)
        self._note(snapshot, plan.held)
        return plan

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._held.pop(key, None)
        self._known.pop(key, None)

    def _orphans(self, snapshot: PartitionSnapshot) -> tuple[SegmentEntry, ...]:
        """Worked out again only where the ledger or the lineage has changed."""
        known, version = self._known.get(snapshot.key), snapshot.ledger.version
        if known is None or (known.version, known.lineage) != (version, snapshot.lineage):
            found = orphans_of(snapshot.ledger, snapshot.lineage)
            known = _Known(version=version, lineage=snapshot.lineage, orphans=found)
            self._known[snapshot.key] = known
        return known.orphans

    def _view(self, snapshot: PartitionSnapshot) -> UnreferencedView | None:
        """None where nothing may be deleted, or the time is not certain."""
        now_ms, start = self._time.now_ms(), snapshot.remote_log_start_offset
        if self._expiry.refusal(snapshot) is not None or isinstance(now_ms, Held) or start is None:
            return None
        record = self._settings.view.divergence(snapshot.key)
        return UnreferencedView(
            ledger=snapshot.ledger,
            lineage=snapshot.lineage,
            local=snapshot.log.lineage,
            orphans=self._orphans(snapshot),
            remote_log_start_offset=start,
            copying=frozenset(self._live),
            accepted=Accepted(
                epoch=record.epoch if record else NONE_ACCEPTED,
                end_offset=record.offset if record else MAX_OFFSET,
            ),
            now_ms=now_ms,
            grace_ms=self._config.grace_ms,
            max_orphans=self._config.max_orphans,
        )

    def _note(self, snapshot: PartitionSnapshot, held: str | None) -> None:
        """Log why segments are kept, once."""
        if held is None:
            self._held.pop(snapshot.key, None)
        elif self._held.get(snapshot.key) != held:
            self._held[snapshot.key] = held
            partition = snapshot.led.topic_id_partition
            log.warning("unreferenced_segments_kept", partition=str(partition), why=held)

    async def _delete(
        self, snapshot: PartitionSnapshot, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        permit = DeletionPermit(
            leader_epoch=snapshot.led.leader_epoch,
            refusal=partial(self._refusal_text, snapshot),
            check_right=partial(self._snapshots.check_leadership, snapshot.led),
            check_reason=partial(self._check_replaced, snapshot.led),
            may_be_written=lambda _: False,
            record=partial(self._audit.segments_deleted, cause=CAUSE_UNREFERENCED),
        )
        result = await self._deleter.delete(segments, permit)
        for one in result.deleted:
            log.info(
                "unreferenced_segment_deleted",
                partition=str(snapshot.led.topic_id_partition),
                segment_id=str(one.segment_id.id),
                start_offset=one.start_offset,
            )
        if result.stopped is not None:
            raise result.stopped
        for error in result.store_errors:
            raise error

    def _refusal_text(self, snapshot: PartitionSnapshot) -> str | None:
        held = self._expiry.refusal(snapshot)
        return None if held is None else f"{snapshot.led.topic_id_partition}: {held.words}"

    async def _check_replaced(self, led: LedPartition, metadata: RemoteLogSegmentMetadata) -> None:
        """Fenced unless another snapshot shows the same, which does not list it as finished."""
        view = self._view(await self._snapshots.take(led))
        if view is None or not is_replaced(metadata, view):
            raise Fenced(f"{metadata.segment_id} is not replaced any more")
