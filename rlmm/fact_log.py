"""The two Kafka topics as one log of facts: tail, barrier, publish, and the watch over them.

Both topics share one consumer, one producer and one client for end offsets. `run` belongs into
the composition root's TaskGroup and never ends. Who makes sense of the records registers a sink
before that. Must not know what records mean (one exception: whether a `cluster` fact says that a
ledger existed before).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

import structlog

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlmm.barrier import EndOffsets, Place
from rlmm.clients import ConnectionSettings
from rlmm.end_offset_client import EndOffsetClient
from rlmm.outcome import deadline
from rlmm.publisher import Publisher, Record
from rlmm.tail import Tail, TailRecord
from rlmm.topic import (
    LEDGER_TOPIC,
    SETTINGS_TOPIC,
    DescribeTopic,
    NowMs,
    SleepMs,
    TopicGuard,
    create_topic,
    ledger_spec,
    settings_spec,
)

CHECK_INTERVAL_MS = 5_000
"""How often topic ids, configurations and ends are looked at; publishes look more often (H6)."""
_RETRY_MS = 1_000
_SHRUNK_AFTER = 2
"""Looks in a row that must find an end below what was read before the topic counts as shrunk."""

log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Who makes sense of one topic's records; both methods await nothing."""

    def apply(self, record: TailRecord) -> None:
        """The next record of a partition, each offset once, ascending."""
        ...

    def go_live(self, replay_ms: int) -> None:
        """Everything that was there at the start was read; it took this long."""
        ...


@dataclass(slots=True)
class _Topics:
    settings: TopicGuard
    ledger: TopicGuard

    def of(self, topic: str) -> TopicGuard:
        return self.settings if topic == SETTINGS_TOPIC else self.ledger

    @property
    def both(self) -> tuple[TopicGuard, TopicGuard]:
        return self.settings, self.ledger


