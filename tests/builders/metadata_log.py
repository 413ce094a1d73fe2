"""The fact topics in memory: one log for several processes, each with a MetadataLog of its own."""

from collections.abc import Callable, Mapping

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicPartition, Uuid
from rlmm.log_reader import TailRecord
from rlmm.metadata_log import Sink
from rlmm.publisher import OutcomeUnknown, Record
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC


class FakeTopics:
    """What is in the log. `now_ms` is its append time."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[TailRecord]] = {}
        self.now_ms = 0

    def append(self, record: Record) -> int:
        log = self.records.setdefault(record.topic_partition, [])
        log.append(
            TailRecord(
                topic_partition=record.topic_partition,
                offset=len(log),
                timestamp_ms=self.now_ms,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        )
        return len(log) - 1


class FakeMetadataLog:
    """One process at the log. It reads when it must, by barrier or read-back, or by `read`.

    `before_append` and `after_append` see each record of ours: others may write then. `error`: what
    a publish raises instead of writing. With `loses_acks` the outcome is unknown: the record is in
    `in_flight` until `land` puts it into the log.
    """

    def __init__(self, topics: FakeTopics) -> None:
        self.topics = topics
        self.topic_ids: Mapping[str, Uuid] = {}
        self.is_ready = True
        self.problem: str | None = None
        self.damage: str | None = None
        self.before_append: Callable[[Record], None] = lambda _: None
        self.after_append: Callable[[Record], None] = lambda _: None
        self.error: RemoteStorageError | None = None
        self.loses_acks = False
        self.in_flight: list[Record] = []
        self.barriers: list[TopicPartition] = []
        self._sinks: dict[str, Sink] = {}
        self._read: dict[TopicPartition, int] = {}

    def register(self, topic: str, sink: Sink) -> None:
        self._sinks[topic] = sink

    def read(self, topic_partition: TopicPartition, end: int | None = None) -> None:
        """Deliver what is there, up to `end` at most."""
        log = self.topics.records.get(topic_partition, [])
        for record in log[self._read.get(topic_partition, 0) : end]:
            self._read[topic_partition] = record.offset + 1
            self._sinks[topic_partition.topic].apply(record)

    def read_all(self) -> None:
        for topic_partition in list(self.topics.records):
            self.read(topic_partition)

    def go_live(self, replay_ms: int = 0) -> None:
        """The initial replay is over."""
        self.read_all()
        for topic in (SETTINGS_TOPIC, LEDGER_TOPIC):
            if topic in self._sinks:
                self._sinks[topic].go_live(replay_ms)

    async def barrier(self, topic_partition: TopicPartition, deadline_ms: int) -> None:
        if not self.is_ready:
            raise Unavailable(
                f"reading {topic_partition} to its end took more than {deadline_ms} ms"
            )
        self.read(topic_partition)
        self.barriers.append(topic_partition)

    async def publish(self, record: Record, timeout_ms: int) -> int:
        if self.error is not None:
            raise self.error
        self.before_append(record)
        if self.loses_acks:
            self.in_flight.append(record)
            raise OutcomeUnknown(
                f"publish to {record.topic_partition}: no word within {timeout_ms} ms"
            )
        offset = self.topics.append(record)
        self.after_append(record)
        self.read(record.topic_partition)
        return offset

    def land(self) -> None:
        """What was in flight arrives after all."""
        landed, self.in_flight = self.in_flight, []
        for record in landed:
            self.topics.append(record)
