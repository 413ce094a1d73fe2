"""The records of stored segments as batches that a transactional producer sends.

A stored batch is sent as it is: what belongs to the old log and the old producer is replaced in its
header, and its records stay the same bytes, compressed or not. A batch that a broker would not take
so is built again from its records: one that was stamped on append (its timestamps are written into
the records), one with gaps between its offsets, and one of which only the end is wanted. Control
batches and records of aborted transactions are left out, as a consumer with read_committed has it.
Source: DefaultRecordBatch, LogValidator, FetchCollector. This module must not know where bytes come
from or go to.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kip405.batches import BatchHeader, check_crc, read_header, size_at
from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid, RemoteStorageError, error_of_kind
from kip405.indexes import AbortedTransaction
from kip405.records import Record, records

REBUILT_BYTES = 512 * 1024
"""Size of a batch that is built again, before compression, unless one record is larger: half of
what brokers take by default.
"""
_MAX_SEQUENCE = 0x7FFFFFFF
_TRANSACTIONAL = 0x10
_DELETE_HORIZON = 0x40
_BEFORE_LENGTH = struct.Struct(">q")
_EPOCH_AT, _CRC_AT, _ATTRIBUTES_AT, _PRODUCER_AT = 12, 17, 21, 43
_INT16, _INT32, _UINT32 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">I")
_TIMES_AT, _TIMES = 27, struct.Struct(">qq")
_PRODUCER = struct.Struct(">qhi")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingBatch:
    """A batch that waits for its producer and its checksum; the offsets are those that its records
    had.
    """

    start_offset: int
    next_offset: int
    record_count: int
    data: bytes

    def of_producer(self, producer_id: int, epoch: int, sequence: int) -> bytes:
        """The bytes to send; `sequence` is that of the first record."""
        made = bytearray(self.data)
        _PRODUCER.pack_into(made, _PRODUCER_AT, producer_id, epoch, sequence)
        _UINT32.pack_into(made, _CRC_AT, crc32c(memoryview(made)[_ATTRIBUTES_AT:]))
        return bytes(made)


def next_sequence(sequence: int, record_count: int) -> int:
    """The sequence after so many records; it begins again at 0 (incrementSequence)."""
    return (sequence + record_count) & _MAX_SEQUENCE


class SegmentFeed:
    """Takes the log of one segment in pieces of any size, from a batch on; gives what is to be sent
    of the offsets [from_offset, end_offset).

    Corrupt: a batch is damaged, or lies across `start_offset` or `end_offset`, which are borders
    between batches. `from_offset` need not be one. `aborted` None: how transactions ended is not
    known, and Invalid where there are any.
    """

    def __init__(
        self,
        *,
        start_offset: int,
        end_offset: int,
        from_offset: int,
        aborted: Iterable[AbortedTransaction] | None,
    ) -> None:
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._from_offset = max(from_offset, start_offset)
        self._last_offset = -1
        self._is_decided = aborted is not None
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for one in aborted or ():
            spans = self._aborted.setdefault(one.producer_id, [])
            spans.append((one.first_offset, one.last_offset))
        self._rest = b""
        self.next_offset = self._from_offset
        """Everything wanted below it was given."""

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self._end_offset

    def feed(self, data: bytes) -> list[OutgoingBatch]:
        """What became complete by these bytes, in order."""
        whole = memoryview(self._rest + data if self._rest else data)
        found: list[OutgoingBatch] = []
        position = 0
        while not self.is_done:
            size = size_at(whole, position)
            if size is None or size > len(whole) - position:
                break
            found += self._taken(whole[position : position + size])
            position += size
        self._rest = b"" if self.is_done else bytes(whole[position:])
        return found

    def finish(self) -> None:
        """All bytes of the segment were given. What is missing up to `end_offset` has no record.
        Corrupt where a batch is cut short.
        """
        if self._rest:
            raise Corrupt(f"the log ends within a batch, {len(self._rest)} bytes after its begin")
        self.next_offset = max(self.next_offset, self._end_offset)

    def _taken(self, batch: memoryview) -> Iterator[OutgoingBatch]:
        header = read_header(batch)
        if header.base_offset <= self._last_offset:
            raise Corrupt(f"offset {header.base_offset} comes after {self._last_offset}")
        self._last_offset = header.last_offset
        if header.last_offset < self._from_offset:
            return
        if header.base_offset >= self._end_offset:
            self.next_offset = self._end_offset
            return
        if header.base_offset < self._start_offset or header.next_offset > self._end_offset:
            raise Corrupt(
                f"batch {header.base_offset}..{header.last_offset} lies across "
                f"the border of {self._start_offset}..{self._end_offset - 1}"
            )
        check_crc(batch, 0, header)
        if self._is_wanted(header):
            yield from _outgoing(bytes(batch), header, self._from_offset)
        self.next_offset = header.next_offset

    def _is_wanted(self, header: BatchHeader) -> bool:
        if header.magic < 2:
            raise Invalid(
                f"offset {header.base_offset} is in record format {header.magic}, which Kafka 4 "
                "does not take any more: download this partition instead"
            )
        if header.is_control or header.record_count == 0:
            return False
        if header.is_transactional and not self._is_decided:
            raise Invalid(
                f"offset {header.base_offset} belongs to a transaction, and no segment says how it "
                "ended: the leader's history goes on behind this segment, and that is not there"
            )
        spans = self._aborted.get(header.producer_id, ()) if header.is_transactional else ()
        return not any(first <= header.base_offset <= last for first, last in spans)


def _outgoing(batch: bytes, header: BatchHeader, from_offset: int) -> Iterator[OutgoingBatch]:
    is_dense = header.record_count == header.next_offset - header.base_offset
    has_own_times = not header.is_log_append_time and not header.attributes & _DELETE_HORIZON
    if is_dense and has_own_times and header.base_offset >= from_offset:
        yield OutgoingBatch(
            start_offset=header.base_offset,
            next_offset=header.next_offset,
            record_count=header.record_count,
            data=_without_log(batch, header.attributes),
        )
    else:
        yield from _rebuilt(batch, header, from_offset)


def _without_log(batch: bytes, attributes: int) -> bytes:
    made = bytearray(batch)
    _BEFORE_LENGTH.pack_into(made, 0, 0)
    _INT32.pack_into(made, _EPOCH_AT, -1)
    _INT16.pack_into(made, _ATTRIBUTES_AT, attributes | _TRANSACTIONAL)
    return bytes(made)


def _rebuilt(batch: bytes, header: BatchHeader, from_offset: int) -> Iterator[OutgoingBatch]:
    made: _Rebuilt | None = None
    for record in records(batch):
        if record.offset < from_offset:
            continue
        if made is not None and not made.append(record):
            yield made.built(made.next_offset)
            made = None
        if made is None:
            made = _Rebuilt(header, record)
    if made is not None:
        yield made.built(header.next_offset)


class _Rebuilt:
    """A batch that is built again, from one record on. Its builder gets times that begin at 0, and
    the header has the begin: aiokafka takes -1, which is Kafka's word for no time, as one of its
    own.
    """

    def __init__(self, header: BatchHeader, first: Record) -> None:
        self._builder = DefaultRecordBatchBuilder(
            2, header.compression, 1, -1, -1, -1, REBUILT_BYTES
        )
        self._start_offset, self._begin_ms = first.offset, first.timestamp_ms
        self._max_ms, self._count = first.timestamp_ms, 0
        self.next_offset = first.offset
        self.append(first)

    def append(self, record: Record) -> bool:
        """Whether there was room for it."""
        after_ms = record.timestamp_ms - self._begin_ms
        headers = list(record.headers)
        row = (self._count, after_ms, record.key, record.value, headers)
        if self._builder.append(*row) is None:
            return False
        self._count, self.next_offset = self._count + 1, record.offset + 1
        self._max_ms = max(self._max_ms, record.timestamp_ms)
        return True

    def built(self, next_offset: int) -> OutgoingBatch:
        data = self._builder.build()
        _TIMES.pack_into(data, _TIMES_AT, self._begin_ms, self._max_ms)
        return OutgoingBatch(
            start_offset=self._start_offset,
            next_offset=next_offset,
            record_count=self._count,
            data=bytes(data),
        )


def placed(error: RemoteStorageError, where: str) -> RemoteStorageError:
    """The same kind of error, with the place in the source before its message."""
    return error_of_kind(error.kind, f"{where}: {error}")
