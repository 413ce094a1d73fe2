"""The ledger and settings topics as one model: an append log per partition, and its readers.

The log is compacted at random cuts, loses its tail, and takes records whose writer was told nothing
(H3, H6, H10). Each process has a ProcessLog, which keeps the contract of rlmm.metadata_log.Log:
records are delivered some time after they were appended, a barrier passes an end that was asked for
later, and a publish without an answer is OutcomeUnknown. A process that had read lost records
notices at its next barrier or some seconds later, like MetadataLog; the node's next process
remembers (H42).
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kip405.errors import Unavailable
from kip405.ids import TopicPartition, Uuid
from kip405.segments import RemoteLogSegmentState
from rlmm.ledger_values import decode_value
from rlmm.log_reader import TailRecord
from rlmm.metadata_log import Sink
from rlmm.publisher import OutcomeUnknown, Record
from rlmm.records import LedgerKey
from rlmm.topic import LEDGER_TOPIC
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import Process, VirtualTimeLoop
from tests.simulation.network import Network

_NOTICED_WITHIN_S = 5.0
_REPLAYED_AT_ONCE = 40
_RARER_IN_SETTINGS = 4
"""Most of the settings' records are heartbeats."""


class ModelTopics:
    """What Kafka has of both topics. Faults are chances per publish, set by the events."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.network = network
        self.loop: VirtualTimeLoop = network.loop
        self.kafka = Process("metadata topics")
        self.loop.add(self.kafka)
        self.chance = chance
        self.clock = SimulatedClock(self.loop)
        self.records: dict[TopicPartition, list[TailRecord]] = {}
        self.written: dict[TopicPartition, list[TailRecord]] = {}
        """What `records` would be if nothing had ever been compacted."""
        self.before_append: Callable[[TailRecord], None] = lambda _record: None
        self.ends: dict[TopicPartition, int] = {}
        self.readers: list[ProcessLog] = []
        self.states: dict[int, NodeState] = {}
        self.changes = 0
        """Grows with each change of the ledger topic."""
        self.lost_records: list[TailRecord] = []
        self.lost_acks = 0.0
        self.late_appends = 0.0
        self.only_of: RemoteLogSegmentState | None = None
        """Faults hit records of this state only; None = all records."""
        self.counts = {"lost ack": 0, "late append": 0, "lost request": 0}

    def append(self, record: Record) -> int:
        """Put a record into the log; its offset."""
        offset = self.ends.get(record.topic_partition, 0)
        appended = TailRecord(
            topic_partition=record.topic_partition,
            offset=offset,
            timestamp_ms=self.clock.now_ms(),
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        self.before_append(appended)
        self._changed(record.topic_partition)
        self.records.setdefault(record.topic_partition, []).append(appended)
        self.written.setdefault(record.topic_partition, []).append(appended)
        self.ends[record.topic_partition] = offset + 1
        for reader in self.readers:
            reader.hear(record.topic_partition)
        return offset

    def _changed(self, topic_partition: TopicPartition) -> None:
        self.changes += topic_partition.topic == LEDGER_TOPIC

    def compact(self, topic_partition: TopicPartition) -> int:
        """Remove superseded records below a random cut; how many. Tombstones go once every process
        has read past them, which stands for delete.retention.ms.
        """
        log = self.records.get(topic_partition, [])
        if not log:
            return 0
        self._changed(topic_partition)
        cut = self.chance.randint(log[0].offset, log[-1].offset)
        read_by_all = min((one.position(topic_partition) for one in self.readers), default=0)
        kept = self.records[topic_partition] = compacted(log, cut, read_by_all)
        return len(log) - len(kept)

    def lose_tail(self, topic_partition: TopicPartition, count: int) -> int:
        """An unclean election takes the last records away; how many are gone."""
        log = self.records.get(topic_partition, [])
        count = min(count, len(log))
        if not count:
            return 0
        self._changed(topic_partition)
        end = log[len(log) - count].offset
        self.lost_records += log[len(log) - count :]
        del log[len(log) - count :]
        self.written[topic_partition] = [
            one for one in self.written[topic_partition] if one.offset < end
        ]
        self.ends[topic_partition] = end
        why = f"records from {end} on of {topic_partition} are lost"
        for reader in self.readers:
            if reader.position(topic_partition) > end:
                reader.doom(topic_partition.topic, why)
        for state in self.states.values():
            if state.positions.get(topic_partition, 0) > end:
                state.lost_when_started[topic_partition.topic] = why
        return count


def state_of(record: Record) -> RemoteLogSegmentState | None:
    """The state in a segment's record of the ledger, None in every other record."""
    if record.topic_partition.topic != LEDGER_TOPIC or record.value is None:
        return None
    if LedgerKey.decode(record.key).segment_id is None:
        return None
    return decode_value(record.value).state


