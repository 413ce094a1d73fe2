"""One consumer of this product's topics: records, the leader epochs of their batches, and offsets.

Partitions are assigned by hand, without a group. After each failure a new consumer is created; the
tail says from which offset it reads. `Changes` wakes waiters, once per wait. This module must not
know what records mean.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafka import structs
from aiokafka.structs import ConsumerRecord

from kip405.ids import TopicPartition
from rlmm.clients import ConnectionSettings, fetched_epochs, make_consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """One record as Kafka delivered it."""

    place: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Reader(Protocol):
    """Errors are aiokafka's: KafkaError, OffsetOutOfRangeError among them, and OSError."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def bounds(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Beginning and end offsets now, from the leaders."""
        ...

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        ...

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        """What has come meanwhile, at most so long waited for."""
        ...

    async def position(self, place: TopicPartition) -> int:
        """Offset that is asked for next; beyond the last record where the end was compacted."""
        ...

    def epoch_before(self, place: TopicPartition, position: int) -> int:
        """Leader epoch of the last batch read below `position`, -1 where this reader read none."""
        ...


class LogReader:
    """Implements Reader with aiokafka."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._consumer = make_consumer(connection)

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def bounds(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        partitions = [structs.TopicPartition(*place) for place in places]
        begins = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        return {TopicPartition(*one): (begins[one], ends[one]) for one in partitions}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign([structs.TopicPartition(*place) for place in positions])
        for place, position in positions.items():
            self._consumer.seek(structs.TopicPartition(*place), position)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        batches = await self._consumer.getmany(timeout_ms=timeout_ms)
        return {
            TopicPartition(*partition): [
                _tail_record(TopicPartition(*partition), record) for record in records
            ]
            for partition, records in batches.items()
        }

    async def position(self, place: TopicPartition) -> int:
        position: int = await self._consumer.position(structs.TopicPartition(*place))
        return position

    def epoch_before(self, place: TopicPartition, position: int) -> int:
        return fetched_epochs(self._consumer).before(place, position)


def _tail_record(place: TopicPartition, record: ConsumerRecord) -> TailRecord:
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
