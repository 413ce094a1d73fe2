"""Finds the bytes of a segment that answer a read, and the aborted transactions of the reader's
lineage.

The read iterates over batch headers in verified chunks, those that the offset index does not pass
over, and decodes nothing. A segment's log
consists of chunks of one size (the last may be shorter). Batches may straddle chunk borders and are
never copied; only a header that straddles one is. Source: Kafka's DefaultRecordBatch layout;
RemoteLogManager.read.

The list of aborted transactions of a segment was made by the leader that copied it (H9). Each entry
ends at an abort marker, which may lie far behind the segment. If that leader's epoch ended early
(an unclean election), markers behind that end belong to a dead lineage: in the leader's lineage
such a transaction continued and may have been committed since, and one that the dead lineage
committed may have been aborted. The segment of the later leader that holds that end decides: its
list has every transaction that was open there and was aborted later. Pure.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kip405.batches import batch_headers
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt
from kip405.indexes import AbortedTransaction, OffsetIndex
from kip405.lineage import Lineage
from rlmm.ledger import SegmentEntry, UsableSegment

_HEAD = struct.Struct(
    ">qi4xb4x2xi"
)  # base offset, length, (epoch), magic, (crc, attributes), last offset delta
_HEAD_BYTES = _HEAD.size
_LOG_OVERHEAD_BYTES = 12
_MAGIC_V2 = 2
# Least batch lengths (after the overhead) by magic: header of v2, empty message of v1 and v0.
_LEAST_V2 = 49
_LEAST_LEGACY = {0: 14, 1: 22}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """From the batch that holds `offset`, up to upper_offset (exclusive) and about max_bytes.

    With `at_least_one`, the first batch is returned even when it is larger than max_bytes (KIP-74).
    """

    offset: int
    upper_offset: int
    max_bytes: int
    at_least_one: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Whole batches [start, end) of the log object; `next_offset` is the first offset after them.

    `needed` (positions, half-open): the scan ended because these bytes are missing, of which the
    first is not loaded; load them and cut again from `start`. `exhausted`: the segment holds
    nothing more below the upper offset.
    """

    start: int
    end: int
    next_offset: int
    needed: tuple[int, int] | None = None
    exhausted: bool = False


