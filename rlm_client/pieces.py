"""Makes aiokafka's records of the stored batches of one piece, and counts those of both tiers.

Deserializers, aborted transactions, control batches, checksums and positions are aiokafka's own, so
that a record is the same whichever tier it comes from. Only the end is of a piece: its last batch
may reach beyond it. This module must not know where a piece comes from.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
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
        self._counters = counters
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
        return deferring_errors(self._below_end(), self._counters)

    def _below_end(self) -> Iterator[Any]:
        end = self._end_offset
        for record in super()._unpack_records():
            if record.offset >= end:
                break
            yield record
        self.next_fetch_offset = end


def deferring_errors(records: Iterator[Any], counters: TierCounters) -> Iterator[Any]:
    """The records, counted. An error after the first of them ends the iterator: the caller gets
    these, and the error when it comes for the record that cannot be read. aiokafka would drop
    those that one call had collected before.
    """
    has_given = False
    try:
        for record in records:
            counters.records += 1
            has_given = True
            yield record
    except Exception:
        if not has_given:
            raise


class Results(OrderedDict[TopicPartition, Any]):
    """aiokafka's results by partition; those that come from Kafka are counted."""

    def __init__(self, counters: TierCounters) -> None:
        super().__init__()
        self._counters = counters

    def __setitem__(self, topic_partition: TopicPartition, result: Any) -> None:
        found = result._partition_records if type(result) is FetchResult else None
        if found is not None and not isinstance(found, PieceRecords):
            self._counters.bytes_read += found._records.size_in_bytes()
            found._records_iterator = deferring_errors(found._records_iterator, self._counters)
        super().__setitem__(topic_partition, result)
