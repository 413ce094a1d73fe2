"""The trim task: the only code that deletes acknowledged records from a broker (G1).

    no earlier DeleteRecords may still be executed (H41)
    -> snapshot -> plan -> objects and store checked now (H11) -> first trim of an epoch: same bytes
    (H13) -> the lineage that the log loses is published (H8) -> intent written, read back (H2)
    -> a connection on which our broker answers -> snapshot and plan again, by the same rules (H5)
    -> DeleteRecords, at once -> its outcome

Any doubt drops the plan; the next run makes another one. Also detects moves of the broker's log
start that are not ours (H1): they only raise an alarm.
"""

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import structlog

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP
from kip405.errors import Corrupt, Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.broker.deletions import PreparedDeletion, RecordDeletions
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.holes import not_settled
from rlm.plans.offload import OffloadPolicy
from rlm.plans.retention import local_retention
from rlm.plans.services import heartbeats, live_nodes
from rlm.plans.trim import (
    EndedPlan,
    Held,
    NoTrim,
    TrimGuards,
    TrimOffsets,
    TrimPlan,
    is_hold_overdue,
    plan_trim,
    why_not_confirmed,
)
from rlm.remote_log.ports import Broker, Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots, deletion_guards, gap_view
from rlm.tasks.cluster_evidence import ClusterAnswers, ClusterEvidence
from rlm.tasks.evidence import StoreEvidence, store_of
from rlm.tasks.lost_segments import LostSegments
from rlm.tasks.trimmed_lineage import TrimmedLineage
from rlmm.settings_records import STOPS_TRIM, TopicRecord, TrimRecord

log = structlog.get_logger()
_FRESH_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimSettings:
    """Intervals in ms: trim.plan.deadline.ms, trim.check.max.age.ms, trim.hold.max.ms, age of a
    dead heartbeat; `delete_hold_ms`: how long the broker may wait for followers.
    """

    plan_deadline_ms: int
    check_max_age_ms: int
    hold_max_ms: int
    heartbeat_max_age_ms: int
    delete_hold_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimStatus:
    """Result of the last run. `foreign_log_start`: where another party moved the log start.

    `alarm`: what stopped a trim that was due and needs an operator, until one succeeds.
    """

    leader_epoch: int
    reason: str
    detail: str
    local_log_start_offset: int
    trimmed_to: int | None = None
    foreign_log_start: int | None = None
    alarm: str | None = None


