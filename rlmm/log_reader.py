"""One connection that reads the metadata topics: records as Kafka delivered them, and their epochs.

A reader is a consumer whose partitions are assigned by hand, without a group. It reads what it is
told to and remembers nothing across connections; `tail` decides what is read. This module must not
know what records mean.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafka import structs
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from kip405.ids import TopicPartition
from rlmm.clients import ConnectionSettings, end_consumer, fetched_epochs, make_consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """One record as Kafka delivered it."""

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Reader(Protocol):
    """Errors are aiokafka's: KafkaError, OffsetOutOfRangeError among them, and OSError."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Close the connections; it has no errors."""
        ...

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Beginning and end offsets now, from the leaders."""
        ...

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        ...

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        """What has come meanwhile, at most so long waited for."""
        ...

    async def position(self, topic_partition: TopicPartition) -> int:
        """Offset that is asked for next; beyond the last record where the end was compacted."""
        ...

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        """Leader epoch of the last batch read below `position`, -1 where this reader read none."""
        ...


class LogReader:
    """Implements Reader with aiokafka."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._consumer = make_consumer(connection)

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await end_consumer(self._consumer)

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        partitions = [
            structs.TopicPartition(*topic_partition) for topic_partition in topic_partitions
        ]
        begins = await self._consumer.beginning_offsets(partitions)
        ends = await self._consumer.end_offsets(partitions)
        return {TopicPartition(*one): (begins[one], ends[one]) for one in partitions}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(
            [structs.TopicPartition(*topic_partition) for topic_partition in positions]
        )
        for topic_partition, position in positions.items():
            self._consumer.seek(structs.TopicPartition(*topic_partition), position)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        batches = await self._consumer.getmany(timeout_ms=timeout_ms)
        if not batches and self._consumer._fetcher._fetch_task.done():
            raise KafkaError("what fetches records has ended")  # aiokafka would wait for ever
        return {
            TopicPartition(*partition): [
                _tail_record(TopicPartition(*partition), record) for record in records
            ]
            for partition, records in batches.items()
        }

    async def position(self, topic_partition: TopicPartition) -> int:
        position: int = await self._consumer.position(structs.TopicPartition(*topic_partition))
        return position

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        return fetched_epochs(self._consumer).before(topic_partition, position)


def _tail_record(topic_partition: TopicPartition, record: ConsumerRecord) -> TailRecord:
    return TailRecord(
        topic_partition=topic_partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
