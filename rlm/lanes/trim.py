"""The trim lane: the only place that deletes acknowledged records from a broker, and how (G1).

    look -> plan -> objects and store seen now (H11) -> first trim of an epoch: same bytes (H13)
    -> what the log forgets of its history is told (H8) -> intent written and read back (H2)
    -> freeze, leadership, epochs and deadline once more (H5)
    -> DeleteRecords to our own broker -> what came of it

Any doubt drops the plan; the next round makes a new one. Also watches for moves of the broker's log
start that are not ours (H1): an alarm, nothing else.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import structlog

from kip405.errors import Corrupt, Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.broker.answers import EARLIEST_TIMESTAMP
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.lanes.evidence import StoreEvidence, store_of
from rlm.lanes.look import Eyes, Look
from rlm.lanes.lost_segments import LostSegments
from rlm.lanes.ports import Broker, Ledger, Settings, ShareGroups
from rlm.plans.history import fact_of, is_settled
from rlm.plans.retention import LocalRetention, Retention, effective_local_retention
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
)
from rlmm.facts import TopicFact, TrimFact

log = structlog.get_logger()
STOPS_TRIM = "trim"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimSettings:
    """Intervals in ms: trim.plan.deadline.ms, trim.hold.max.ms, age of a dead heartbeat."""

    plan_deadline_ms: int
    hold_max_ms: int
    heartbeat_max_age_ms: int
    delete_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimStatus:
    """Result of the last round. `foreign_log_start`: where somebody else moved the log start.

    `alarm`: what stopped a trim that was due and needs an operator, until one succeeds.
    """

    leader_epoch: int
    reason: str
    detail: str
    local_log_start_offset: int
    trimmed_to: int | None = None
    foreign_log_start: int | None = None
    alarm: str | None = None


class TrimLane:
    """Trims the partitions its service leads; a job of the cleanup pool calls `run`."""

    def __init__(
        self,
        *,
        eyes: Eyes,
        broker: Broker,
        ledger: Ledger,
        settings: Settings,
        evidence: StoreEvidence,
        lost: LostSegments,
        share_groups: ShareGroups,
        clock: Clock,
        config: TrimSettings,
    ) -> None:
        self._eyes = eyes
        self._broker = broker
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._lost = lost
        self._share_groups = share_groups
        self._clock = clock
        self._config = config
        self._short_since_ms: dict[PartitionKey, int] = {}
        self._proven_epoch: dict[PartitionKey, int] = {}
        self._statuses: dict[PartitionKey, TrimStatus] = {}

    @property
    def statuses(self) -> Mapping[PartitionKey, TrimStatus]:
        return MappingProxyType(self._statuses)

    def forget(self, key: PartitionKey) -> None:
        """The partition is led elsewhere now."""
        for kept in (self._short_since_ms, self._proven_epoch, self._statuses):
            kept.pop(key, None)

    async def run(self, led: LedPartition) -> None:
        """One round of one partition. Fenced and Unavailable drop the plan."""
        planned_at_ms = self._clock.monotonic_ms()
        await self.run_on(await self._eyes.look(led), planned_at_ms)

    async def run_on(self, look: Look, planned_at_ms: int) -> bool:
        """The same on a look that began at `planned_at_ms` (monotonic); whether anything was done.

        All that a trim stands on is asked once more before it (H5): an old look costs the plan.
        """
        led, fact = look.led, look.topic.fact
        if fact is None or look.remote_log_start_offset is None:
            self._statuses.pop(look.key, None)
            return False
        guards = self._guards(look, fact)
        offsets = await self._offsets(look, fact, look.remote_log_start_offset)
        plan = plan_trim(guards, offsets, now_ms=self._clock.now_ms(), planned_at_ms=planned_at_ms)
        self._note(look, fact, plan)
        if isinstance(plan, Held):
            if plan.reason is NoTrim.BEGAN_ANEW:
                self._alarm(look, f"{plan.reason.value}: {plan.detail}")
            return False
        if isinstance(plan, TrimPlan):
            if is_hold_overdue(guards):
                log.warning("trim_hold_overdue", **_place(led), isr=led.isr, replicas=led.replicas)
            await self._see_copies(look, plan)
            await self._tell_history(look, plan)
            await self._write_intent(look, plan)
        await self._delete(look, plan)
        return True

    def _guards(self, look: Look, fact: TopicFact) -> TrimGuards:
        settings, topic_id = self._settings, look.key.topic_id
        frozen = settings.view.is_stopped(topic_id, STOPS_TRIM)
        return TrimGuards(
            ready=self._ledger.is_ready and settings.is_ready,
            ledger_problem=self._ledger.problem or settings.problem,
            freeze_fact=_freeze_text(settings, look.key) if frozen else None,
            frozen=look.frozen,
            topic=look.topic.state,
            mode_is_tier=fact.mode == "tier",
            trim_on=fact.trim,
            retention_bounded=look.topic.retention_bounded,
            replicas=look.led.replicas,
            live_nodes=live_nodes(
                heartbeats(settings.view, self._clock.monotonic_ms()),
                max_age_ms=self._config.heartbeat_max_age_ms,
            ),
            replicas_short_ms=self._short_for_ms(look.led),
            hold_max_ms=self._config.hold_max_ms,
        )

    async def _offsets(
        self, look: Look, fact: TopicFact, remote_log_start_offset: int
    ) -> TrimOffsets:
        place = look.led.topic_id_partition
        start = max(remote_log_start_offset, look.positions.log_start_offset)
        return TrimOffsets(
            leader_epoch=look.led.leader_epoch,
            lineage=look.lineage,
            segments=look.log.segments,
            local_size_bytes=look.log.size_bytes,
            local_log_start_offset=look.positions.log_start_offset,
            remote_log_start_offset=remote_log_start_offset,
            remote_log_start_epoch=self._settings.view.remote_log_start_epoch(look.key),
            high_watermark=look.positions.high_watermark,
            last_stable_offset=look.positions.last_stable_offset,
            contiguous_end=self._contiguous_end(look, start),
            share_group_start=await self._share_groups.start_offset(place.topic, place.partition),
            retention=_retention(fact),
        )

    def _contiguous_end(self, look: Look, start: int, *, without: Container[Uuid] = ()) -> int:
        return look.ledger.contiguous_end(
            look.lineage,
            look.log_end_offset,
            start,
            self._settings.view.holes(look.key),
            without=without,
        )

    def _short_for_ms(self, led: LedPartition) -> int | None:
        """How long in-sync replicas have been fewer than replicas, as this process has seen."""
        key = led.topic_id_partition.key
        if set(led.replicas) <= set(led.isr):
            self._short_since_ms.pop(key, None)
            return None
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._short_since_ms.setdefault(key, now_ms)

    async def _see_copies(self, look: Look, plan: TrimPlan) -> None:
        """Everything the trim stands on is in the right stores now (H11), and ours (H13).

        A copy that is gone from there counts for nothing: others must hold its records.
        """
        copies = _copies_below(look, plan)
        try:
            self._check_readers(look, copies)
            missing = await self._evidence.missing(copies)
            self._lost.suspect(look.key, missing)
            start = max(look.remote_log_start_offset or 0, look.positions.log_start_offset)
            if missing and self._contiguous_end(look, start, without=missing) < plan.bound:
                raise NotFound("; ".join(missing.values()))
            seen = tuple(one for one in copies if one.segment_id.id not in missing)
            await self._prove_bytes(look, plan, seen)
        except (NotFound, Corrupt, Invalid) as error:
            self._alarm(look, f"trim to {plan.bound} refused: {error}")
            raise

    def _check_readers(self, look: Look, copies: tuple[RemoteLogSegmentMetadata, ...]) -> None:
        """Unavailable unless whoever leads next can read what is trimmed: knows all the stores."""
        needed = {store_of(metadata) for metadata in copies}
        for service, _ in self._settings.view.services():
            if service.node_id not in look.led.replicas or service.stores is None:
                continue
            for store_id in sorted(needed - set(service.stores), key=str):
                raise Unavailable(
                    f"{look.led.topic_id_partition}: the service of node {service.node_id} does "
                    f"not know store {store_id} (yet), where what is to be trimmed lies"
                )

    async def _prove_bytes(
        self, look: Look, plan: TrimPlan, copies: tuple[RemoteLogSegmentMetadata, ...]
    ) -> None:
        if self._proven_epoch.get(look.key) == plan.leader_epoch:
            return
        newest = copies[-1]
        await self._evidence.check_same_bytes(
            self._broker,
            newest,
            offset=max(newest.start_offset, plan.local_log_start_offset),
            leader_epoch=plan.leader_epoch,
        )
        self._proven_epoch[look.key] = plan.leader_epoch

    async def _tell_history(self, look: Look, plan: TrimPlan) -> None:
        """The trim cuts the epoch file, too: what only that knows is written down before (H8)."""
        if not self._is_settled(look, plan):
            told = self._settings.view.history(look.key)
            fact = fact_of(look.ledger, look.lineage, None, told)
            await self._settings.publish(fact, plan.leader_epoch)
            epochs = len(fact.lineage.entries)
            log.info("history_told", **_place(look.led), bound=plan.bound, epochs=epochs)

    def _is_settled(self, look: Look, plan: TrimPlan) -> bool:
        return is_settled(
            look.ledger,
            look.lineage,
            told=self._settings.view.history(look.key),
            local=look.log.lineage,
            bound=plan.bound,
        )

    async def _write_intent(self, look: Look, plan: TrimPlan) -> None:
        known = self._settings.view.trim(look.key)
        fact = TrimFact(partition=look.key, bound=plan.bound, planned_epoch=plan.leader_epoch)
        if known is None or (known.bound, known.planned_epoch) != (fact.bound, fact.planned_epoch):
            await self._settings.publish(fact, plan.leader_epoch)

    async def _delete(self, look: Look, plan: TrimPlan | EndedPlan) -> None:
        """Once more all that may have changed, then DeleteRecords to our own broker (H5)."""
        led, place = look.led, look.led.topic_id_partition
        await self._check_again(look, plan)
        try:
            low_watermark = await self._broker.delete_records(
                place.topic,
                place.partition,
                plan.bound,
                timeout_ms=self._config.delete_timeout_ms,
            )
        except Unavailable:
            # Applied here while a live follower lags, or not at all: the log start tells (H5).
            answer = await self._broker.list_offset(
                place.topic,
                place.partition,
                EARLIEST_TIMESTAMP,
                leader_epoch=led.leader_epoch,
            )
            low_watermark = answer.offset
            if low_watermark < plan.bound:
                raise
        log.info(
            "local_log_trimmed" if isinstance(plan, TrimPlan) else "ended_records_deleted",
            **_place(led),
            bound=plan.bound,
            low_watermark=low_watermark,
            leader_epoch=plan.leader_epoch,
        )
        self._statuses[look.key] = replace(
            self._statuses[look.key],
            trimmed_to=plan.bound,
            local_log_start_offset=low_watermark,
            alarm=None,
        )

    async def _check_again(self, look: Look, plan: TrimPlan | EndedPlan) -> None:
        led = look.led
        await self._settings.barrier(self._config.plan_deadline_ms)
        self._refuse_stopped(look)
        problem = self._ledger.problem or self._settings.problem
        if problem is not None:
            raise Fenced(f"{led.topic_id_partition}: {problem}")
        if (await self._eyes.scan(led)).lineage != look.log.lineage:
            raise Fenced(f"{led.topic_id_partition}: leader epochs changed since the plan")
        if isinstance(plan, TrimPlan):
            if not self._is_settled(look, plan):
                raise Fenced(f"{led.topic_id_partition}: another history was told since the plan")
            await self._check_share_groups(led, plan.bound)
        await self._eyes.check_leadership(led)
        self._refuse_stopped(look)  # all brokers were asked meanwhile, which may take long
        age_ms = self._clock.monotonic_ms() - plan.planned_at_ms
        if age_ms > self._config.plan_deadline_ms:
            raise Unavailable(
                f"{led.topic_id_partition}: the trim plan is {age_ms} ms old, at most "
                f"{self._config.plan_deadline_ms} (trim.plan.deadline.ms)"
            )

    def _refuse_stopped(self, look: Look) -> None:
        """Fenced where the settings, as they are known now, do not want the trim any more."""
        place = look.led.topic_id_partition
        if self._settings.view.is_stopped(look.key.topic_id, STOPS_TRIM):
            raise Fenced(f"{place}: frozen by command")
        if self._settings.view.topic(look.key.topic_id) != look.topic.fact:
            raise Fenced(f"{place}: the topic's settings changed since the plan")

    async def _check_share_groups(self, led: LedPartition, bound: int) -> None:
        """Fenced: a share group stands below the bound; it may have begun after the plan (H19)."""
        place = led.topic_id_partition
        start = (await self._share_groups.starts_now(place.topic)).get(place.partition)
        if start is not None and start < bound:
            raise Fenced(f"{place}: a share group has begun at {start}, below the bound {bound}")

    def _note(self, look: Look, fact: TopicFact, plan: TrimPlan | EndedPlan | Held) -> None:
        foreign = self._foreign_log_start(look, fact)
        if foreign is not None:
            log.error(
                "foreign_log_start",
                **_place(look.led),
                log_start_offset=foreign,
                remote_log_start_offset=look.remote_log_start_offset,
            )
        before = self._statuses.get(look.key)
        self._statuses[look.key] = TrimStatus(
            leader_epoch=look.led.leader_epoch,
            reason=plan.reason.value if isinstance(plan, Held) else f"trim to {plan.bound}",
            detail=plan.detail if isinstance(plan, Held) else "",
            local_log_start_offset=look.positions.log_start_offset,
            trimmed_to=before.trimmed_to if before else None,
            foreign_log_start=foreign,
            alarm=before.alarm if before and not isinstance(plan, Held) else None,
        )

    def _foreign_log_start(self, look: Look, fact: TopicFact) -> int | None:
        """The broker's log start, if neither a trim of ours nor the remote start moved it (H1)."""
        if fact.mode != "tier" or look.remote_log_start_offset is None:
            return None
        intent = self._settings.view.trim(look.key)
        ours = max(intent.bound if intent else 0, look.remote_log_start_offset)
        found = look.positions.log_start_offset
        return found if found > ours else None

    def _alarm(self, look: Look, text: str) -> None:
        log.error("trim_alarm", **_place(look.led), alarm=text)
        self._statuses[look.key] = replace(self._statuses[look.key], alarm=text)


def _copies_below(look: Look, plan: TrimPlan) -> tuple[RemoteLogSegmentMetadata, ...]:
    """The undisputed copies that hold offsets of [local log start, bound)."""
    return tuple(
        one.metadata
        for one in look.ledger.usable(
            look.lineage, look.log_end_offset, plan.local_log_start_offset
        )
        if not one.disputed and one.metadata.start_offset < plan.bound
    )


def _freeze_text(settings: Settings, key: PartitionKey) -> str:
    return "; ".join(
        f"{fact.by}: {fact.why}"
        for fact in settings.view.freeze(key.topic_id)
        if STOPS_TRIM in fact.stopped
    )


def _retention(fact: TopicFact) -> LocalRetention:
    return effective_local_retention(
        Retention(
            total_ms=fact.retention_ms,
            total_bytes=fact.retention_bytes,
            local_ms=fact.local_retention_ms,
            local_bytes=fact.local_retention_bytes,
        )
    )


def _place(led: LedPartition) -> dict[str, object]:
    place = led.topic_id_partition
    return {"topic": place.topic, "partition": place.partition}
