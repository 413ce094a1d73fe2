"""Makes aiokafka's records of the stored batches of one piece, and counts those of both tiers.

Deserializers, aborted transactions, control batches and positions are aiokafka's own, so that a
record is the same whichever tier it comes from. Only the end is of a piece: its last batch may
reach beyond it. Where there are no deserializers, which may fail in the midst of a batch, whole
batches become lists of records: that takes half of the time that aiokafka takes for one record
after the other. This module must not know where a piece comes from.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from aiokafka import errors
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchError, FetchResult, PartitionRecords
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord, TopicPartition

from kip405.batches import PREFIX_BYTES
from kip405.crc import crc32c
from rlm_client.counters import TierCounters
from tiered_reads.values import DataLoss, Fetched

_MAGIC_AT: Final = 16
_MAGIC_V2: Final = 2
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
Items = Generator[Fetched | DataLoss, None, None]


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
        self._data = bytes(piece.batches)  # copies nothing that `ready` has made
        self._is_checked = piece.is_checked
        self.counters = counters
        super().__init__(
            topic_partition,
            MemoryRecords(self._data),
            list(piece.aborted),
            piece.start_offset,
            record_format.key_deserializer,
            record_format.value_deserializer,
            record_format.check_crcs and not piece.is_checked,
            record_format.isolation_level,
        )

    def _unpack_records(self) -> Iterator[Any]:
        end = self._end_offset
        for record in super()._unpack_records():
            if record.offset >= end:
                break
            yield record
        self._check_whole()
        self.next_fetch_offset = end

    def _check_whole(self) -> None:
        """CorruptRecordException where the piece is no sequence of whole batches: aiokafka ends
        before a part of one without a word, and the position would pass its records.
        """
        position, size = 0, len(self._data)
        while not self._is_checked and position < size:
            is_there = position + PREFIX_BYTES <= size
            position = _end_of_batch(self._data, position) if is_there else size + 1
            if position > size:
                raise errors.CorruptRecordException(f"A batch is cut short - {self._tp}")


class BatchRecords(PieceRecords):
    """The same, a batch at a time; for records that are not deserialized."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.on_error: Callable[[Exception], None] | None = None
        self.is_done = False
        self._batches = self._decoded()
        self._has_given = False
        self._rows: list[ConsumerRecord] = []
        self._row_at = 0
        self._after_rows = self.next_fetch_offset

    def __next__(self) -> ConsumerRecord:
        found = self.take(1)
        if not found:
            raise StopIteration
        return found[0]

    def take(self, most: int | None = None) -> list[ConsumerRecord]:
        """The next records; fewer than `most` only where there are no more. Errors are handled as
        by `deferring_errors`.
        """
        taken: list[ConsumerRecord] = []
        try:
            while not self.is_done and (most is None or len(taken) < most):
                rows, at = self._rows, self._row_at
                if at == len(rows):
                    self._next_batch()
                    continue
                end = len(rows) if most is None else min(at + most - len(taken), len(rows))
                taken += rows[at:end]
                self._row_at = end
                self.next_fetch_offset = rows[end - 1].offset + 1
        except Exception as error:  # noqa: BLE001 - as of one record after the other
            self.is_done = True
            if not (taken or self._has_given) and self.on_error is not None:
                self.on_error(error)
        self._has_given = self._has_given or bool(taken)
        self.counters.records += len(taken)
        return taken

    def _next_batch(self) -> None:
        """After the last record of a batch its end counts, which compaction may have left behind
        that.
        """
        self.next_fetch_offset = self._after_rows
        found = next(self._batches, None)
        if found is None:
            self.is_done = True
            self.next_fetch_offset = self._end_offset
        else:
            (self._rows, self._after_rows), self._row_at = found, 0

    def _decoded(self) -> Iterator[tuple[list[ConsumerRecord], int]]:
        """The records of each batch, and the offset after it. As aiokafka's `_unpack_records`, but
        for the checksum, which is computed by the processor.
        """
        (topic, partition), start, end = self._tp, self.next_fetch_offset, self._end_offset
        position = 0
        while self._records.has_next():
            batch = self._records.next_batch()
            position = self._checked(batch, position)
            after = min(batch.next_offset, end)
            if self._is_aborted(batch) or batch.is_control_batch:
                yield [], after
                continue
            rows = [
                ConsumerRecord(
                    topic,
                    partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    (key := record.key),
                    (value := record.value),
                    record.checksum,
                    -1 if key is None else len(key),
                    -1 if value is None else len(value),
                    tuple(record.headers),
                )
                for record in batch
            ]
            if rows and not start <= rows[0].offset <= rows[-1].offset < end:
                rows = [one for one in rows if start <= one.offset < end]
            yield rows, after
        self._check_whole()

    def _checked(self, batch: Any, position: int) -> int:
        """Where the next batch begins. CorruptRecordException: its checksum is wrong."""
        if not self._check_crcs:
            return 0
        after = _end_of_batch(self._data, position)
        if self._data[position + _MAGIC_AT] >= _MAGIC_V2:
            is_right = _has_right_crc(self._data, position, after)
        else:
            is_right = batch.validate_crc()
        if not is_right:
            raise errors.CorruptRecordException(f"Invalid CRC - {self._tp}")
        return after

    def _is_aborted(self, batch: Any) -> bool:
        if self._isolation_level != READ_COMMITTED or batch.producer_id is None:
            return False
        self._consume_aborted_up_to(batch.base_offset)
        if batch.is_control_batch and self._contains_abort_marker(batch):
            self._aborted_producers.discard(batch.producer_id)
        return bool(batch.is_transactional and batch.producer_id in self._aborted_producers)


