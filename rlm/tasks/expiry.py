"""The expiry task: ends what total retention no longer keeps, in the order of G4.

    snapshot -> plan -> another snapshot, planned again -> remote log start raised, read back
    -> the segments below it deleted (tasks/segment_deletion)

What an interrupted run left below the remote log start is deleted by the next one, here or at the
next leader. The broker's own copy of ended records is deleted by the trim task, where the topic is
in mode tier. Any doubt drops the plan.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

import structlog

from kip405.errors import Fenced
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.expiry import ExpiryPlan, ExpiryView, Held, plan_expiry, refuse_expiry
from rlm.plans.retention import retention_in_force
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots, deletion_guards
from rlm.tasks.audit_log import Audit
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.copy_attempt import LiveAttempts
from rlm.tasks.segment_deletion import DeletionPermit, Deletions, SegmentDeleter
from rlmm.settings_records import CAUSE_RETENTION, STOPS_DELETE, TotalRetention

log = structlog.get_logger()
CAUSE_ENDED = "below the remote log start"
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirySettings:
    """`most_percent`: remote.delete.max.percent."""

    most_percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryStatus:
    """Result of the last run. `held`: why nothing (more) goes; the rest is of the last run that
    deleted something, None = none did since this process leads the partition.
    """

    held: Held
    deleted_at_ms: int | None = None
    deleted_segments: int = 0
    deleted_bytes: int = 0


class Deleted(Protocol):
    """Counts segments that expiry deleted."""

    def __call__(self, topic: str, *, segments: int, size_bytes: int) -> None: ...


class ExpiryTask:
    """Expires segments of the partitions its service leads."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        ledger: Ledger,
        settings: Settings,
        starts: LogStarts,
        deleter: SegmentDeleter,
        live: LiveAttempts,
        audit: Audit,
        clock: Clock,
        time: CertainTime,
        config: ExpirySettings,
        deleted: Deleted,
        failed: Callable[[str], None],
    ) -> None:
        """`failed` is called with the topic of a run in which a deletion failed."""
        self._snapshots = snapshots
        self._ledger = ledger
        self._settings = settings
        self._starts = starts
        self._deleter = deleter
        self._live = live
        self._audit = audit
        self._clock = clock
        self._time = time
        self._config = config
        self._deleted = deleted
        self._failed = failed
        self._completed: dict[PartitionKey, TotalRetention] = {}
        self._statuses: dict[PartitionKey, ExpiryStatus] = {}

    @property
    def statuses(self) -> Mapping[PartitionKey, ExpiryStatus]:
        return MappingProxyType(self._statuses)

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        for kept in (self._completed, self._statuses):
            kept.pop(key, None)

    def plan(self, snapshot: PartitionSnapshot) -> ExpiryPlan:
        """What a run would do now by this snapshot; changes nothing."""
        held = self.refusal(snapshot)
        start = snapshot.remote_log_start_offset
        if held is not None or start is None:
            return _nothing(start, held or plan_expiry(self._view(snapshot)).held)
        return plan_expiry(self._view(snapshot))

    async def run(self, led: LedPartition) -> None:
        """One run for one partition; errors as `run_on`."""
        await self.run_on(await self._snapshots.take(led))

    async def run_on(self, snapshot: PartitionSnapshot) -> bool:
        """The same with a snapshot that is fresh; whether it changed anything.

        Fenced: stopped, led elsewhere, or what is known changed. Unavailable: a store, the broker
        or a topic of ours does not answer; the next run continues.
        """
        first = self.plan(snapshot)
        self._note(snapshot, first.held)
        if not (first.raises or first.segments):
            self._complete(snapshot, first)
            return False
        fresh = await self._snapshots.take(snapshot.led)
        plan = self.plan(fresh)
        self._note(fresh, plan.held)
        if plan.new_start < first.new_start:
            raise Fenced(
                f"{fresh.led.topic_id_partition}: the remote log may start at {plan.new_start} "
                f"by now, {first.new_start} was planned ({plan.held.words})"
            )
        if plan.raises:
            await self._raise_start(fresh, plan)
        await self._delete(fresh, plan)
        self._complete(fresh, plan)
        return True

    async def _raise_start(self, snapshot: PartitionSnapshot, plan: ExpiryPlan) -> None:
        retention = self._retention(snapshot)
        await self._starts.raise_to(
            snapshot.led.topic_id_partition,
            plan.new_start,
            leader_epoch=snapshot.led.leader_epoch,
            cause=CAUSE_RETENTION,
            check=partial(self._check_decision, snapshot, retention),
            retention=retention,
        )

    async def _check_decision(self, snapshot: PartitionSnapshot, retention: TotalRetention) -> None:
        """Right before the start moves: leadership, retention, clocks and freezes are as they
        were.
        """
        await self._snapshots.check_leadership(snapshot.led)
        held = self.refusal(snapshot)
        if held is None and isinstance(now_ms := self._time.now_ms(), Held):
            held = now_ms
        if held is not None:
            raise Fenced(f"{snapshot.led.topic_id_partition}: {held.words}")
        record = self._settings.view.topic(snapshot.key.topic_id)
        if record is None or retention_in_force(record) != retention:
            raise Fenced(f"{snapshot.led.topic_id_partition}: retention was changed")

    async def _delete(self, snapshot: PartitionSnapshot, plan: ExpiryPlan) -> None:
        permit = DeletionPermit(
            leader_epoch=snapshot.led.leader_epoch,
            refusal=partial(self._refusal_text, snapshot),
            check_right=partial(self._snapshots.check_leadership, snapshot.led),
            check_reason=self._check_ended,
            may_be_written=lambda one: one.state is not _FINISHED,
            record=partial(
                self._audit.segments_deleted,
                cause=CAUSE_RETENTION if plan.raises else CAUSE_ENDED,
                retention=self._retention(snapshot),
            ),
        )
        result = await self._deleter.delete(plan.segments, permit)
        self._count(snapshot, result)
        if result.stopped is not None or result.store_errors:
            self._failed(snapshot.led.topic_id_partition.topic)
        if result.stopped is not None:
            raise result.stopped
        for error in result.store_errors:
            raise error

    def _count(self, snapshot: PartitionSnapshot, result: Deletions) -> None:
        if not result.deleted:
            return
        topic = snapshot.led.topic_id_partition.topic
        size_bytes = sum(one.segment_size_bytes for one in result.deleted)
        self._deleted(topic, segments=len(result.deleted), size_bytes=size_bytes)
        status = self._statuses.get(snapshot.key)
        if status is not None:  # it is led here
            self._statuses[snapshot.key] = replace(
                status,
                deleted_at_ms=self._clock.now_ms(),
                deleted_segments=len(result.deleted),
                deleted_bytes=size_bytes,
            )
        log.info(
            "segments_expired",
            topic=topic,
            partition=snapshot.led.topic_id_partition.partition,
            segments=len(result.deleted),
            size_bytes=size_bytes,
        )

    async def _check_ended(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Fenced unless it lies below the durable remote log start (H2)."""
        start = self._settings.view.remote_log_start(metadata.topic_id_partition.key)
        if start is None or metadata.next_offset > start:
            raise Fenced(f"{metadata.segment_id} is not below the remote log start {start}")

    def _refusal_text(self, snapshot: PartitionSnapshot) -> str | None:
        held = self.refusal(snapshot)
        if held is None:
            return None
        return f"{snapshot.led.topic_id_partition}: {held.words}"

    def refusal(self, snapshot: PartitionSnapshot) -> Held | None:
        """Why nothing may be deleted now, by settings and ledger as they are; None = it may."""
        record = self._settings.view.topic(snapshot.key.topic_id)
        is_enabled = record is not None and record.state == "enabled"
        return refuse_expiry(
            deletion_guards(snapshot, self._ledger, self._settings, STOPS_DELETE),
            replace(snapshot.topic.state, enabled=is_enabled),
        )

    def _view(self, snapshot: PartitionSnapshot) -> ExpiryView:
        retention = self._retention(snapshot)
        view = self._settings.view
        return ExpiryView(
            ledger=snapshot.ledger,
            lineage=snapshot.lineage,
            log_end_offset=snapshot.log_end_offset,
            remote_log_start_offset=snapshot.remote_log_start_offset,
            remote_log_start_epoch=view.remote_log_start_epoch(snapshot.key),
            log=snapshot.log,
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            holes=view.holes(snapshot.key),
            copying=frozenset[Uuid](self._live),
            retention=retention,
            now_ms=self._time.now_ms(),
            most_percent=self._most_percent(snapshot.key, retention),
        )

    def _retention(self, snapshot: PartitionSnapshot) -> TotalRetention:
        record = snapshot.topic.record
        return TotalRetention() if record is None else retention_in_force(record)

    def _most_percent(self, key: PartitionKey, retention: TotalRetention) -> int | None:
        """No limit where retention was changed since the last complete run of this process."""
        before = self._completed.get(key, retention)
        return self._config.most_percent if before == retention else None

    def _complete(self, snapshot: PartitionSnapshot, plan: ExpiryPlan) -> None:
        if self.refusal(snapshot) is None and plan.remote_log_start_offset >= 0:
            self._completed[snapshot.key] = self._retention(snapshot)

    def _note(self, snapshot: PartitionSnapshot, held: Held) -> None:
        before = self._statuses.get(snapshot.key)
        self._statuses[snapshot.key] = (
            ExpiryStatus(held=held) if before is None else replace(before, held=held)
        )


def _nothing(start: int | None, held: Held) -> ExpiryPlan:
    known = -1 if start is None else start
    return ExpiryPlan(remote_log_start_offset=known, new_start=known, segments=(), held=held)