class ChunkWindow:
    """The chunks of one segment's log that are loaded so far, by chunk number; positions are those
    of the whole object.
    """

    def __init__(
        self, chunk_size_bytes: int, log_size_bytes: int, chunks: Mapping[int, ByteBuffer]
    ) -> None:
        self.chunk_size_bytes = chunk_size_bytes
        self.log_size_bytes = log_size_bytes
        self._chunks = chunks

    def headers_at(self, position: int) -> tuple[ByteBuffer, int] | None:
        """Bytes with the header at `position`, and its offset in them: a chunk, or a copy of the
        header where it straddles chunks or the log ends sooner (then zeros follow). None if not
        loaded.
        """
        number, inside = divmod(position, self.chunk_size_bytes)
        chunk = self._chunks.get(number)
        if chunk is not None and inside + _HEAD_BYTES <= len(chunk):
            return chunk, inside
        end = min(position + _HEAD_BYTES, self.log_size_bytes)
        if self.loaded_until(position) < end:
            return None
        return b"".join(self.slices(position, end)).ljust(_HEAD_BYTES, b"\0"), 0

    def loaded_until(self, position: int) -> int:
        """First position at or after `position` that is not loaded; the log's size if all is."""
        number = position // self.chunk_size_bytes
        while number in self._chunks:
            number += 1
        return min(max(position, number * self.chunk_size_bytes), self.log_size_bytes)

    def slices(self, start: int, end: int) -> tuple[memoryview, ...]:
        """The bytes [start, end) as views of the chunks, uncopied."""
        size = self.chunk_size_bytes
        return tuple(
            memoryview(self._chunks[number])[
                max(0, start - number * size) : min(size, end - number * size)
            ]
            for number in range(start // size, -(-end // size) if end > start else 0)
        )


def first_offset(piece: ByteBuffer, inside: int) -> int:
    """The base offset of the batch whose header is there (see ChunkWindow.headers_at)."""
    return int(_HEAD.unpack_from(piece, inside)[0])


def cut(
    window: ChunkWindow, position: int, bounds: ReadBounds, index: OffsetIndex | None = None
) -> Cut:
    """Walk from a batch border at `position` to the batches that answer a read.

    Skips batches that end below the offset; stops before one that reaches upper_offset or would
    pass max_bytes. With the segment's `index` only the batches near both ends are walked over, with
    the same result. Corrupt for bytes that are no batches.
    """
    start, least_base = position, 0
    for after, last in _batches(window, position, 0):
        if last >= bounds.offset:
            break
        start, least_base = after, last + 1
    next_offset = bounds.offset
    budget_end = start + bounds.max_bytes
    loaded_until = window.loaded_until(position)
    end = start
    if index is not None:
        limit = min(budget_end, loaded_until)
        end, least_base = _near_end(window, start, least_base, bounds, limit, index)
    needed, exhausted = None, False
    for after, last in _batches(window, end, least_base):
        if last >= bounds.upper_offset:
            exhausted = True
            break
        if after > budget_end and not (bounds.at_least_one and start == end):
            break
        if after > loaded_until:
            loaded_until = window.loaded_until(end)
            if after > loaded_until:
                needed = (loaded_until, after)
                break
        end, next_offset = after, last + 1
    else:
        exhausted = end >= window.log_size_bytes
        if not exhausted:
            needed = (window.loaded_until(end), min(end + _HEAD_BYTES, window.log_size_bytes))
    return Cut(
        start=start,
        end=end,
        next_offset=next_offset,
        needed=needed,
        exhausted=exhausted,
    )


def _near_end(
    window: ChunkWindow,
    start: int,
    least_base: int,
    bounds: ReadBounds,
    limit: int,
    index: OffsetIndex,
) -> tuple[int, int]:
    """A batch border at or after `start`, and the least base offset of the batch there. All batches
    before it are part of the answer, and so is at least one behind it.

    The batch there must be the one that the index says; otherwise every batch is walked over.
    """
    found = index.entry_before_last(limit, bounds.upper_offset)
    if found is None or found[1] <= start:
        return start, least_base
    offset, position = found
    headers = window.headers_at(position)
    if headers is None:
        return start, least_base
    base = _HEAD.unpack_from(*headers)[0]
    return (position, base) if bounds.offset < base <= offset else (start, least_base)


def _batches(window: ChunkWindow, at: int, least_base: int) -> Iterator[tuple[int, int]]:
    """(position after, last offset) of every batch from `at` on whose header is loaded; the first
    one begins at or above `least_base`.

    The inner loop runs once per batch, a million times for a GB of small batches, so it is kept
    flat.
    """
    unpack, log_size = _HEAD.unpack_from, window.log_size_bytes
    while at < log_size and (headers := window.headers_at(at)) is not None:
        piece, inside = headers
        last_inside = len(piece) - _HEAD_BYTES
        while inside <= last_inside:
            base, length, magic, delta = unpack(piece, inside)
            if magic == _MAGIC_V2 and length >= _LEAST_V2 and delta >= 0:
                last = base + delta
            elif length >= _LEAST_LEGACY.get(magic, length + 1):
                last = base
            else:
                raise Corrupt(f"batch at {at}: magic {magic}, {length} bytes, delta {delta}")
            size = length + _LOG_OVERHEAD_BYTES
            at += size
            inside += size
            if at > log_size or base < least_base:
                raise Corrupt(
                    f"batch at {at - size}: {size} bytes of {log_size}, offset {base}, "
                    f"at least {least_base} expected"
                )
            least_base = last + 1
            yield at, last


def shared_end(
    usable: UsableSegment, entry: SegmentEntry | None, lineage: Lineage, log_end_offset: int
) -> int | None:
    """The offset up to which the copying leader's log is in the leader's lineage; None = nothing
    contradicts.

    By the epoch under which the segment was published, and by where the segment itself was cut.
    """
    ends = []
    if usable.next_offset < usable.metadata.next_offset:
        ends.append(usable.next_offset)
    latest = lineage.latest_epoch
    if entry is not None and latest is not None and entry.leader_epoch < latest:
        found = lineage.end_offset_for(entry.leader_epoch, log_end_offset)
        if found is not None and lineage.start_of(found[0]) is not None:
            ends.append(max(found[1], usable.next_offset))
    return min(ends, default=None)


def decided_below(
    aborted: Iterable[AbortedTransaction], end: int
) -> tuple[AbortedTransaction, ...]:
    """Transactions whose marker is in the shared part of the lineage."""
    return tuple(one for one in aborted if one.last_offset < end)


def open_at(aborted: Iterable[AbortedTransaction], end: int) -> tuple[AbortedTransaction, ...]:
    """Transactions that were open at the offset and aborted after it."""
    return tuple(one for one in aborted if one.first_offset < end <= one.last_offset)


def has_transactions(records: Sequence[bytes | memoryview]) -> bool:
    """Whether any of these whole batches has records of a transaction. Corrupt for other bytes."""
    batches = b"".join(records)
    return any(
        header.is_transactional and not header.is_control for _, header in batch_headers(batches)
    )
