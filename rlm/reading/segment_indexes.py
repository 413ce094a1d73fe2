"""Parses the indexes object of a segment, and finds where in it an offset may be. Pure."""

from dataclasses import dataclass

from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Corrupt
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
)
from kip405.segments import CustomMetadata, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndexes:
    """The parsed indexes object of one segment, of `size_bytes`."""

    offsets: OffsetIndex
    times: TimeIndex
    aborted: tuple[AbortedTransaction, ...]
    chunks: ChunkChecksums
    size_bytes: int

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

    def numbers(self, start: int, end: int) -> range:
        """The chunks that hold the positions [start, end) of the log, as far as it reaches."""
        return chunk_numbers(start, end, self.chunks.chunk_size_bytes, len(self.chunks.crcs))


def chunk_numbers(start: int, end: int, chunk_bytes: int, count: int) -> range:
    """Numbers of the chunks that hold the positions [start, end), of `count` that there are."""
    return range(start // chunk_bytes, min(-(-end // chunk_bytes), count))


def checked_custom(segment: RemoteLogSegmentMetadata) -> CustomMetadata:
    """The envelope with sizes and checksums; Corrupt if there is none."""
    try:
        return segment.custom()
    except ValueError as error:
        raise Corrupt(f"metadata of segment {segment.segment_id}: {error}") from error


def checked_indexes(data: bytes, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
    """The parsed indexes of the object that the store returned; Corrupt unless it is what was
    stored (G9).
    """
    custom = checked_custom(segment)
    if len(data) != custom.indexes_size_bytes or crc32c(data) != custom.indexes_crc32c:
        raise Corrupt(f"indexes object of segment {segment.segment_id} is not what was stored")
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


def _section(
    parsed: IndexesObject, index_type: IndexType, segment: RemoteLogSegmentMetadata
) -> memoryview:
    section = parsed.section(index_type)
    if section is None:
        raise Corrupt(f"indexes of segment {segment.segment_id} have no {index_type.name} section")
    return section
