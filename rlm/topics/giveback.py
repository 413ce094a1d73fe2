"""Gives retention back to the brokers while a disk of theirs is nearly full, and takes it over
again (H18).

A service asks in its heartbeat (rlm/tasks/disk_pressure). Like every change of a topic's
configuration, only the service of the partition-0 leader makes it, under the lock of the topic
verbs: the record is published and read back first, so that a crash leaves a record that says what
to do (H14). It ends when no broker with a replica asks any more, and each has a live service or is
not alive itself.
Must not know disks.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import structlog

from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.plans.giveback import Step, next_step
from rlm.plans.problems import Finding, ProblemKind, human_bytes
from rlm.plans.services import heartbeats, live_nodes
from rlm.topics.cluster_retention import LiveBrokers
from rlm.topics.ports import Ledger, NotLeader, Settings
from rlm.topics.retention_configs import RETENTION_BYTES
from rlm.topics.takeover import Settler
from rlmm.settings_records import STOPS_TRIM, GivenBack, ServiceRecord, TopicRecord

log = structlog.get_logger(__name__)


class DiskGiveback:
    """`run` until cancelled; `lock` is that of the topic verbs."""

    def __init__(
        self,
        *,
        settler: Settler,
        brokers: LiveBrokers,
        settings: Settings,
        ledger: Ledger,
        lock: asyncio.Lock,
        clock: Clock,
        interval_ms: Callable[[], int],
        barrier_deadline_ms: int,
        heartbeat_max_age_ms: int,
    ) -> None:
        self._settler = settler
        self._brokers = brokers
        self._settings = settings
        self._ledger = ledger
        self._lock = lock
        self._clock = clock
        self._interval_ms = interval_ms
        self._barrier_deadline_ms = barrier_deadline_ms
        self._heartbeat_max_age_ms = heartbeat_max_age_ms

    async def run(self) -> None:
        """Check at every interval; what fails is tried again."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms())

    async def check(self) -> None:
        """One pass over the topics that somebody asks for, or that are given back."""
        is_ready = self._settings.is_ready and self._ledger.is_ready
        if not (is_ready and self._settler.alters_configs):
            return
        asked = {topic_id for record in self._services() for topic_id in record.give_back}
        for record in tuple(self._settings.view.topics()):
            if record.topic_id not in asked and record.given_back is None:
                continue
            try:
                async with self._lock:
                    await self._keep(record.name, record.topic_id)
            except (NotLeader, NotFound):
                continue
            except RemoteStorageError as error:
                log.warning("topic_not_given_back", topic=record.name, error=str(error))

    def findings(self) -> Iterator[Finding]:
        """Topics that are given back now."""
        for record in self._settings.view.topics():
            given = record.given_back
            if given is None or given.ended_ms is not None or record.state != "enabled":
                continue
            size = human_bytes(int(given.limits.get(RETENTION_BYTES, 0)))
            yield Finding(
                kind=ProblemKind.RETENTION_GIVEN_BACK,
                subject=f"topic {record.name}",
                topic=record.name,
                text=f"a broker's disk is nearly full: brokers keep {size} of each partition and "
                "delete the rest, copied or not, until it has space again; mend what holds up "
                "copies or trims, or give it space",
                since_ms=given.since_ms,
            )

    async def _keep(self, name: str, topic_id: Uuid) -> None:
        topic = await self._settler.led_topic(name)
        await self._settings.barrier(self._barrier_deadline_ms)
        record = self._settings.view.topic(topic_id)
        if record is None or topic.topic_id != topic_id:
            raise NotFound(f"topic {name} with id {topic_id} is gone")
        if record.state != "enabled" or record.mode != "tier":
            return  # what is owed is restored by the keeper
        refusal = self._refusal(topic, record)
        if record.given_back is not None and refusal is None:
            # what a crash left unfinished
            record = await self._settler.settle_limits(name, topic_id)
            refusal = self._refusal(topic, record)
        step, wanted = await self._next_step(topic, record, refusal)
        if step is None:
            return
        changed = replace(record, given_back=self._after(step, record, wanted))
        log.warning(
            "retention_given_back",
            topic=name,
            step=step.value,
            retention_bytes=wanted,
            refusal=refusal,
        )
        await self._settings.publish(changed, topic.partitions[0].leader_epoch)
        await self._settler.settle_limits(name, topic_id)

    async def _next_step(
        self, topic: TopicDescription, record: TopicRecord, refusal: str | None
    ) -> tuple[Step | None, int | None]:
        """With the least retention.bytes that live brokers with a replica ask for; where nothing
        may be deleted, none counts.
        """
        live = self._live()
        replicas = {node for one in topic.partitions.values() for node in one.replicas}
        limits = [
            service.give_back[topic.topic_id]
            for service in self._services()
            if service.node_id in replicas & live and topic.topic_id in service.give_back
        ]
        wanted = min(limits, default=None) if refusal is None else None
        step = next_step(
            record.given_back,
            wanted=wanted,
            is_led={one.leader for one in topic.partitions.values()} <= live,
            is_known=refusal is not None or await self._are_down(replicas - live),
            now_ms=self._clock.now_ms(),
        )
        return step, wanted

    async def _are_down(self, nodes: Collection[int]) -> bool:
        """Whether these brokers are not alive: no disk of theirs fills, and one that comes back may
        ask again.
        """
        if not nodes:
            return True
        try:
            alive = await self._brokers.sources()
        except RemoteStorageError:
            return False
        return bool(alive) and alive.keys().isdisjoint(nodes)

    def _refusal(self, topic: TopicDescription, record: TopicRecord) -> str | None:
        """Why nothing of the topic may be deleted now, copied or not; None = it may."""
        view = self._settings.view
        if not record.trim:
            return "trim is off"
        of_all = (
            view.stopped_by(topic.topic_id, STOPS_TRIM)
            or self._ledger.problem
            or self._settings.problem
        )
        if of_all is not None:
            return of_all
        for number in topic.partitions:
            key = PartitionKey(topic.topic_id, number)
            history = view.history(key)
            if history is not None and history.frozen is not None:
                return f"partition {number} is frozen: {history.frozen}"
            deletion_problem = self._ledger.ledger(key).deletion_problem
            if deletion_problem is not None:
                return f"partition {number}: {deletion_problem}"
        return None

    def _after(self, step: Step, record: TopicRecord, wanted: int | None) -> GivenBack | None:
        now_ms, given = self._clock.now_ms(), record.given_back
        if step is Step.BEGIN:
            return GivenBack(
                limits={RETENTION_BYTES: str(wanted)},
                since_ms=now_ms if given is None or given.ended_ms is not None else given.since_ms,
                former_limits={} if given is None else given.limits,
            )
        if step is Step.END and given is not None:
            return replace(given, ended_ms=now_ms)
        return None

    def _live(self) -> set[int]:
        beats = heartbeats(self._settings.view, self._clock.monotonic_ms())
        return set(live_nodes(beats, max_age_ms=self._heartbeat_max_age_ms))

    def _services(self) -> tuple[ServiceRecord, ...]:
        return tuple(record for record, _ in self._settings.view.services())