def piece_result(
    topic_partition: TopicPartition,
    piece: Fetched,
    record_format: RecordFormat,
    counters: TierCounters,
    *,
    assignment: Any,
    backoff: float,
) -> FetchResult:
    """A piece as a result of aiokafka's fetcher, whose type must be FetchResult itself."""
    is_plain = record_format.key_deserializer is record_format.value_deserializer is None
    kind = BatchRecords if is_plain else PieceRecords
    records = kind(topic_partition, piece, record_format, counters)
    result = FetchResult(
        topic_partition, assignment=assignment, partition_records=records, backoff=backoff
    )
    if isinstance(records, BatchRecords):
        result.getall = partial(_get_all, result, records)
    return result


def _get_all(
    result: FetchResult, records: BatchRecords, max_records: int | None = None
) -> list[ConsumerRecord]:
    """As FetchResult.getall."""
    if not result.check_assignment(result._topic_partition) or not result.has_more():
        return []
    found = records.take(max_records)
    result._update_position()
    if records.is_done:
        result._partition_records = None
    return found


def ready(items: Items, *, check_crcs: bool) -> Items:
    """The items with their batches as bytes of their own, and those of them checked: this costs a
    thread of reads what it would cost the event loop. What is wrong the records raise in their
    turn.
    """
    with closing(items):
        for item in items:
            if not isinstance(item, Fetched):
                yield item
                continue
            data = bytes(item.batches)
            is_checked = check_crcs and all(_checks(data))
            yield replace(item, batches=data, is_checked=is_checked)


def _checks(data: bytes) -> Iterator[bool]:
    """For each batch, whether it is whole and has its checksum; False for the older format."""
    position = 0
    while position + _CRC_FROM <= len(data):
        after = _end_of_batch(data, position)
        yield (
            data[position + _MAGIC_AT] >= _MAGIC_V2
            and position + _CRC_FROM <= after <= len(data)
            and _has_right_crc(data, position, after)
        )
        position = after
    yield position == len(data)


def _end_of_batch(data: bytes, position: int) -> int:
    return position + int.from_bytes(data[position + 8 : position + 12]) + PREFIX_BYTES


def _has_right_crc(data: bytes, position: int, after: int) -> bool:
    stored = int.from_bytes(data[position + _CRC_AT : position + _CRC_FROM])
    return crc32c(memoryview(data)[position + _CRC_FROM : after]) == stored


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

            def on_error(error: Exception) -> None:
                self._unreadable[topic_partition] = error

            if isinstance(found, BatchRecords):
                found.on_error = on_error
            else:
                found._records_iterator = deferring_errors(
                    found._records_iterator, counters, on_error
                )
        super().__setitem__(topic_partition, result)

    def __delitem__(self, topic_partition: TopicPartition) -> None:
        super().__delitem__(topic_partition)
        error = self._unreadable.pop(topic_partition, None)
        if error is not None:
            self[topic_partition] = FetchError(error=error, backoff=0)
            self._wake()
