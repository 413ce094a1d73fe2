"""The two Kafka topics as one metadata log: tail, barrier, publish, and checks of the topics.

Both topics share one consumer, one producer and one client for end offsets. `run` belongs in the
TaskGroup of the composition root and never ends. A component that interprets the records registers
a sink before that. This module must not know what records mean, except which ledger the `cluster`
settings record names: that one existed before, or replaces one that was lost (`rlm ledger
rebuild`).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

import structlog

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicPartition, Uuid
from rlmm.clients import ConnectionSettings
from rlmm.end_offsets import EndOffsetClient, EndOffsets
from rlmm.leader_answers import NOTHING_READ, RememberedReads
from rlmm.log_reader import LogReader, Reader, TailRecord
from rlmm.publisher import Publisher, Record, deadline
from rlmm.resuming import ResumePoint
from rlmm.seen_ends import Ends, SeenEnds
from rlmm.tail import Tail
from rlmm.topic import (
    LEDGER_TOPIC,
    SETTINGS_TOPIC,
    DescribeTopic,
    NowMs,
    SleepMs,
    TopicGuard,
    TopicGuards,
    create_topic,
    ledger_spec,
    settings_spec,
)
from rlmm.waiting import unless_broken_off

CHECK_INTERVAL_MS = 5_000
"""How often topic ids, configurations and ends are looked at; publishes look more often (H6)."""
_RETRY_MS = 1_000
_VERIFY_TIMEOUT_MS = 15_000
"""Enough for each leader that answers; one that hangs is given up before."""

log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Interprets one topic's records; its methods await nothing."""

    def apply(self, record: TailRecord) -> None:
        """The next record of a partition, each offset once, ascending."""
        ...

    def start_over(self, partition: int) -> None:
        """Forget what was read or taken over of the partition, which is read from its beginning;
        before `go_live`.
        """
        ...

    def go_live(self, replay_ms: int) -> None:
        """Everything that was there at the start was read; it took this long."""
        ...


class EarlierLedger(Protocol):
    """What an earlier process has made of the ledger."""

    async def restore(self, topic_id: Uuid) -> Mapping[TopicPartition, ResumePoint]:
        """Take over what is kept of the ledger with this topic id; where to read it on. Nothing
        where there is none, or none that can be used.
        """
        ...

    def dropped(self, topic_partition: TopicPartition, why: str) -> None:
        """What was taken over of the partition was of no use: it is read from its beginning."""
        ...


class Log(Protocol):
    """What the views of the two topics need of MetadataLog."""

    def register(self, topic: str, sink: Sink) -> None: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def problem(self) -> str | None: ...

    @property
    def damage(self) -> str | None: ...

    @property
    def topic_ids(self) -> Mapping[str, Uuid]: ...

    async def publish(self, record: Record, timeout_ms: int) -> int: ...

    async def barrier(self, topic_partition: TopicPartition, deadline_ms: int) -> None: ...


