"""Partitions of our topics as their leaders have them, in memory: for the tail and the barrier.

They answer as Kafka does: records below the high watermark, OFFSET_OUT_OF_RANGE beyond the log end,
the end of an epoch by the epochs of the log (LeaderEpochFileCache.endOffsetFor). Where a deposed
leader answers in the new one's place, `deposed` is its log.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aiokafka import structs
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError

from kip405.ids import TopicPartition
from rlmm.leader_answers import NO_EPOCH, EpochEnd
from rlmm.tail import TailRecord


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

    def end_of(self, epoch: int) -> EpochEnd:
        """Source: LeaderEpochFileCache.endOffsetFor."""
        if epoch == max(self.epochs):
            return EpochEnd(epoch, self.log_end)
        higher = [one for one in sorted(self.epochs) if one > epoch]
        if not higher:
            return EpochEnd(NO_EPOCH, -1)
        floor = max((one for one in self.epochs if one <= epoch), default=epoch)
        return EpochEnd(floor, self.epochs[higher[0]])


class Leaders:
    """Whoever leads; `away` answers nobody. `asked` is every question for the end of an epoch."""

    def __init__(self, *places: TopicPartition) -> None:
        self.now = {place: Leader() for place in places}
        self.deposed: dict[TopicPartition, Leader] = {}
        self.away: set[TopicPartition] = set()
        self.asked: list[tuple[TopicPartition, int]] = []
        self.fetches = 0

    def depose(self, place: TopicPartition) -> Leader:
        """The leader keeps a log as it is now; another one goes on, here."""
        old = self.now[place]
        self.deposed[place] = old
        self.now[place] = replace(old, records=list(old.records), epochs=dict(old.epochs))
        return self.now[place]

    def _who_answers(self, place: TopicPartition) -> Leader:
        return self.deposed.get(place, self.now[place])

    async def holds_cluster_record(self) -> bool:
        return False

    async def close(self) -> None:
        return None

    async def end_offset(self, place: TopicPartition, min_insync_replicas: int) -> int:
        return self._who_answers(place).high_watermark

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd]:
        self.asked += epochs.items()
        ends = {place: self._who_answers(place).end_of(epoch) for place, epoch in epochs.items()}
        return {
            place: end for place, end in ends.items() if place not in self.away and min(end) >= 0
        }

    def reader(self) -> "MemoryReader":
        return MemoryReader(self)


class MemoryReader:
    """rlmm.tail.Reader over `Leaders`; reads from whoever leads now."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        if self._leaders.away:
            raise KafkaConnectionError("nobody is there")

    async def stop(self) -> None:
        return None

    async def bounds(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return {place: (0, self._leaders.now[place].high_watermark) for place in places}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._at = dict(positions)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        await asyncio.sleep(0)
        self._leaders.fetches += 1
        found = {}
        for place, position in self._at.items():
            leader = self._leaders.now[place]
            if position > leader.log_end:
                raise OffsetOutOfRangeError({structs.TopicPartition(*place): position})
            offsets = range(position, leader.high_watermark)
            if offsets:
                found[place] = [_record(place, one, leader.records[one][1]) for one in offsets]
                self._at[place] = leader.high_watermark
        return found

    async def position(self, place: TopicPartition) -> int:
        return self._at[place]

    def epoch_before(self, place: TopicPartition, position: int) -> int:
        records = self._leaders.now[place].records
        return records[position - 1][0] if 0 < position <= len(records) else NO_EPOCH


def _record(place: TopicPartition, offset: int, value: bytes) -> TailRecord:
    return TailRecord(place=place, offset=offset, timestamp_ms=0, key=b"k", value=value, headers=())
