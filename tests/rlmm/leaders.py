"""Partitions of our topics as their leaders have them, in memory: for the tail and the barrier.

They answer as Kafka does: records below the high watermark, OFFSET_OUT_OF_RANGE beyond the log end,
the end of an epoch by the epochs of the log (LeaderEpochFileCache.endOffsetFor). Where a deposed
leader answers instead of the new one, `deposed` is its log.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from aiokafka import structs
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError

from kip405.ids import TopicPartition, Uuid
from rlmm.leader_answers import NO_EPOCH, EpochEnd, EpochQuestion
from rlmm.log_reader import TailRecord


@dataclass(slots=True)
class Leader:
    """One partition's log as one broker has it."""

    leader_epoch: int = 0
    records: list[tuple[int, bytes]] = field(default_factory=list)
    """(epoch, value) by offset."""
    behind: int = 0
    """How many records at the end are above the high watermark."""
    epochs: dict[int, int] = field(default_factory=dict)
    """Start offset of each epoch, the leader's own at its election."""

    def __post_init__(self) -> None:
        self.epochs.setdefault(self.leader_epoch, 0)

    @property
    def log_end(self) -> int:
        return len(self.records)

    @property
    def high_watermark(self) -> int:
        return self.log_end - self.behind

    def append(self, count: int = 1, value: bytes = b"old") -> None:
        self.records += [(self.leader_epoch, value)] * count

    def elect(self, leader_epoch: int) -> None:
        """Begin another epoch at the end of the log as it is here."""
        self.leader_epoch = leader_epoch
        self.epochs[leader_epoch] = self.log_end

    def lose(self, count: int) -> None:
        """The end is gone: an unclean election, a power loss. Another election follows."""
        del self.records[self.log_end - count :]
        self.epochs = {one: at for one, at in self.epochs.items() if at < self.log_end or not at}

    def end_of(self, epoch: int, current_leader_epoch: int) -> EpochEnd:
        """Source: LeaderEpochFileCache.endOffsetFor, Partition.checkCurrentLeaderEpoch."""
        if current_leader_epoch > self.leader_epoch:
            return EpochEnd(NO_EPOCH, -1)
        if epoch == max(self.epochs):
            return EpochEnd(epoch, self.log_end)
        higher = [one for one in sorted(self.epochs) if one > epoch]
        if not higher:
            return EpochEnd(NO_EPOCH, -1)
        floor = max((one for one in self.epochs if one <= epoch), default=epoch)
        return EpochEnd(floor, self.epochs[higher[0]])


class Leaders:
    """Whoever leads; `away` answers nobody. `asked` is every question for the end of an epoch."""

    def __init__(self, *topic_partitions: TopicPartition) -> None:
        self.now = {topic_partition: Leader() for topic_partition in topic_partitions}
        self.deposed: dict[TopicPartition, Leader] = {}
        self.away: set[TopicPartition] = set()
        self.asked: list[tuple[TopicPartition, EpochQuestion]] = []
        self.fetches = 0
        self.when_fetched: Callable[[], None] = lambda: None
        self.ledger_id: Uuid | None = None

    def depose(self, topic_partition: TopicPartition) -> Leader:
        """The leader keeps a log as it is now; another one goes on, here."""
        old = self.now[topic_partition]
        self.deposed[topic_partition] = old
        self.now[topic_partition] = replace(old, records=list(old.records), epochs=dict(old.epochs))
        return self.now[topic_partition]

    def _who_answers(self, topic_partition: TopicPartition) -> Leader:
        return self.deposed.get(topic_partition, self.now[topic_partition])

    async def recorded_ledger_id(self) -> Uuid | None:
        return self.ledger_id

    async def close(self) -> None:
        return None

    async def end_offset(self, topic_partition: TopicPartition, min_insync_replicas: int) -> int:
        return self._who_answers(topic_partition).high_watermark

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        self.asked += questions.items()
        ends = {
            topic_partition: self._who_answers(topic_partition).end_of(*question)
            for topic_partition, question in questions.items()
        }
        return {
            topic_partition: end
            for topic_partition, end in ends.items()
            if topic_partition not in self.away and min(end) >= 0
        }

    def reader(self) -> "MemoryReader":
        return MemoryReader(self)


class MemoryReader:
    """rlmm.log_reader.Reader over `Leaders`; reads from whoever leads now."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        if self._leaders.away:
            raise KafkaConnectionError("nobody is there")

    async def stop(self) -> None:
        return None

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return {
            topic_partition: (0, self._leaders.now[topic_partition].high_watermark)
            for topic_partition in topic_partitions
        }

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._at = dict(positions)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        await asyncio.sleep(0)
        self._leaders.fetches += 1
        self._leaders.when_fetched()
        found = {}
        for topic_partition, position in self._at.items():
            leader = self._leaders.now[topic_partition]
            if position > leader.log_end:
                raise OffsetOutOfRangeError({structs.TopicPartition(*topic_partition): position})
            offsets = range(position, leader.high_watermark)
            if offsets:
                found[topic_partition] = [
                    memory_record(topic_partition, one, leader.records[one][1]) for one in offsets
                ]
                self._at[topic_partition] = leader.high_watermark
        return found

    async def position(self, topic_partition: TopicPartition) -> int:
        return self._at[topic_partition]

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        records = self._leaders.now[topic_partition].records
        return records[position - 1][0] if 0 < position <= len(records) else NO_EPOCH


def memory_record(topic_partition: TopicPartition, offset: int, value: bytes) -> TailRecord:
    return TailRecord(
        topic_partition=topic_partition,
        offset=offset,
        timestamp_ms=0,
        key=b"k",
        value=value,
        headers=(),
    )