class FactLog:
    """Edge to Kafka for ledger and settings; sinks are called on the event loop."""

    def __init__(
        self,
        *,
        connection: ConnectionSettings,
        replication_factor: int,
        describe_topic: DescribeTopic,
        now_ms: NowMs,
        sleep_ms: SleepMs,
        remembered: Mapping[str, Uuid] | None = None,
        may_create: bool = True,
    ) -> None:
        """`remembered`: topic ids of an earlier run by topic name; a topic with another id is not
        ours. `may_create` False = wait until others have created the topics.
        """
        ids = remembered or {}
        self._connection = connection
        self._may_create = may_create
        self._describe = describe_topic
        self._now_ms = now_ms
        self._sleep_ms = sleep_ms
        self._topics = _Topics(
            TopicGuard(settings_spec(replication_factor), ids.get(SETTINGS_TOPIC)),
            TopicGuard(ledger_spec(replication_factor), ids.get(LEDGER_TOPIC)),
        )
        self._sinks: dict[str, Sink] = {}
        self._places = tuple(
            Place(guard.spec.name, partition)
            for guard in self._topics.both
            for partition in range(guard.spec.partition_count)
        )
        self._tail = Tail(
            connection=connection, places=self._places, deliver=self._deliver, sleep_ms=sleep_ms
        )
        self._end_client = EndOffsetClient(connection)
        self._ends = EndOffsets(self._end_client.end_offset)
        self._publisher = Publisher(connection, now_ms=now_ms, verify=self._verify_topic)
        self._shrunk_looks: dict[Place, int] = {}
        self._shrunk: str | None = None
        self._unverified: str | None = "topics were not looked at yet"
        self._live = asyncio.Event()

    def register(self, topic: str, sink: Sink) -> None:
        """Give a topic's records to the sink; before `run`."""
        self._sinks[topic] = sink

    @property
    def is_ready(self) -> bool:
        """Both topics were read up to the ends they had at the start."""
        return self._live.is_set()

    async def wait_ready(self) -> None:
        await self._live.wait()

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed: a topic missing, recreated, shrunk,
        misconfigured or unseen.
        """
        return self.damage or self._unverified

    @property
    def damage(self) -> str | None:
        """Why what was read may not be all there is. That nobody can be asked now is no such
        reason: what was read before stays true, as far as it goes.
        """
        own = [guard.problem for guard in self._topics.both]
        return next((why for why in (*own, self._shrunk, self._tail.lost) if why), None)

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """Ids of the topics in use, by name; worth remembering across restarts."""
        found = {guard.spec.name: guard.topic_id for guard in self._topics.both}
        return {name: topic_id for name, topic_id in found.items() if topic_id is not None}

    async def run(self) -> NoReturn:
        """Create what never was, then tail, watch and serve until cancelled."""
        try:
            await self._ensure_topics()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tail.run())
                group.create_task(self._ends.run())
                group.create_task(self._publisher.run())
                group.create_task(self._go_live())
                await self._watch()
        finally:
            await self._publisher.close()
            await self._end_client.close()

    async def publish(self, record: Record, timeout_ms: int) -> int:
        """Append, wait until our own tail has delivered it, answer its offset.

        Unavailable: nothing was written. OutcomeUnknown: pass a barrier and look (H10).
        """
        if not self.is_ready:
            raise Unavailable(f"publish to {record.place}: not read to the end yet")
        self._refuse_unfit(record.place.topic)
        return await self._publisher.publish(record, timeout_ms, self._tail.wait_passed)

    async def barrier(self, place: Place, deadline_ms: int) -> None:
        """Return once all was delivered that the partition held when this was called (H17).

        `deadline_ms`: how long it may take; Unavailable after that, or when the topic is not the
        one we know.
        """
        async with deadline(deadline_ms, f"barrier of {place}"):
            await self._live.wait()
            self._refuse_lost(place.topic)
            before = self._tail.position(place)
            end = await self._ends.end_offset(place)
            self._refuse_lost(place.topic)
            if end < before:
                raise Unavailable(f"barrier of {place}: ends at {end}, {before} was read")
            await self._tail.wait_passed(place, end)

    async def verify(self) -> None:
        """Look at both topics now; Unavailable where nobody answers or one is not as it must be."""
        try:
            for guard in self._topics.both:
                guard.check(await self._describe(guard.spec.name))
        except RemoteStorageError as error:
            self._unverified = f"topics cannot be verified: {error}"
            raise
        self._unverified = None
        for guard in self._topics.both:
            self._refuse_unfit(guard.spec.name)

    async def _verify_topic(self, topic: str) -> None:
        self._topics.of(topic).check(await self._describe(topic))
        self._refuse_unfit(topic)

    def _refuse_unfit(self, topic: str) -> None:
        """A topic that is not what it must be takes no more records."""
        why = self._topics.of(topic).problem or self._shrunk or self._tail.lost
        if why:
            raise Unavailable(why)

    def _refuse_lost(self, topic: str) -> None:
        """What we have read of a lost topic is not what is there."""
        guard = self._topics.of(topic)
        why = self._shrunk or self._tail.lost or (guard.problem if guard.is_lost else None)
        if why:
            raise Unavailable(why)

    def _deliver(self, record: TailRecord) -> None:
        self._sinks[record.place.topic].apply(record)

    async def _go_live(self) -> None:
        started_ms = self._now_ms()
        await self._tail.wait_caught_up()
        replay_ms = self._now_ms() - started_ms
        for sink in self._sinks.values():
            sink.go_live(replay_ms)
        self._live.set()
        log.info("facts_ready", replay_ms=replay_ms)

    async def _ensure_topics(self) -> None:
        while True:
            try:
                await self._create_missing()
                await self.verify()
                return
            except RemoteStorageError as error:
                log.warning("topics_not_ready", error=str(error))
            await self._sleep_ms(_RETRY_MS)

    async def _create_missing(self) -> None:
        """Create a topic only where nothing says that there was one before."""
        if not self._may_create:
            return await self._wait_for_others()
        settings, ledger = self._topics.both
        settings_now = await self._describe(SETTINGS_TOPIC)
        has_ledger = await self._describe(LEDGER_TOPIC) is not None
        if settings_now is None:
            if settings.topic_id or ledger.topic_id or has_ledger:
                _refuse_to_create(settings)
            await create_topic(settings.spec, self._connection, self._sleep_ms)
        else:
            settings.check(settings_now)
            self._refuse_unfit(SETTINGS_TOPIC)
        if not has_ledger:
            if ledger.topic_id or (settings_now and await self._end_client.holds_cluster_fact()):
                _refuse_to_create(ledger)
            await create_topic(ledger.spec, self._connection, self._sleep_ms)

    async def _wait_for_others(self) -> None:
        for guard in self._topics.both:
            if await self._describe(guard.spec.name) is None:
                raise Unavailable(
                    f"topic {guard.spec.name} is not there (yet): a broker's service creates it"
                )

    async def _watch(self) -> NoReturn:
        while True:
            await self._sleep_ms(CHECK_INTERVAL_MS)
            try:
                await self.verify()
                await self._look_for_shrunk()
            except RemoteStorageError as error:
                log.warning("facts_watch", error=str(error))

    async def _look_for_shrunk(self) -> None:
        before = {place: self._tail.position(place) for place in self._places}
        async with deadline(CHECK_INTERVAL_MS, "end offsets of all partitions"):
            ends = await self._end_client.end_offsets(self._places)
        for place, end in ends.items():
            looks = self._shrunk_looks.get(place, 0) + 1 if end < before[place] else 0
            self._shrunk_looks[place] = looks
            if looks >= _SHRUNK_AFTER and self._shrunk is None:
                self._shrunk = f"{place} has shrunk to {end}, {before[place]} was read"
                log.error("facts_shrunk", topic=place.topic, partition=place.partition, end=end)


def _refuse_to_create(guard: TopicGuard) -> NoReturn:
    guard.check(None)
    raise Unavailable(f"{guard.problem}, but there was one: not created again")
