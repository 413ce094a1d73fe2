"""Index formats: Kafka's offset, time and transaction index, the aborted list, chunk checksums.

One object carries them all (docs/reference/formats.md, "Store"). Entries are found by bisection in
the encoded bytes; nothing is decoded in advance. Integers are big-endian. This module must not know
where the objects are stored. Sources: OffsetIndex, TimeIndex, TransactionIndex, AbortedTxn.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kip405.contracts import IndexType
from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Corrupt
from kip405.segments import ByteRange, CustomMetadata, RemoteLogSegmentMetadata

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
_ABORTED = struct.Struct(">qqq")
_UINT32 = struct.Struct(">I")
_OBJECT_HEAD = struct.Struct(">4sBB")
_SECTION = struct.Struct(">BIII")
_OBJECT_MAGIC = b"RLMI"
OBJECT_VERSION = 1
MAX_OBJECT_BYTES = 2**32 - 1


def _entry_count(data: ByteBuffer, entry: struct.Struct, what: str) -> int:
    count, rest = divmod(len(data), entry.size)
    if rest:
        raise Corrupt(f"{what} has {len(data)} bytes, not a multiple of {entry.size}")
    return count


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Offset index of a closed segment (8 bytes an entry); raises Corrupt on creation for a torn
    entry.
    """

    data: memoryview
    base_offset: int

    def __post_init__(self) -> None:
        _entry_count(self.data, _OFFSET_ENTRY, "offset index")

    def __len__(self) -> int:
        return len(self.data) // _OFFSET_ENTRY.size

    def entry(self, index: int) -> tuple[int, int]:
        """(offset, position) of the entry."""
        relative, position = _OFFSET_ENTRY.unpack_from(self.data, index * _OFFSET_ENTRY.size)
        return self.base_offset + relative, position

    def _offset(self, index: int) -> int:
        return self.entry(index)[0]

    def _position(self, index: int) -> int:
        return self.entry(index)[1]

    def lookup(self, offset: int) -> int:
        """Byte position of a batch at or before `offset`: that of the greatest entry <= offset,
        else 0.
        """
        found = self.last_entry(offset)
        return found[1] if found is not None else 0

    def last_entry(self, offset: int) -> tuple[int, int] | None:
        """(offset, position) of the greatest entry <= offset; None: there is none."""
        at = bisect_right(range(len(self)), offset, key=self._offset)
        return self.entry(at - 1) if at else None

    def entry_before_last(self, position: int, next_offset: int) -> tuple[int, int] | None:
        """(offset, position) of the last entry but one of those up to a byte position and below
        `next_offset`; None = there are not two. At least one batch lies between these two entries,
        and all that end before the last one end below `next_offset`.
        """
        entries = range(len(self))
        count = min(
            bisect_right(entries, position, key=self._position),
            bisect_left(entries, next_offset, key=self._offset),
        )
        return self.entry(count - 2) if count > 1 else None

    def upper_position(self, next_offset: int) -> int | None:
        """Byte position of the first indexed batch at or above `next_offset`; None: up to the
        segment's end.
        """
        at = bisect_left(range(len(self)), next_offset, key=self._offset)
        return self._position(at) if at < len(self) else None

    def end_position(self, next_offset: int) -> int | None:
        """Byte position behind every batch that begins below `next_offset`; None: up to the
        segment's end. An entry has the position of the first batch and the last offset of all that
        were appended at once (LogSegment.append before 4.0), so only the entry after it is behind.
        """
        at = bisect_left(range(len(self)), next_offset, key=self._offset) + 1
        return self._position(at) if at < len(self) else None

    def upper_offset(self, position: int) -> int | None:
        """Offset of the first entry at or above a byte position; None beyond the last
        (fetchUpperBoundOffset).
        """
        at = bisect_left(range(len(self)), position, key=self._position)
        return self._offset(at) if at < len(self) else None

    def check(self, segment_size_bytes: int) -> None:
        """Corrupt unless entries ascend and lie inside the segment; reads all of them."""
        last_relative, last_position = -1, -1
        for relative, position in _OFFSET_ENTRY.iter_unpack(self.data):
            if relative <= last_relative or not last_position < position < segment_size_bytes:
                raise Corrupt(
                    f"offset index: ({relative}, {position}) after "
                    f"({last_relative}, {last_position}) in a segment of {segment_size_bytes} bytes"
                )
            last_relative, last_position = relative, position


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """Time index of a closed segment (12 bytes an entry); raises Corrupt on creation for a torn
    entry.
    """

    data: memoryview
    base_offset: int

    def __post_init__(self) -> None:
        _entry_count(self.data, _TIME_ENTRY, "time index")

    def __len__(self) -> int:
        return len(self.data) // _TIME_ENTRY.size

    def entry(self, index: int) -> tuple[int, int]:
        """(timestamp in ms, offset) of the entry."""
        timestamp, relative = _TIME_ENTRY.unpack_from(self.data, index * _TIME_ENTRY.size)
        return timestamp, self.base_offset + relative

    def _timestamp(self, index: int) -> int:
        return self.entry(index)[0]

    def lookup(self, target_ms: int) -> int:
        """Offset from which to search for the first record with a timestamp >= target_ms.

        It lies in the batch with the greatest timestamp <= target_ms. Source: TimeIndex.lookup,
        LogSegment.findOffsetByTimestamp.
        """
        at = bisect_right(range(len(self)), target_ms, key=self._timestamp)
        return self.entry(at - 1)[1] if at else self.base_offset

    def check(self) -> None:
        """Corrupt unless timestamps and offsets never descend; reads all entries."""
        last_ms, last_relative = None, -1
        for timestamp, relative in _TIME_ENTRY.iter_unpack(self.data):
            if (last_ms is not None and timestamp < last_ms) or relative < max(last_relative, 0):
                raise Corrupt(
                    f"time index: ({timestamp}, {relative}) after ({last_ms}, {last_relative})"
                )
            last_ms, last_relative = timestamp, relative


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """The producer of an aborted transaction, and its first and last offset in this partition
    (inclusive).
    """

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class TransactionIndexEntry:
    """One entry of Kafka's transaction index; all transactions that began below last_stable_offset
    were decided.
    """

    aborted: AbortedTransaction
    last_stable_offset: int


