"""Makes aiokafka's records of the stored batches of one piece, and counts those of both tiers.

Deserializers, aborted transactions, control batches, checksums and positions are aiokafka's own, so
that a record is the same whichever tier it comes from. Only the end is of a piece: its last batch
may reach beyond it. This module must not know where a piece comes from.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka.consumer.fetcher import FetchError, FetchResult, PartitionRecords
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from rlm_client.counters import TierCounters
from tiered_reads.values import Fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    """How stored records become those of the user; the arguments of aiokafka's consumer."""

    key_deserializer: Callable[[bytes | None], Any] | None
    value_deserializer: Callable[[bytes | None], Any] | None
    check_crcs: bool
    isolation_level: int


class PieceRecords(PartitionRecords):  # type: ignore[misc]  # aiokafka has no types
    """The records of a piece with start_offset <= offset < next_offset; `next_fetch_offset` is the
    piece's next_offset when all are taken.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        piece: Fetched,
        record_format: RecordFormat,
        counters: TierCounters,
    ) -> None:
        self._end_offset = piece.next_offset
        self.counters = counters
        super().__init__(
            topic_partition,
            MemoryRecords(bytes(piece.batches)),
            list(piece.aborted),
            piece.start_offset,
            record_format.key_deserializer,
            record_format.value_deserializer,
            record_format.check_crcs,
            record_format.isolation_level,
        )

    def _unpack_records(self) -> Iterator[Any]:
        end = self._end_offset
        for record in super()._unpack_records():
            if record.offset >= end:
                break
            yield record
        self.next_fetch_offset = end


def deferring_errors(
    records: Iterator[Any], counters: TierCounters, on_error: Callable[[Exception], None]
) -> Iterator[Any]:
    """The records, counted. An error ends the iterator: after a record the caller gets those, and
    the error when it comes for the record that cannot be read; without one `on_error` has it.
    """
    has_given = False
    try:
        for record in records:
            counters.records += 1
            has_given = True
            yield record
    except Exception as error:  # noqa: BLE001 - a deserializer may raise anything
        if not has_given:
            on_error(error)


class Results(OrderedDict[TopicPartition, Any]):
    """aiokafka's results by partition; those that come from Kafka are counted.

    A record that cannot be read leaves an error as the partition's next result. aiokafka would
    raise it in the midst of a call, and drop what the call had collected of other partitions.
    """

    def __init__(self, counters: TierCounters, wake: Callable[[], None]) -> None:
        """`wake` is called when there is such an error; a call may begin to wait after that."""
        super().__init__()
        self._counters = counters
        self._wake = wake
        self._unreadable: dict[TopicPartition, Exception] = {}

    def __setitem__(self, topic_partition: TopicPartition, result: Any) -> None:
        found = result._partition_records if type(result) is FetchResult else None
        if found is not None:
            counters = self._counters
            if isinstance(found, PieceRecords):
                counters = found.counters
            else:
                counters.bytes_read += found._records.size_in_bytes()
            found._records_iterator = deferring_errors(
                found._records_iterator,
                counters,
                lambda error: self._unreadable.update({topic_partition: error}),
            )
        super().__setitem__(topic_partition, result)

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        super().__delitem__(topic_partition)
        error = self._unreadable.pop(topic_partition, None)
        if error is not None:
            self[topic_partition] = FetchError(error=error, backoff=0)
            self._wake()
