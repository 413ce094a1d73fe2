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
_MAGIC_V2 = 2
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

    `needed_position`: the walk ended for lack of the chunk that holds it, load it and cut again.
    `exhausted`: the segment holds nothing more below the upper offset.
    """

    start: int
    end: int
    next_offset: int
    has_zstd: bool = False
    needed_position: int | None = None
    exhausted: bool = False


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

    Skips batches that end below the offset; stops before one that reaches upper_offset or would
    pass max_bytes. Corrupt for bytes that are no batches.
    """
    walk = _Walk(window, position, bounds)
    while walk.end < window.log_size_bytes:
        stopped = walk.step()
        if stopped is not None:
            return stopped
    return walk.cut(exhausted=True)


class _Walk:
    """The state of one walk: batches taken so far are [start, end)."""

    __slots__ = ("_bounds", "_has_zstd", "_next_offset", "_window", "end", "start")

    def __init__(self, window: ChunkWindow, position: int, bounds: ReadBounds) -> None:
        self._window = window
        self._bounds = bounds
        self.start = self.end = position
        self._next_offset = bounds.offset
        self._has_zstd = False

    def step(self) -> Cut | None:
        """Take or skip the batch at `end`; a Cut where the walk is over."""
        window, bounds, at = self._window, self._bounds, self.end
        if window.log_size_bytes - at < _HEAD_BYTES:
            raise Corrupt(f"{window.log_size_bytes - at} bytes after the last batch at {at}")
        header = window.header_at(at)
        if header is None:
            return self._lacking(at + _HEAD_BYTES)
        base, length, magic, attributes, last_delta = header
        after = at + _LOG_OVERHEAD_BYTES + length
        if length <= 0 or after > window.log_size_bytes:
            raise Corrupt(f"batch at {at} claims {length} bytes")
        last = base + last_delta if magic == _MAGIC_V2 else base
        if last < bounds.offset:
            self.start = self.end = after
            return None
        if last >= bounds.upper_offset:
            return self.cut(exhausted=True)
        if after - self.start > bounds.max_bytes and not (bounds.at_least_one and at == self.start):
            return self.cut()
        if window.first_missing(at, after) is not None:
            return self._lacking(after)
        self.end = after
        self._next_offset = last + 1
        self._has_zstd = self._has_zstd or (attributes & _COMPRESSION_MASK) == _ZSTD
        return None

    def _lacking(self, end: int) -> Cut:
        return self.cut(needed_position=self._window.first_missing(self.end, end))

    def cut(self, *, needed_position: int | None = None, exhausted: bool = False) -> Cut:
        return Cut(
            start=self.start,
            end=self.end,
            next_offset=self._next_offset,
            has_zstd=self._has_zstd,
            needed_position=needed_position,
            exhausted=exhausted,
        )