def transaction_index(data: ByteBuffer) -> Iterator[TransactionIndexEntry]:
    """Entries of a .txnindex (34 bytes each); Corrupt for a torn entry, an unknown version or
    impossible offsets.
    """
    _entry_count(data, _TXN_ENTRY, "transaction index")
    for index, (version, producer, first, last, stable) in enumerate(_TXN_ENTRY.iter_unpack(data)):
        if version != 0:
            raise Corrupt(f"transaction index: entry {index} has version {version}")
        if not 0 <= first <= last:
            raise Corrupt(f"transaction index: entry {index} has offsets {first}..{last}")
        yield TransactionIndexEntry(AbortedTransaction(producer, first, last), stable)


def whole_transaction_entries(data: bytes) -> bytes:
    """Without the part of an entry at the end of a .txnindex that is being written to."""
    return data[: len(data) - len(data) % _TXN_ENTRY.size]


def encode_transaction_index(entries: Iterable[TransactionIndexEntry]) -> bytes:
    """The inverse of `transaction_index`."""
    return b"".join(
        _TXN_ENTRY.pack(
            0,
            entry.aborted.producer_id,
            entry.aborted.first_offset,
            entry.aborted.last_offset,
            entry.last_stable_offset,
        )
        for entry in entries
    )


def complete_aborted_list(
    txn_index_files_in_order: Iterable[ByteBuffer], start: int, next_offset: int
) -> tuple[tuple[AbortedTransaction, ...], bool]:
    """Aborted transactions that touch [start, next_offset), in the index's order without duplicates
    (H9).

    Reads the files forward, from the segment's own on, until an entry proves that everything that
    began below next_offset is decided; `complete` says whether such an entry was met (then no
    further file is asked for). When it is False the list is complete only if the files went up to
    the active segment's and next_offset was at or below the LSO before they were read: an abort
    writes its entry before the LSO passes it.
    """
    found: dict[AbortedTransaction, None] = {}
    for data in txn_index_files_in_order:
        for entry in transaction_index(data):
            aborted = entry.aborted
            if aborted.last_offset >= start and aborted.first_offset < next_offset:
                found[aborted] = None
            if entry.last_stable_offset >= next_offset:
                return tuple(found), True
    return tuple(found), False