class MetadataLog:
    """The edge to Kafka for ledger and settings; sinks are called on the event loop.

    A partition that lost records which were already read (`leader_answers`) permanently stops
    everything that deletes or trims. This process no longer reads or writes that topic, because its
    view is not what the topic holds. A later process reads what is left, and works with it as far
    as is safe.
    """

    def __init__(
        self,
        *,
        connection: ConnectionSettings,
        replication_factor: int,
        describe_topic: DescribeTopic,
        now_ms: NowMs,
        sleep_ms: SleepMs,
        remembered: Mapping[str, Uuid] | None = None,
        remembered_reads: RememberedReads = NOTHING_READ,
        remedy: str = "",
        may_create: bool = True,
        with_ledger: bool = True,
        any_ledger: bool = False,
        connect: Callable[[ConnectionSettings], Reader] = LogReader,
        make_ends: Callable[[ConnectionSettings, SleepMs], Ends] = EndOffsetClient,
    ) -> None:
        """`remembered`: topic ids of an earlier run by topic name; a topic with another id is not
        ours. `remembered_reads`: how far that run had read, and whether something was lost;
        `remedy`: what ends such a loss, in words. `may_create` False = wait until others have
        created the topics. `with_ledger` False = read the settings alone, where the ledger is lost.
        `any_ledger`: the ledger need not be the one that the cluster record names. `now_ms`: a
        clock that is never set.
        """
        ids = remembered or {}
        self._connection = connection
        self._may_create = may_create
        self._any_ledger = any_ledger
        self._describe = describe_topic
        self._sleep_ms = sleep_ms
        self._topics = TopicGuards(
            TopicGuard(settings_spec(replication_factor), ids.get(SETTINGS_TOPIC)),
            TopicGuard(ledger_spec(replication_factor), ids.get(LEDGER_TOPIC)),
            has_ledger=with_ledger,
        )
        self._sinks: dict[str, Sink] = {}
        self._topic_partitions = tuple(
            TopicPartition(guard.spec.name, partition)
            for guard in self._topics.used
            for partition in range(guard.spec.partition_count)
        )
        self._end_client = SeenEnds(make_ends(connection, sleep_ms), now_ms)
        self._tail = Tail(
            connect=lambda: connect(connection),
            topic_partitions=self._topic_partitions,
            deliver=self._deliver,
            start_over=self._start_over,
            epoch_ends=self._end_client.epoch_ends,
            now_ms=now_ms,
            sleep_ms=sleep_ms,
            remembered=remembered_reads.read_positions,
        )
        self._lost_earlier = remembered_reads.lost
        self._lost_topics_earlier = remembered_reads.lost_topics
        self._remedy = remedy
        self._ends = EndOffsets(self._verified_end)
        self._publisher = Publisher(connection, now_ms=now_ms, verify=self._verify_topic)
        self._unverified: str | None = "topics were not looked at yet"
        self._live = asyncio.Event()
        self._has_begun = False
        self._earlier: EarlierLedger | None = None

    def resume_with(self, earlier: EarlierLedger) -> None:
        """Read the ledger on from where an earlier process stopped, where that is safe; before
        `run`.
        """
        self._earlier = earlier

    def remember_read(self, partition: int, point: ResumePoint) -> None:
        """An earlier process has read so far of a ledger partition that is read from its beginning
        nevertheless; before `run`'s first record.
        """
        self._tail.remember(TopicPartition(LEDGER_TOPIC, partition), point)

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
        """Why nothing may be deleted or trimmed: a topic missing, recreated, misconfigured or
        unseen, records lost, or no leader that confirms that none are.
        """
        return self.damage or self._unverified or self._tail.doubt()

    @property
    def damage(self) -> str | None:
        """Why what was read may not be all there is. That no broker can be asked now is no such
        reason: what was read before stays true, as far as it goes.
        """
        for guard in self._topics.used:
            if guard.problem:
                return guard.problem
        loss = self.loss
        return f"{loss}; {self._remedy}" if loss else None

    @property
    def loss(self) -> str | None:
        """Records that were read, by this process or an earlier one, and are permanently lost."""
        for lost in (self._tail.lost, self._tail.lost_before):
            for why in lost.values():
                if why:
                    return why
        return self._lost_earlier or None

    @property
    def reads(self) -> RememberedReads:
        """What is worth remembering across restarts."""
        lost = {one.topic for one in (*self._tail.lost, *self._tail.lost_before)}
        return RememberedReads(
            read_positions=self._tail.read_positions,
            lost=self.loss,
            lost_topics=self._lost_topics_earlier | lost,
        )

    async def wait_lost(self) -> None:
        """Return once this process found that records are gone."""
        await self._tail.wait_lost()

    def ledger_point(self, partition: int) -> ResumePoint | None:
        """Where a later process may read this partition of the ledger on; None where this one may
        have missed records.
        """
        return self._tail.resume_point(TopicPartition(LEDGER_TOPIC, partition))

    @property
    def ledger_read(self) -> int:
        """The sum of the ledger partitions' next offsets: it grows with every record."""
        ledger = (one for one in self._topic_partitions if one.topic == LEDGER_TOPIC)
        return sum(map(self._tail.position, ledger))

    def unread_records(self, topic: str) -> int | None:
        """Offsets of it that are not read, by what leaders have answered; None before that."""
        return self._end_client.unread_records(topic, self._tail.position)

    @property
    def answered_at_ms(self) -> int | None:
        """When a leader of either topic has last answered, by `now_ms`; None before that."""
        return self._end_client.answered_at_ms

    @property
    def topic_ids(self) -> dict[str, Uuid]:
        """Ids of the topics in use, by name; worth remembering across restarts."""
        found = {guard.spec.name: guard.topic_id for guard in self._topics.used}
        return {name: topic_id for name, topic_id in found.items() if topic_id is not None}

    @property
    def known_topic_ids(self) -> frozenset[Uuid]:
        """See `TopicGuards.known_ids`; a topic that was recreated is seen within
        CHECK_INTERVAL_MS.
        """
        return self._topics.known_ids

    async def run(self) -> NoReturn:
        """Create what never was, then tail, watch and serve until cancelled. Unavailable where one
        of these ends as cancelled, and nobody has cancelled it.
        """
        parts = {
            "tail": self._tail.run,
            "verifier": self._tail.run_verifier,
            "end offsets": self._ends.run,
            "publisher": self._publisher.run,
            "replay": self._go_live,
        }
        try:
            await self._ensure_topics()
            await self._resume()
            async with asyncio.TaskGroup() as group:
                for name, part in parts.items():
                    group.create_task(unless_broken_off(part, f"the metadata log's {name}"))
                await self._watch()
        finally:
            await self._publisher.close()
            await self._end_client.close()

    async def publish(self, record: Record, timeout_ms: int) -> int:
        """Append, wait until our own tail has delivered it, answer its offset.

        Unavailable: nothing was written. OutcomeUnknown: pass a barrier and look (H10).
        """
        if not self.is_ready:
            raise Unavailable(f"publish to {record.topic_partition}: not read to the end yet")
        self._refuse_unfit(record.topic_partition.topic)
        return await self._publisher.publish(record, timeout_ms, self._tail.wait_passed)

    async def barrier(self, topic_partition: TopicPartition, deadline_ms: int) -> None:
        """Return once all was delivered that the partition held when this was called (H17).

        `deadline_ms`: how long it may take; Unavailable after that, when the topic is not the one
        we know, or when its leader does not confirm that it still holds all that was read (H42).
        """
        async with deadline(deadline_ms, f"reading {topic_partition} to its end"):
            await self._live.wait()
            self._refuse_lost(topic_partition.topic)
            before = self._tail.position(topic_partition)
            end = await self._ends.end_offset(topic_partition)
            await self._confirm(topic_partition)
            if end < before:
                raise Unavailable(f"barrier of {topic_partition}: ends at {end}, {before} was read")
            await self._tail.wait_passed(topic_partition, end)
            await self._confirm(topic_partition)

    async def verify(self) -> None:
        """Check both topics now; Unavailable where no broker answers or one is not as it must
        be.
        """
        try:
            for guard in self._topics.used:
                guard.check(await self._describe(guard.spec.name))
        except RemoteStorageError as error:
            self._unverified = f"topics cannot be verified: {error}"
            raise
        self._unverified = None
        for guard in self._topics.used:
            self._refuse_unfit(guard.spec.name)

    async def _verify_topic(self, topic: str) -> None:
        self._topics.of(topic).check(await self._describe(topic))
        self._refuse_unfit(topic)

    def _refuse_unfit(self, topic: str) -> None:
        """A topic that is not what it must be takes no more records."""
        why = self._topics.of(topic).problem or self._lost_of(topic)
        if why:
            raise Unavailable(why)

    def _refuse_lost(self, topic: str) -> None:
        """What we have read of a lost topic is not what is there."""
        guard = self._topics.of(topic)
        why = self._lost_of(topic) or (guard.problem if guard.is_lost else None)
        if why:
            raise Unavailable(why)

    async def _confirm(self, topic_partition: TopicPartition) -> None:
        """Unavailable where its leader does not confirm what was read."""
        if self._tail.doubt([topic_partition]):  # another epoch began meanwhile
            await self._tail.verify([topic_partition])
        self._refuse_lost(topic_partition.topic)
        doubt = self._tail.doubt([topic_partition])
        if doubt:
            raise Unavailable(doubt)

    def _lost_of(self, topic: str) -> str | None:
        return next(
            (
                why
                for topic_partition, why in self._tail.lost.items()
                if topic_partition.topic == topic
            ),
            None,
        )

    async def _verified_end(self, topic_partition: TopicPartition) -> int:
        """The end offset; by the time it is known the leader was asked for what was read, too."""
        min_insync_replicas = self._topics.of(topic_partition.topic).min_insync_replicas
        asked = self._end_client.end_offset(topic_partition, min_insync_replicas)
        try:
            async with asyncio.TaskGroup() as both:  # neither outlives this call, nor its client
                end = both.create_task(asked)
                confirmed = both.create_task(self._tail.verify([topic_partition]))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        if end.cancelled() or confirmed.cancelled():  # by nobody here; the group takes no notice
            raise Unavailable(f"barrier of {topic_partition}: a question to its leader broke off")
        return end.result()

    def _deliver(self, record: TailRecord) -> None:
        self._sinks[record.topic_partition.topic].apply(record)

    def _start_over(self, topic_partition: TopicPartition) -> None:
        self._sinks[topic_partition.topic].start_over(topic_partition.partition)

    async def _go_live(self) -> None:
        """Once in the life of this process: a later run continues with what was read, or begins
        the replay again that was not over.
        """
        self._has_begun = True
        if self._live.is_set():
            return
        await self._tail.wait_caught_up()
        replay_ms = self._tail.replay_ms
        for sink in self._sinks.values():
            sink.go_live(replay_ms)
        self._live.set()
        log.info("metadata_ready", replay_ms=replay_ms)

    async def _resume(self) -> None:
        """Once in the life of this process, before anything is read."""
        earlier, self._earlier = self._earlier, None
        topic_id = self._topics.ledger.topic_id
        if earlier is not None and topic_id is not None:
            self._tail.resume(await earlier.restore(topic_id), earlier.dropped)

    async def _ensure_topics(self) -> None:
        report = log.info  # brokers learn of a topic a moment after its creation
        while True:
            try:
                await self._create_missing()
                await self._follow_cluster_record()
                await self.verify()
                return
            except RemoteStorageError as error:
                report("topics_not_ready", error=str(error))
                report = log.warning
            await self._sleep_ms(_RETRY_MS)

    async def _create_missing(self) -> None:
        """Create a topic only where nothing says that there was one before."""
        if not self._may_create:
            return await self._wait_for_others()
        settings, ledger = self._topics.settings, self._topics.ledger
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
            if ledger.topic_id or (settings_now and await self._end_client.recorded_ledger_id()):
                _refuse_to_create(ledger)
            await create_topic(ledger.spec, self._connection, self._sleep_ms)

    async def _follow_cluster_record(self) -> None:
        """Before anything is read: which ledger is ours is what the cluster record says (H6).

        A process that remembers another one takes the one on record: its own was lost, and this one
        rebuilt, and what was read of the lost one says nothing about this one. A process that
        remembers none takes no other one than that on record either. Without a record there never
        was a ledger before.
        """
        settings, ledger = self._topics.settings, self._topics.ledger
        found = await self._describe(LEDGER_TOPIC) if ledger in self._topics.used else None
        is_settled = self._has_begun or self._any_ledger
        if found is None or found[0] == ledger.topic_id or is_settled:
            return
        settings.check(await self._describe(SETTINGS_TOPIC))
        self._refuse_unfit(SETTINGS_TOPIC)
        recorded = await self._end_client.recorded_ledger_id()
        if ledger.topic_id is None:
            ledger.topic_id = recorded
        elif recorded == found[0]:
            self._take_rebuilt(ledger, recorded)

    def _take_rebuilt(self, ledger: TopicGuard, topic_id: Uuid) -> None:
        log.warning("ledger_was_rebuilt", lost=str(ledger.topic_id), topic_id=str(topic_id))
        ledger.topic_id = topic_id
        self._tail.forget(LEDGER_TOPIC)
        if self._lost_topics_earlier == {LEDGER_TOPIC}:
            self._lost_earlier, self._lost_topics_earlier = None, frozenset()

    async def _wait_for_others(self) -> None:
        for guard in self._topics.used:
            if await self._describe(guard.spec.name) is None:
                raise Unavailable(
                    f"topic {guard.spec.name} is not there (yet): a broker's service creates it"
                )

    async def _watch(self) -> NoReturn:
        while True:
            await self._sleep_ms(CHECK_INTERVAL_MS)
            try:
                await self.verify()
                async with deadline(_VERIFY_TIMEOUT_MS, "ends of the epochs of all partitions"):
                    await self._tail.verify()
            except RemoteStorageError as error:
                log.warning("metadata_watch", error=str(error))


def _refuse_to_create(guard: TopicGuard) -> NoReturn:
    guard.check(None)
    raise Unavailable(f"{guard.problem}, but there was one: not created again")
