"""Which bytes of a segment answer a read: pure walk over batch headers in verified chunks, nothing
is decoded.

A segment's log is seen as chunks of one size (the last may be shorter); batches may straddle chunk
borders and are never copied to be joined: only a header that straddles one is. Source: Kafka's
DefaultRecordBatch layout; RemoteLogManager.read.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from kip405.errors import Corrupt

_HEAD = struct.Struct(
    ">qi4xb4xhi"
)  # base offset, length, (epoch), magic, (crc), attributes, last offset delta
_HEAD_BYTES = _HEAD.size
_LOG_OVERHEAD_BYTES = 12
_ZSTD = 4
_COMPRESSION_MASK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """From the batch that holds `offset`, up to upper_offset (exclusive) and about max_bytes.

    The first batch is given even when it is larger than max_bytes if `at_least_one` (KIP-74).
    """

    offset: int
    upper_offset: int
    max_bytes: int
    at_least_one: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Whole batches [start, end) of the log object; `next_offset` is the first offset after them.

    `more` = the walk ended for lack of chunks, not for a bound: `needed_position` tells what to
    load next.
    """

    start: int
    end: int
    next_offset: int
    has_zstd: bool
    needed_position: int | None


class ChunkWindow:
    """Chunks loaded so far of one segment's log, by chunk number; positions are those of the whole
    object.
    """

    def __init__(
        self, chunk_size_bytes: int, log_size_bytes: int, chunks: Mapping[int, bytes]
    ) -> None:
        self.chunk_size_bytes = chunk_size_bytes
        self.log_size_bytes = log_size_bytes
        self._chunks = chunks

    def header_at(self, position: int) -> tuple[int, int, int, int, int] | None:
        """(base offset, batch length, magic, attributes, last offset delta), None if not loaded."""
        number, inside = divmod(position, self.chunk_size_bytes)
        chunk = self._chunks.get(number)
        if chunk is None:
            return None
        if inside + _HEAD_BYTES <= len(chunk):
            return _HEAD.unpack_from(chunk, inside)  # type: ignore[return-value]
        follower = self._chunks.get(number + 1)
        if follower is None:
            return None
        return _HEAD.unpack(chunk[inside:] + follower[: _HEAD_BYTES - (len(chunk) - inside)])  # type: ignore[return-value]

    def first_missing(self, start: int, end: int) -> int | None:
        """Position of the first byte of [start, end) that is not loaded, None if all is."""
        for number in range(start // self.chunk_size_bytes, -(-end // self.chunk_size_bytes)):
            if number not in self._chunks:
                return max(start, number * self.chunk_size_bytes)
        return None

    def slices(self, start: int, end: int) -> tuple[memoryview, ...]:
        """The bytes [start, end) as views of the chunks, uncopied."""
        size = self.chunk_size_bytes
        return tuple(
            memoryview(self._chunks[number])[
                max(0, start - number * size) : min(size, end - number * size)
            ]
            for number in range(start // size, -(-end // size))
        )


def cut(window: ChunkWindow, position: int, bounds: ReadBounds) -> Cut:
    """Walk from a batch border at `position` to the batches that answer a read.

    Skips batches that end below the offset; stops before one that starts at or above upper_offset
    or would pass max_bytes. Corrupt for bytes that are no batches.
    """
    start = end = position
    next_offset = bounds.offset
    has_zstd = False
    while end < window.log_size_bytes:
        if window.log_size_bytes - end < _HEAD_BYTES:
            raise Corrupt(f"{window.log_size_bytes - end} bytes after the last batch at {end}")
        header = window.header_at(end)
        if header is None:
            missing = window.first_missing(end, min(end + _HEAD_BYTES, window.log_size_bytes))
            return _cut(start, end, next_offset, has_zstd, missing)
        base, length, magic, attributes, last_delta = header
        size = _LOG_OVERHEAD_BYTES + length
        if length <= 0 or end + size > window.log_size_bytes:
            raise Corrupt(f"batch at {end} claims {length} bytes")
        last = base + last_delta if magic == 2 else base
        if last < bounds.offset:
            start = end = end + size
            continue
        if base >= bounds.upper_offset:
            break
        if end + size - start > bounds.max_bytes and not (bounds.at_least_one and end == start):
            break
        missing = window.first_missing(end, end + size)
        if missing is not None:
            return _cut(start, end, next_offset, has_zstd, missing)
        end += size
        next_offset = last + 1
        has_zstd = has_zstd or (attributes & _COMPRESSION_MASK) == _ZSTD
    return _cut(start, end, next_offset, has_zstd, None)


def _cut(start: int, end: int, next_offset: int, has_zstd: bool, needed: int | None) -> Cut:
    return Cut(
        start=start, end=end, next_offset=next_offset, has_zstd=has_zstd, needed_position=needed
    )