def encode_aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    """int64 producer id, first and last offset of each."""
    return b"".join(
        _ABORTED.pack(one.producer_id, one.first_offset, one.last_offset) for one in aborted
    )


def decode_aborted(data: ByteBuffer) -> tuple[AbortedTransaction, ...]:
    """The inverse of `encode_aborted`; Corrupt for a torn entry or impossible offsets."""
    _entry_count(data, _ABORTED, "aborted list")
    aborted = tuple(AbortedTransaction(*entry) for entry in _ABORTED.iter_unpack(data))
    for one in aborted:
        if not 0 <= one.first_offset <= one.last_offset:
            raise Corrupt(
                f"aborted list: transaction of producer {one.producer_id} has offsets "
                f"{one.first_offset}..{one.last_offset}"
            )
    return aborted


def aborted_for_fetch(
    aborted: Iterable[AbortedTransaction], fetch_offset: int, next_offset: int
) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of those that touch [fetch_offset, next_offset), in the list's
    order: that in which they were aborted, as a broker answers them (LocalLog).

    What a Fetch answer carries; fetch_offset is the client's or the first batch's base, next_offset
    the answer's end.
    """
    touching = {
        (one.producer_id, one.first_offset): None
        for one in aborted
        if one.last_offset >= fetch_offset and one.first_offset < next_offset
    }
    return tuple(touching)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkChecksums:
    """CRC-32C of every chunk of the log object; the last chunk may be short."""

    chunk_size_bytes: int
    crcs: tuple[int, ...]

    def encode(self) -> bytes:
        """uint32 chunk size, then a uint32 per chunk."""
        return struct.pack(f">I{len(self.crcs)}I", self.chunk_size_bytes, *self.crcs)

    @classmethod
    def decode(cls, data: ByteBuffer, log_size_bytes: int) -> "ChunkChecksums":
        """Corrupt unless there is exactly one checksum for every chunk of a log object of that
        size.
        """
        if len(data) < _UINT32.size or len(data) % _UINT32.size:
            raise Corrupt(f"chunk checksums have {len(data)} bytes")
        chunk_size, *crcs = struct.unpack(f">{len(data) // _UINT32.size}I", data)
        if chunk_size == 0 or len(crcs) != -(-log_size_bytes // chunk_size):
            raise Corrupt(
                f"{len(crcs)} checksums of {chunk_size} byte chunks for {log_size_bytes} bytes"
            )
        return cls(chunk_size_bytes=chunk_size, crcs=tuple(crcs))

    def check(self, index: int, chunk: ByteBuffer) -> None:
        """Corrupt where the bytes are not those of chunk `index`."""
        if not 0 <= index < len(self.crcs):
            raise Corrupt(f"chunk {index} of {len(self.crcs)}")
        found = crc32c(chunk)
        if found != self.crcs[index]:
            raise Corrupt(f"chunk {index}: crc is {found:08x}, expected {self.crcs[index]:08x}")

    def check_range(self, wanted: ByteRange, data: ByteBuffer) -> None:
        """Corrupt where the bytes are not those of a range that begins at a chunk, and ends at one
        or at the log's end.
        """
        if len(data) != wanted.size_bytes:
            raise Corrupt(f"bytes {wanted.start}..{wanted.end} came as {len(data)} bytes")
        size, view = self.chunk_size_bytes, memoryview(data)
        for at in range(0, len(data), size):
            self.check((wanted.start + at) // size, view[at : at + size])


@dataclass(frozen=True, slots=True, kw_only=True)
class _SectionSpan:
    position: int
    size_bytes: int
    crc: int


def build_indexes_object(sections: Mapping[IndexType, ByteBuffer]) -> bytes:
    """The object in the order of the type numbers; a type that is not given is absent. ValueError
    beyond 4 GiB.
    """
    ordered = sorted(sections.items(), key=lambda item: item[0].value)
    position = _OBJECT_HEAD.size + len(ordered) * _SECTION.size + _UINT32.size
    if position + sum(len(data) for _, data in ordered) > MAX_OBJECT_BYTES:
        raise ValueError("the indexes object would exceed 4 GiB")
    header = bytearray(_OBJECT_HEAD.pack(_OBJECT_MAGIC, OBJECT_VERSION, len(ordered)))
    for index_type, data in ordered:
        header += _SECTION.pack(index_type.value, position, len(data), crc32c(data))
        position += len(data)
    header += _UINT32.pack(crc32c(header))
    return b"".join((bytes(header), *(bytes(data) for _, data in ordered)))


class IndexesObject:
    """A parsed indexes object; sections are views into the given bytes. Sections of unknown types
    are skipped.
    """

    def __init__(self, data: memoryview, spans: Mapping[int, _SectionSpan]) -> None:
        self._data = data
        self._spans = spans

    @classmethod
    def parse(cls, data: ByteBuffer, *, check_sections: bool = False) -> "IndexesObject":
        """Corrupt for a wrong magic, version, header checksum or size; with check_sections for any
        section's too.
        """
        view = memoryview(data)
        spans = _spans(view)
        indexes = cls(view, spans)
        if check_sections:
            for number in spans:
                indexes._checked(number)
        return indexes

    @property
    def types(self) -> frozenset[IndexType]:
        """The known types that are present."""
        return frozenset(one for one in IndexType if one.value in self._spans)

    def section(self, index_type: IndexType, *, check: bool = True) -> memoryview | None:
        """The section's bytes, None where it is absent; Corrupt where its checksum is wrong (unless
        not checked).
        """
        if index_type.value not in self._spans:
            return None
        return self._checked(index_type.value) if check else self._view(index_type.value)

    def _view(self, number: int) -> memoryview:
        span = self._spans[number]
        return self._data[span.position : span.position + span.size_bytes]

    def _checked(self, number: int) -> memoryview:
        view = self._view(number)
        found, expected = crc32c(view), self._spans[number].crc
        if found != expected:
            raise Corrupt(
                f"indexes object: section {number} has crc {found:08x}, not {expected:08x}"
            )
        return view


def _spans(view: memoryview) -> dict[int, _SectionSpan]:
    if len(view) < _OBJECT_HEAD.size:
        raise Corrupt(f"indexes object has {len(view)} bytes")
    magic, version, count = _OBJECT_HEAD.unpack_from(view)
    if magic != _OBJECT_MAGIC or version != OBJECT_VERSION:
        raise Corrupt(f"indexes object begins with {magic!r} version {version}")
    end = _OBJECT_HEAD.size + count * _SECTION.size
    if len(view) < end + _UINT32.size:
        raise Corrupt(
            f"indexes object: header of {count} sections is cut short at {len(view)} bytes"
        )
    (crc,) = _UINT32.unpack_from(view, end)
    if crc != crc32c(view[:end]):
        raise Corrupt("indexes object: wrong checksum of the header")
    return _contiguous(
        _SECTION.iter_unpack(view[_OBJECT_HEAD.size : end]), end + _UINT32.size, len(view)
    )


def _contiguous(
    sections: Iterable[Sequence[int]], position: int, size_bytes: int
) -> dict[int, _SectionSpan]:
    """Sections follow each other without gap and fill the object to its end."""
    spans: dict[int, _SectionSpan] = {}
    for number, start, size, crc in sections:
        if start != position or number in spans:
            raise Corrupt(
                f"indexes object: section {number} at {start}, expected once and at {position}"
            )
        spans[number] = _SectionSpan(position=start, size_bytes=size, crc=crc)
        position += size
    if position != size_bytes:
        raise Corrupt(f"indexes object has {size_bytes} bytes, its sections end at {position}")
    return spans


def checked_custom(segment: RemoteLogSegmentMetadata) -> CustomMetadata:
    """The envelope with sizes and checksums; Corrupt if there is none."""
    try:
        return segment.custom()
    except ValueError as error:
        raise Corrupt(f"metadata of segment {segment.segment_id}: {error}") from error


def check_stored_indexes(data: ByteBuffer, segment: RemoteLogSegmentMetadata) -> None:
    """Corrupt unless it is the indexes object that was stored (G9)."""
    custom = checked_custom(segment)
    if len(data) != custom.indexes_size_bytes or crc32c(data) != custom.indexes_crc32c:
        raise Corrupt(f"indexes object of segment {segment.segment_id} is not what was stored")
