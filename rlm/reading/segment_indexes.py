"""Parses the indexes of a segment, and finds where in it an offset may be. Pure.

They come from the indexes object, with Kafka's own offset and time index, or from the remote index
files, whose entries are farther apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kip405.contracts import IndexType
from kip405.errors import Corrupt
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    OffsetIndex,
    TimeIndex,
    check_stored_indexes,
    checked_custom,
    decode_aborted,
)
from kip405.remote_index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    RemoteLogIndexEntry,
    SegmentRecord,
    segment_entries,
)
from kip405.segments import RemoteLogSegmentMetadata

_LARGEST_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndexes:
    """The parsed indexes of one segment, of `size_bytes`.

    `is_from_files`: each entry of `offsets` names the first offset of the batch there, which its
    readers must check.
    """

    offsets: OffsetIndex
    times: TimeIndex
    aborted: tuple[AbortedTransaction, ...]
    chunks: ChunkChecksums
    size_bytes: int
    is_from_files: bool = False

    @classmethod
    def parse(cls, data: bytes, segment: RemoteLogSegmentMetadata) -> "SegmentIndexes":
        """Corrupt names the segment and the section that is missing or damaged."""
        parsed = IndexesObject.parse(data)
        checksums = _section(parsed, IndexType.CHUNK_CHECKSUMS, segment)
        offsets = _section(parsed, IndexType.OFFSET, segment)
        times = _section(parsed, IndexType.TIMESTAMP, segment)
        return cls(
            offsets=OffsetIndex(offsets, segment.start_offset),
            times=TimeIndex(times, segment.start_offset),
            aborted=decode_aborted(_section(parsed, IndexType.ABORTED_TRANSACTIONS, segment)),
            chunks=ChunkChecksums.decode(checksums, segment.segment_size_bytes),
            size_bytes=len(data),
        )

    @classmethod
    def of_files(
        cls, record: SegmentRecord, entries: bytes, segment: RemoteLogSegmentMetadata
    ) -> "SegmentIndexes":
        """From the remote index files; Corrupt unless they are of these objects of the segment."""
        _check_record(record, segment)
        found = segment_entries(
            entries, segment.segment_size_bytes, segment.start_offset, segment.end_offset
        )
        offsets, times = _sparse_indexes(found, segment.start_offset)
        return cls(
            offsets=OffsetIndex(memoryview(offsets), segment.start_offset),
            times=TimeIndex(memoryview(times), segment.start_offset),
            aborted=decode_aborted(record.aborted),
            chunks=ChunkChecksums.decode(record.checksums, segment.segment_size_bytes),
            size_bytes=len(offsets) + len(times) + len(record.checksums) + len(record.aborted),
            is_from_files=True,
        )

    def start_of(self, offset: int) -> tuple[int, int | None]:
        """Position of a batch at or before the offset, and the first offset that the batch there
        must have; None: any.
        """
        found = self.offsets.last_entry(offset)
        if found is None:
            return 0, None
        return found[1], found[0] if self.is_from_files else None

    def numbers(self, start: int, end: int) -> range:
        """The chunks that hold the positions [start, end) of the log, as far as it reaches."""
        return chunk_numbers(start, end, self.chunks.chunk_size_bytes, len(self.chunks.crcs))


def chunk_numbers(start: int, end: int, chunk_bytes: int, count: int) -> range:
    """Numbers of the chunks that hold the positions [start, end), of `count` that there are."""
    return range(start // chunk_bytes, min(-(-end // chunk_bytes), count))


def checked_indexes(data: bytes, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
    """The parsed indexes of the object that the store returned; Corrupt unless it is what was
    stored (G9).
    """
    check_stored_indexes(data, segment)
    return SegmentIndexes.parse(data, segment)


def guessed_numbers(
    segment: RemoteLogSegmentMetadata, offset: int, chunk_bytes: int, wanted_bytes: int
) -> range:
    """Chunks that probably hold `wanted_bytes` from an offset on, before the indexes are known.

    Exact for the segment's first offset; elsewhere as if all records were of one size, with a chunk
    to spare on both sides.
    """
    size = segment.segment_size_bytes
    count = -(-size // chunk_bytes)
    skipped = min(max(offset - segment.start_offset, 0), segment.end_offset - segment.start_offset)
    if skipped == 0:
        return chunk_numbers(0, max(wanted_bytes, 1), chunk_bytes, count)
    position = size * skipped // (segment.next_offset - segment.start_offset)
    numbers = chunk_numbers(position, position + max(wanted_bytes, 1), chunk_bytes, count)
    return range(max(numbers.start - 1, 0), min(numbers.stop + 1, count))


def _check_record(record: SegmentRecord, segment: RemoteLogSegmentMetadata) -> None:
    expected = (
        segment.segment_id.id,
        segment.start_offset,
        segment.end_offset,
        segment.segment_size_bytes,
        checked_custom(segment).indexes_crc32c,
    )
    found = (
        record.segment_id,
        record.start_offset,
        record.end_offset,
        record.log_size_bytes,
        record.indexes_crc32c,
    )
    if found != expected:
        raise Corrupt(f"remote index files have {found} of segment {expected}")


def _sparse_indexes(
    entries: Sequence[RemoteLogIndexEntry], start_offset: int
) -> tuple[bytes, bytes]:
    """Offset and time index. A search for a timestamp begins with the first entry before which all
    timestamps are smaller.
    """
    offsets, times, largest_ms = bytearray(), bytearray(), -1
    for entry in entries:
        relative = entry.first_offset - start_offset
        offsets += OFFSET_ENTRY.pack(relative, entry.position)
        if entry.position and largest_ms < _LARGEST_MS:  # nothing is above that
            times += TIME_ENTRY.pack(largest_ms + 1, relative)
        largest_ms = max(largest_ms, entry.last_timestamp_ms)
    return bytes(offsets), bytes(times)


def _section(
    parsed: IndexesObject, index_type: IndexType, segment: RemoteLogSegmentMetadata
) -> memoryview:
    section = parsed.section(index_type)
    if section is None:
        raise Corrupt(f"indexes of segment {segment.segment_id} have no {index_type.name} section")
    return section