def compacted(log: Sequence[TailRecord], cut: int, tombstones_below: int) -> list[TailRecord]:
    """What compaction of all below `cut` leaves; tombstones below the other offset go, too."""
    newest = {record.key: record.offset for record in log if record.offset < cut}
    return [
        record
        for record in log
        if record.offset >= cut
        or (
            newest[record.key] == record.offset
            and not (record.value is None and record.offset < tombstones_below)
        )
    ]


@dataclass(slots=True)
class NodeState:
    """What a node's state dir has of the topics: how far was read, and what is lost."""

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    lost_when_started: dict[str, str] = field(default_factory=dict)


class ProcessLog:
    """One process at the topics; implements rlmm.metadata_log.Log."""

    def __init__(self, topics: ModelTopics, process: Process, state: NodeState) -> None:
        self._topics = topics
        self._process = process
        self._state = state
        self._sinks: dict[str, Sink] = {}
        self._next: dict[TopicPartition, int] = {}
        self._waiters: list[tuple[TopicPartition, int, asyncio.Future[None]]] = []
        self._hearing: set[TopicPartition] = set()
        self._doom: dict[str, str] = {}
        self._live = asyncio.Event()
        self.losses: dict[str, str] = {}
        self.lags_until_s = 0.0
        state.lost.update(state.lost_when_started)
        state.lost_when_started.clear()

    @property
    def topic_ids(self) -> Mapping[str, Uuid]:
        return {}

    @property
    def is_ready(self) -> bool:
        return self._live.is_set()

    @property
    def damage(self) -> str | None:
        return next(iter((*self.losses.values(), *self._state.lost.values())), None)

    @property
    def problem(self) -> str | None:
        return self.damage

    def register(self, topic: str, sink: Sink) -> None:
        self._sinks[topic] = sink

    def position(self, topic_partition: TopicPartition) -> int:
        return self._next.get(topic_partition, 0)

    async def replay(self, topic_partitions: list[TopicPartition]) -> None:
        """Read what is there, in steps, then go live."""
        topics, began_s = self._topics, self._topics.loop.time()
        ends = {one: await self._ask_end(one) for one in topic_partitions}
        for topic_partition, end in ends.items():
            while self.position(topic_partition) < end:
                self._read(topic_partition, most=_REPLAYED_AT_ONCE)
                await asyncio.sleep(topics.chance.expovariate(200.0))
        replay_ms = int((topics.loop.time() - began_s) * 1000)
        for sink in self._sinks.values():
            sink.go_live(replay_ms)
        self._live.set()
        topics.readers.append(self)
        for topic_partition in topic_partitions:
            self.hear(topic_partition)

    def hear(self, topic_partition: TopicPartition) -> None:
        """Something was appended: it is read later, in the process's own time."""
        if topic_partition in self._hearing or self._process.is_dead:
            return
        self._hearing.add(topic_partition)
        loop = self._topics.loop
        delay_s = self._topics.network.delay_s("metadata topics", self._process.name)
        delay_s = max(delay_s, self.lags_until_s - loop.time())
        loop.call_later(delay_s, self._heard, topic_partition, context=self._process.context)

    def _heard(self, topic_partition: TopicPartition) -> None:
        self._hearing.discard(topic_partition)
        self._read(topic_partition)

    def _read(self, topic_partition: TopicPartition, most: int = 1 << 30) -> None:
        if topic_partition.topic in self.losses:
            return
        position = self.position(topic_partition)
        log = self._topics.records.get(topic_partition, [])
        at = len(log)
        while at and log[at - 1].offset >= position:
            at -= 1
        for record in log[at : at + most]:
            self._sinks[topic_partition.topic].apply(record)
            self._next[topic_partition] = record.offset + 1
        if at + most >= len(log):  # the end may have been compacted away
            end = self._topics.ends.get(topic_partition, 0)
            self._next[topic_partition] = max(self.position(topic_partition), end)
        self._state.positions[topic_partition] = self.position(topic_partition)
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for topic_partition, end, future in waiters:
            if self.position(topic_partition) < end:
                self._waiters.append((topic_partition, end, future))
            elif not future.done():
                future.set_result(None)

    async def _passed(self, topic_partition: TopicPartition, end: int) -> None:
        if self.position(topic_partition) >= end:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((topic_partition, end, future))
        self.hear(topic_partition)
        await future

    def doom(self, topic: str, why: str) -> None:
        """Records that this process has read are lost; it finds out later."""
        self._doom[topic] = why
        delay_s = self._topics.chance.uniform(0.0, _NOTICED_WITHIN_S)
        self._topics.loop.call_later(delay_s, self._notice, context=self._process.context)

    def _notice(self) -> None:
        self.losses.update(self._doom)
        self._state.lost.update(self._doom)

    async def _ask_end(self, topic_partition: TopicPartition) -> int:
        topics = self._topics
        return await topics.network.request(
            topics.kafka, lambda: topics.ends.get(topic_partition, 0), "end offset"
        )

    async def barrier(self, topic_partition: TopicPartition, deadline_ms: int) -> None:
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await self._live.wait()
                end = await self._ask_end(topic_partition)
                self._notice()
                self._refuse_lost(topic_partition.topic)
                await self._passed(topic_partition, end)
                self._notice()
                self._refuse_lost(topic_partition.topic)
        except TimeoutError as error:
            raise Unavailable(f"reading {topic_partition} to its end: {deadline_ms} ms") from error

    def _refuse_lost(self, topic: str) -> None:
        if topic in self.losses:
            raise Unavailable(self.losses[topic])

    async def publish(self, record: Record, timeout_ms: int) -> int:
        if not self.is_ready:
            raise Unavailable("not read to the end yet")
        self._refuse_lost(record.topic_partition.topic)
        topics, what = self._topics, f"publish to {record.topic_partition}"
        dice = topics.chance.random()
        if record.topic_partition.topic != LEDGER_TOPIC:
            dice *= _RARER_IN_SETTINGS
        if topics.only_of is not None and state_of(record) is not topics.only_of:
            dice = 1.0
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if dice < topics.lost_acks:
                    return await self._without_ack(record)
                if dice < topics.lost_acks + topics.late_appends:
                    return await self._appended_late(record, timeout_ms)
                offset = await self._send(record, timeout_ms)
                await self._passed(record.topic_partition, offset + 1)
                return offset
        except TimeoutError as error:
            raise OutcomeUnknown(f"{what}: no word within {timeout_ms} ms") from error
        except OutcomeUnknown:
            raise
        except Unavailable as error:
            raise OutcomeUnknown(f"{what}: {error}") from error

    async def _send(self, record: Record, timeout_ms: int, delay_s: float | None = None) -> int:
        topics = self._topics
        return await topics.network.request(
            topics.kafka,
            lambda: topics.append(record),
            "publish",
            delay_s=delay_s,
            timeout_s=timeout_ms / 1000 + 1,
        )

    async def _without_ack(self, record: Record) -> int:
        """It arrives, or it does not; either way nobody says so, or only that the connection is
        lost.
        """
        arrives = self._topics.chance.random() < 0.7
        self._topics.counts["lost ack" if arrives else "lost request"] += 1
        if arrives:
            await self._send(record, 60_000)
        if self._topics.chance.random() < 0.5:
            await asyncio.Event().wait()
        raise OutcomeUnknown("the connection was lost before the answer")

    async def _appended_late(self, record: Record, timeout_ms: int) -> int:
        """It arrives after its writer has given up."""
        self._topics.counts["late append"] += 1
        late_s = (
            timeout_ms / 1000
            + self._topics.chance.choice((0.01, 4.0, 10.0)) * self._topics.chance.random()
        )
        return await self._send(record, timeout_ms, delay_s=late_s)
