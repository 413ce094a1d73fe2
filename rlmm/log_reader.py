"""One consumer of our topics: records, the leader epochs of their batches, where partitions begin
and end.

Assigned by hand, no group, made anew after each failure: the tail says from where. Must not know
what records mean.

Tells waiters that something has changed, once per wait.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafka.structs import ConsumerRecord, TopicPartition

from rlmm.barrier import Place
from rlmm.clients import ConnectionSettings, fetched_epochs, make_consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """One record as Kafka gave it."""

    place: Place
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Reader(Protocol):
    """Errors are aiokafka's: KafkaError, OffsetOutOfRangeError among them, and OSError."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def bounds(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """Begin and end offset now, as the leaders tell."""
        ...

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on."""
        ...

    async def read(self, timeout_ms: int) -> dict[Place, list[TailRecord]]:
        """What has come meanwhile, at most so long waited for."""
        ...

    async def position(self, place: Place) -> int:
        """Offset that is asked for next; beyond the last record where the end was compacted."""
        ...

    def epoch_before(self, place: Place, position: int) -> int:
        """Leader epoch of the last batch read below `position`, -1 where this reader read none."""
        ...


class LogReader:
    """The Reader over aiokafka."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._consumer = make_consumer(connection)

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def bounds(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        partitions = [TopicPartition(*place) for place in places]
        begins = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        return {Place(*one): (begins[one], ends[one]) for one in partitions}

    def assign(self, positions: Mapping[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in positions])
        for place, position in positions.items():
            self._consumer.seek(TopicPartition(*place), position)

    async def read(self, timeout_ms: int) -> dict[Place, list[TailRecord]]:
        batches = await self._consumer.getmany(timeout_ms=timeout_ms)
        return {
            Place(*partition): [_tail_record(Place(*partition), record) for record in records]
            for partition, records in batches.items()
        }

    async def position(self, place: Place) -> int:
        position: int = await self._consumer.position(TopicPartition(*place))
        return position

    def epoch_before(self, place: Place, position: int) -> int:
        return fetched_epochs(self._consumer).before(place, position)


def _tail_record(place: Place, record: ConsumerRecord) -> TailRecord:
    return TailRecord(
        place=place,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


class Changes:
    """`notify` awaits nothing; a waiter returns at the first notify after it began to wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        if self._event.is_set():
            return
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()