class TrimTask:
    """Trims the partitions its service leads; a job of the cleanup pool calls `run`."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        broker: Broker,
        deletions: RecordDeletions,
        ledger: Ledger,
        settings: Settings,
        evidence: StoreEvidence,
        lost: LostSegments,
        cluster: ClusterEvidence,
        offload: OffloadPolicy,
        namers: Callable[[], Collection[int]],
        clock: Clock,
        config: TrimSettings,
    ) -> None:
        """`namers`: see TrimGuards."""
        self._namers = namers
        self._snapshots = snapshots
        self._broker = broker
        self._deletions = deletions
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._lost = lost
        self._cluster = cluster
        self._offload = offload
        self._clock = clock
        self._config = config
        self._lineage = TrimmedLineage(settings)
        self._short_since_ms: dict[PartitionKey, int] = {}
        self._proven_epoch: dict[PartitionKey, int] = {}
        self._statuses: dict[PartitionKey, TrimStatus] = {}

    @property
    def statuses(self) -> Mapping[PartitionKey, TrimStatus]:
        return MappingProxyType(self._statuses)

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        for kept in (self._short_since_ms, self._proven_epoch, self._statuses):
            kept.pop(key, None)

    async def run(self, led: LedPartition, keep_local_bytes: int | None = None) -> None:
        """One run for one partition. Fenced and Unavailable drop the plan. `keep_local_bytes`: how
        much stays at least, instead of local retention; None = as the topic's settings say.
        """
        await self.settle(led)
        planned_at_ms = self._clock.monotonic_ms()
        snapshot = await self._snapshots.take(led)
        plan = await self._plan(snapshot, planned_at_ms, keep_local_bytes)
        if plan is not None:
            await self._carry_out(snapshot, plan)
        if isinstance(plan, EndedPlan) and keep_local_bytes is not None:
            await self.run(led, keep_local_bytes)  # what was asked for comes behind what has ended

    async def run_on(self, snapshot: PartitionSnapshot, planned_at_ms: int) -> bool:
        """The same on a snapshot begun at `planned_at_ms` (monotonic); whether anything was done.

        Where something is to be done and the snapshot is not fresh, it is planned on another one:
        much of the time that a plan has would be over.
        """
        plan = await self._plan(snapshot, planned_at_ms)
        if plan is None:
            return False
        if self._clock.monotonic_ms() - planned_at_ms > _FRESH_MS:
            await self.run(snapshot.led)
        else:
            await self._carry_out(snapshot, plan)
        return True

    async def settle(self, led: LedPartition) -> None:
        """Comes before every snapshot that an irreversible step is planned on.

        Unavailable while a DeleteRecords that was given up may still be executed (H41).
        """

        async def log_start() -> int:
            return await self._log_start(led)

        await self._deletions.settle(led.topic_partition, log_start)

    async def _plan(
        self, snapshot: PartitionSnapshot, planned_at_ms: int, keep_local_bytes: int | None = None
    ) -> TrimPlan | EndedPlan | None:
        """What is to be trimmed; None = nothing."""
        record = snapshot.topic.record
        plan = await self.planned(snapshot, planned_at_ms, keep_local_bytes)
        if record is None or plan is None:
            self._statuses.pop(snapshot.key, None)
            return None
        self._note(snapshot, record, plan)
        return None if isinstance(plan, Held) else plan

    async def planned(
        self, snapshot: PartitionSnapshot, planned_at_ms: int, keep_local_bytes: int | None = None
    ) -> TrimPlan | EndedPlan | Held | None:
        """What the rules say of a snapshot; nothing is changed. None: no settings, or no start."""
        record = snapshot.topic.record
        if record is None or snapshot.remote_log_start_offset is None:
            return None
        answers = await self._cluster.recent(snapshot.led.topic_id_partition, record)
        return self._decide(snapshot, record, answers, planned_at_ms, keep_local_bytes)

    async def _carry_out(self, snapshot: PartitionSnapshot, plan: TrimPlan | EndedPlan) -> None:
        """All evidence is checked once more (H5): an old snapshot drops the plan."""
        if isinstance(plan, TrimPlan):
            await self._see_copies(snapshot, plan)
            await self._lineage.publish(snapshot, plan)
            await self._write_intent(snapshot, plan)
        await self._delete(snapshot, plan)

    def _decide(
        self,
        snapshot: PartitionSnapshot,
        record: TopicRecord,
        answers: ClusterAnswers,
        planned_at_ms: int,
        keep_local_bytes: int | None,
    ) -> TrimPlan | EndedPlan | Held:
        """What the rules say of a snapshot and of guards that are read now."""
        guards = self._guards(snapshot, record, answers)
        offsets = self._offsets(snapshot, record, answers.share_group_start, keep_local_bytes)
        plan = plan_trim(guards, offsets, now_ms=self._clock.now_ms(), planned_at_ms=planned_at_ms)
        if isinstance(plan, TrimPlan) and is_hold_overdue(guards):
            led = snapshot.led
            log.warning(
                "trim_hold_overdue",
                **led.topic_partition._asdict(),
                isr=led.isr,
                replicas=led.replicas,
            )
        if not isinstance(plan, TrimPlan):
            return plan
        return self._gap(snapshot) or self._lineage.held(snapshot, plan) or plan

    def _gap(self, snapshot: PartitionSnapshot) -> Held | None:
        """Contiguity begins again behind a gap once it is on record (H15), not before."""
        found = not_settled(gap_view(snapshot, self._settings))
        if not found:
            return None
        start, end = found[0]
        return Held(reason=NoTrim.GAP_NOT_SETTLED, detail=f"from {start} to {end}")

    def _guards(
        self, snapshot: PartitionSnapshot, record: TopicRecord, answers: ClusterAnswers
    ) -> TrimGuards:
        return TrimGuards(
            deletion=deletion_guards(snapshot, self._ledger, self._settings, STOPS_TRIM),
            topic=snapshot.topic.state,
            mode_is_tier=record.mode == "tier",
            trim_on=record.trim,
            retention_bounded=snapshot.topic.retention_bounded or answers.retention_bounded,
            retention_unknown=answers.retention_unknown,
            replicas=snapshot.led.replicas,
            live_nodes=live_nodes(
                heartbeats(self._settings.view, self._clock.monotonic_ms()),
                max_age_ms=self._config.heartbeat_max_age_ms,
            ),
            namers=self._namers(),
            replicas_short_ms=self._short_for_ms(snapshot.led),
            hold_max_ms=self._config.hold_max_ms,
        )

    def _offsets(
        self,
        snapshot: PartitionSnapshot,
        record: TopicRecord,
        group_start: int | None,
        keep_local_bytes: int | None,
    ) -> TrimOffsets:
        remote_log_start_offset = snapshot.remote_log_start_offset or 0
        start = max(remote_log_start_offset, snapshot.watermarks.log_start_offset)
        end = self._contiguous_end(snapshot, start)
        kept_back = self._offload.kept_back(record, snapshot.ledger, self._clock.now_ms())
        return TrimOffsets(
            leader_epoch=snapshot.led.leader_epoch,
            lineage=snapshot.lineage,
            segments=snapshot.log.segments,
            local_size_bytes=snapshot.log.size_bytes,
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            remote_log_start_offset=remote_log_start_offset,
            remote_log_start_epoch=self._settings.view.remote_log_start_epoch(snapshot.key),
            high_watermark=snapshot.watermarks.high_watermark,
            last_stable_offset=snapshot.watermarks.last_stable_offset,
            contiguous_end=end,
            released_end=(
                self._contiguous_end(snapshot, start, without=kept_back) if kept_back else end
            ),
            share_group_start=group_start,
            retention=local_retention(record),
            keep_local_bytes=keep_local_bytes,
        )

    def _contiguous_end(
        self, snapshot: PartitionSnapshot, start: int, *, without: Container[Uuid] = ()
    ) -> int:
        """The end of copies and of ranges that our log does not hold. A recorded hole was in
        another log, or is an accepted loss: it never covers what this log still holds (H15).
        """
        holes = self._settings.view.holes(snapshot.key)
        return snapshot.ledger.contiguous_end(
            snapshot.lineage,
            snapshot.log_end_offset,
            start,
            snapshot.empty_segments(holes),
            without=without,
        )

    def _short_for_ms(self, led: LedPartition) -> int | None:
        """How long ISR has been smaller than the replicas, as observed by this process."""
        key = led.key
        if set(led.replicas) <= set(led.isr):
            self._short_since_ms.pop(key, None)
            return None
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._short_since_ms.setdefault(key, now_ms)

    async def _see_copies(self, snapshot: PartitionSnapshot, plan: TrimPlan) -> None:
        """All copies that the trim relies on are now in the right stores (H11), and ours (H13).

        A copy that is missing there does not count: other copies must hold its records.
        """
        copies = snapshot.undisputed_copies(plan.local_log_start_offset, plan.bound)
        try:
            self._check_readers(snapshot, copies)
            missing = dict(await self._evidence.missing(copies))
            self._lost.suspect(snapshot.key, missing)
            missing |= self._damaged(snapshot, copies)
            start = max(snapshot.remote_log_start_offset or 0, snapshot.watermarks.log_start_offset)
            if missing and self._contiguous_end(snapshot, start, without=missing) < plan.bound:
                raise NotFound("; ".join(missing.values()))
            seen = tuple(one for one in copies if one.segment_id.id not in missing)
            await self._prove_bytes(snapshot, plan, seen)
        except (NotFound, Corrupt, Invalid) as error:
            self._alarm(snapshot, f"trim to {plan.bound} refused: {error}")
            raise

    def _damaged(
        self, snapshot: PartitionSnapshot, copies: tuple[RemoteLogSegmentMetadata, ...]
    ) -> dict[Uuid, str]:
        damaged = self._lost.damaged(snapshot)
        return {
            one.segment_id.id: f"{one.segment_id} is damaged: {damaged[one.segment_id.id]}"
            for one in copies
            if one.segment_id.id in damaged
        }

    def _check_readers(
        self, snapshot: PartitionSnapshot, copies: tuple[RemoteLogSegmentMetadata, ...]
    ) -> None:
        """Unavailable unless the next possible leaders know all stores of what is trimmed."""
        needed = {store_of(metadata) for metadata in copies}
        for service, _ in self._settings.view.services():
            if service.node_id not in snapshot.led.replicas or service.stores is None:
                continue
            for store_id in sorted(needed - set(service.stores), key=str):
                raise Unavailable(
                    f"{snapshot.led.topic_id_partition}: the service of node {service.node_id} "
                    f"does not know store {store_id} (yet), where what is to be trimmed lies"
                )

    async def _prove_bytes(
        self,
        snapshot: PartitionSnapshot,
        plan: TrimPlan,
        copies: tuple[RemoteLogSegmentMetadata, ...],
    ) -> None:
        if not copies or self._proven_epoch.get(snapshot.key) == plan.leader_epoch:
            return  # without copies only segments of 0 bytes are trimmed
        newest = copies[-1]
        await self._evidence.check_same_bytes(
            self._broker,
            newest,
            offset=max(newest.start_offset, plan.local_log_start_offset),
            leader_epoch=plan.leader_epoch,
        )
        self._proven_epoch[snapshot.key] = plan.leader_epoch

    async def _write_intent(self, snapshot: PartitionSnapshot, plan: TrimPlan) -> None:
        known = self._settings.view.trim(snapshot.key)
        epoch = plan.leader_epoch
        if known is None or (known.bound, known.planned_epoch) != (plan.bound, epoch):
            record = TrimRecord(partition=snapshot.key, bound=plan.bound, planned_epoch=epoch)
            await self._settings.publish(record, epoch)

    async def _delete(self, snapshot: PartitionSnapshot, plan: TrimPlan | EndedPlan) -> None:
        """Check all once more, then at once send DeleteRecords to our own broker (H5, H41)."""
        left_ms = self._left_ms(snapshot, plan)
        partition = snapshot.led.topic_partition
        async with self._deletions.prepared(partition, within_ms=left_ms) as deletion:
            await self._check_again(snapshot, plan)
            low_watermark = await self._low_watermark(snapshot, plan, deletion)
        log.info(
            "local_log_trimmed" if isinstance(plan, TrimPlan) else "ended_records_deleted",
            **snapshot.led.topic_partition._asdict(),
            bound=plan.bound,
            low_watermark=low_watermark,
            leader_epoch=plan.leader_epoch,
        )
        self._amend(
            snapshot, trimmed_to=plan.bound, local_log_start_offset=low_watermark, alarm=None
        )

    async def _low_watermark(
        self, snapshot: PartitionSnapshot, plan: TrimPlan | EndedPlan, deletion: PreparedDeletion
    ) -> int:
        try:
            return await deletion.send(plan.bound, hold_ms=self._config.delete_hold_ms)
        except Unavailable:
            # Applied here while a live follower lags, or not at all: the log start shows it (H5).
            log_start = await self._log_start(snapshot.led)
            if log_start < plan.bound:
                raise
            return log_start

    async def _log_start(self, led: LedPartition) -> int:
        partition = led.topic_id_partition
        answer = await self._broker.list_offset(
            partition.topic,
            partition.partition,
            EARLIEST_TIMESTAMP,
            leader_epoch=led.leader_epoch,
        )
        return answer.offset

    async def _check_again(self, snapshot: PartitionSnapshot, plan: TrimPlan | EndedPlan) -> None:
        """Take and plan on another snapshot, by the same rules: the plan must be the same (H5).

        Nothing is awaited between that plan and its return except what a snapshot waits for after
        its last request; that wait is bounded.
        """
        partition = snapshot.led.topic_id_partition
        is_trim = isinstance(plan, TrimPlan)  # then all brokers are asked, which may take long
        answers = await self._cluster.now(partition) if is_trim else ClusterAnswers()
        asked_at_ms = self._clock.monotonic_ms()
        fresh = await self._snapshots.take(snapshot.led)
        record = self._settings.view.topic(snapshot.key.topic_id)
        if record is None or fresh.remote_log_start_offset is None:
            raise Fenced(f"{partition}: the topic's settings are gone")
        keep = plan.keep_local_bytes if isinstance(plan, TrimPlan) else None
        again = self._decide(fresh, record, answers, plan.planned_at_ms, keep)
        why = why_not_confirmed(plan, again) or self._why_other_evidence(snapshot, fresh, plan)
        if why is not None:
            if isinstance(again, Held):
                self._note(fresh, record, again)
            raise Fenced(f"{partition}: {why}")
        age_ms = self._clock.monotonic_ms() - asked_at_ms
        if age_ms > self._config.check_max_age_ms:
            raise Unavailable(
                f"{partition}: the last check before a trim took {age_ms} ms, at most "
                f"{self._config.check_max_age_ms} (trim.check.max.age.ms)"
            )
        self._left_ms(snapshot, plan)

    def _why_other_evidence(
        self, snapshot: PartitionSnapshot, fresh: PartitionSnapshot, plan: TrimPlan | EndedPlan
    ) -> str | None:
        """What was proven for the first snapshot's log and copies must hold for the second's."""
        if fresh.log.lineage != snapshot.log.lineage:
            return "leader epochs changed since the plan"
        if isinstance(plan, EndedPlan):
            return None
        copies = fresh.undisputed_copies(plan.local_log_start_offset, plan.bound)
        if copies != snapshot.undisputed_copies(plan.local_log_start_offset, plan.bound):
            return "other copies than those that were seen are to be trimmed on"
        self._check_readers(fresh, copies)
        if not self._lineage.is_settled(fresh, plan):
            return "another history was published since the plan"
        return None

    def _left_ms(self, snapshot: PartitionSnapshot, plan: TrimPlan | EndedPlan) -> int:
        """Time left to send it, so that the broker completes it within the deadline."""
        age_ms = self._clock.monotonic_ms() - plan.planned_at_ms
        left_ms = self._config.plan_deadline_ms - self._config.delete_hold_ms - age_ms
        if left_ms <= 0:
            raise Unavailable(
                f"{snapshot.led.topic_id_partition}: the trim plan is {age_ms} ms old, and at most "
                f"{self._config.plan_deadline_ms} (trim.plan.deadline.ms) when the broker is done"
            )
        return left_ms

    def _note(
        self, snapshot: PartitionSnapshot, record: TopicRecord, plan: TrimPlan | EndedPlan | Held
    ) -> None:
        before = self._statuses.get(snapshot.key)
        self._statuses[snapshot.key] = TrimStatus(
            leader_epoch=snapshot.led.leader_epoch,
            reason=plan.reason.value if isinstance(plan, Held) else f"trim to {plan.bound}",
            detail=plan.detail if isinstance(plan, Held) else "",
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            trimmed_to=before.trimmed_to if before else None,
            foreign_log_start=self._foreign_log_start(snapshot, record),
            alarm=before.alarm if before and not isinstance(plan, Held) else None,
        )
        if isinstance(plan, Held) and plan.reason is NoTrim.RESTARTED:
            self._alarm(snapshot, f"{plan.reason.value}: {plan.detail}")

    def _foreign_log_start(self, snapshot: PartitionSnapshot, record: TopicRecord) -> int | None:
        """The broker's log start, if neither our trim nor the remote log start moved it (H1)."""
        start = snapshot.remote_log_start_offset
        if record.mode != "tier" or record.given_back is not None or start is None:
            return None
        intent, found = self._settings.view.trim(snapshot.key), snapshot.watermarks.log_start_offset
        return found if found > max(intent.bound if intent else 0, start) else None

    def _alarm(self, snapshot: PartitionSnapshot, text: str) -> None:
        self._amend(snapshot, alarm=text)

    def _amend(self, snapshot: PartitionSnapshot, **changes: Any) -> None:
        """Unless the partition was forgotten meanwhile, because it is led elsewhere."""
        status = self._statuses.get(snapshot.key)
        if status is not None:
            self._statuses[snapshot.key] = replace(status, **changes)
