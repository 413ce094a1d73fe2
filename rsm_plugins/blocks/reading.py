"""Ranges of a raw log out of a data object: which bytes to read, and the batches in them.

The index has the start of each block and, by the sparse table, of about one entry in a MiB of the
log. Entries that reads have met are remembered, and refine it. So a read begins at the batch that
it needs, or near it, and ends with the range that is wanted. Pure: the caller reads the bytes.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kip405.batches import PREFIX_BYTES, size_at
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt
from kip405.segments import ByteRange
from rsm_plugins.blocks.format import (
    BLOCK_HEADER_BYTES,
    ENTRY_HEADER_BYTES,
    Block,
    check_block_header,
    read_entry_header,
)
from rsm_plugins.blocks.index import BlocksIndex
from rsm_plugins.layout.stored import ObjectContent

REMEMBERED_MAX = 512
"""Entries that are remembered of one segment beside those of its index."""
KEPT_INDEX_BYTES = 32 * 1024 * 1024
"""Indexes of all segments together; the index of 1 GiB in blocks of 64 MiB takes 20 KiB."""


@dataclass(frozen=True, slots=True, order=True)
class EntryLocation:
    """Where a batch begins in the raw log, and its entry in the data object."""

    log_position: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRead:
    """Bytes [start, end) of the data object, all of one block. They begin with an entry, or with
    the block's header, and have the bytes [log_start, log_end) of the raw log.

    `first` is the location of the first entry read, `next_entry_id` what all ids of the block are
    below.
    """

    block: Block
    first: EntryLocation
    start: int
    end: int
    log_start: int
    log_end: int
    next_entry_id: int


class PositionTable:
    """Known locations of entries in one segment; `remember` adds to them, and forgets the
    oldest where there are too many.
    """

    def __init__(self, index: BlocksIndex, *, remembered_max: int = REMEMBERED_MAX) -> None:
        self._index = index
        self._remembered_max = remembered_max
        self._sorted: list[EntryLocation] = []
        self._order: deque[EntryLocation] = deque()

    def remember(self, location: EntryLocation) -> None:
        """Note the location of an entry that was read."""
        at = bisect_left(self._sorted, location)
        if self._sorted[at : at + 1] == [location]:
            return
        insort(self._sorted, location)
        self._order.append(location)
        if len(self._order) > self._remembered_max:
            self._sorted.remove(self._order.popleft())

    def at_or_before(self, block: Block, log_position: int) -> EntryLocation:
        """The last known entry of the block that begins at or before a position of the log."""
        found = EntryLocation(block.log_position, block.first_entry)
        points = self._index.points
        at = bisect_right(points.log_positions, log_position) - 1
        if at >= 0:
            found = max(found, EntryLocation(points.log_positions[at], points.positions[at]))
        at = bisect_right(self._sorted, log_position, key=_log_position) - 1
        if at >= 0:
            found = max(found, self._sorted[at])
        return found

    def at_or_after(self, block: Block, log_position: int) -> EntryLocation:
        """The first known entry that begins at or after it, or the end of the block's entries."""
        found = EntryLocation(block.log_end, block.entries_end)
        points = self._index.points
        at = bisect_left(points.log_positions, log_position)
        if at < len(points):
            found = min(found, EntryLocation(points.log_positions[at], points.positions[at]))
        at = bisect_left(self._sorted, log_position, key=_log_position)
        if at < len(self._sorted):
            found = min(found, self._sorted[at])
        return found


def _log_position(location: EntryLocation) -> int:
    return location.log_position


def reads_of(index: BlocksIndex, table: PositionTable, wanted: ByteRange) -> tuple[BlockRead, ...]:
    """What to read for a range of the raw log, clipped to its size: one read for each block."""
    start, end = wanted.start, min(wanted.end, index.log_size_bytes)
    if start >= end:
        return ()
    blocks = index.blocks
    at = bisect_right(blocks, start, key=lambda block: block.log_position) - 1
    reads: list[BlockRead] = []
    while at < len(blocks) and blocks[at].log_position < end:
        after = blocks[at + 1].first_entry_id if at + 1 < len(blocks) else 2**63
        reads.append(_read_of(blocks[at], table, start, end, after))
        at += 1
    return tuple(reads)


def _read_of(
    block: Block, table: PositionTable, start: int, end: int, next_entry_id: int
) -> BlockRead:
    log_start, log_end = max(start, block.log_position), min(end, block.log_end)
    first = table.at_or_before(block, log_start)
    begins_block = first.log_position == block.log_position
    return BlockRead(
        block=block,
        first=first,
        start=block.position if begins_block else first.position,
        end=_end_of(block, table, log_end),
        log_start=log_start,
        log_end=log_end,
        next_entry_id=next_entry_id,
    )


def _end_of(block: Block, table: PositionTable, log_end: int) -> int:
    """A position in the data object that is not before the end of a range in the log.

    Between two known entries lie as many headers as their distances differ by. How many of them are
    before the end is not known, so all of them are read: a few bytes for each batch.
    """
    if log_end == block.log_end:  # where a known entry may be the first of the next block
        return block.entries_end
    before, after = table.at_or_before(block, log_end), table.at_or_after(block, log_end)
    if before.log_position == log_end:
        return before.position
    log_bytes = after.log_position - before.log_position
    headers_bytes = after.position - before.position - log_bytes
    return before.position + (log_end - before.log_position) + headers_bytes


def batches_in(read: BlockRead, data: ByteBuffer) -> tuple[list[memoryview], EntryLocation | None]:
    """The wanted bytes of the raw log in the bytes that were read, in runs; and the location of the
    entry with which the next read begins, None at the end of the block.

    Corrupt where a header, an id or a length is not what index and batches say, or bytes are
    missing.
    """
    view = memoryview(data)
    if len(view) != read.end - read.start:
        raise Corrupt(
            f"the data object has {len(view)} of the {read.end - read.start} bytes at position "
            f"{read.start}: it is shorter than its index says"
        )
    if read.start == read.block.position:
        check_block_header(view[:BLOCK_HEADER_BYTES], read.block)
    at, log_at, last_id = read.first.position - read.start, read.first.log_position, -1
    runs: list[memoryview] = []
    location = read.first
    while log_at < read.log_end:
        location = EntryLocation(log_at, read.start + at)
        size_bytes, last_id = _entry_at(read, view, at, location, last_id)
        start, end = max(read.log_start - log_at, 0), min(read.log_end - log_at, size_bytes)
        at += ENTRY_HEADER_BYTES
        if start < end:
            run = view[at + start : at + end]
            if len(run) != end - start:
                raise Corrupt(f"the entry at position {location.position} is cut short")
            runs.append(run)
        at += size_bytes
        log_at += size_bytes
    if log_at == read.log_end:
        is_last = log_at == read.block.log_end
        return runs, None if is_last else EntryLocation(log_at, read.start + at)
    return runs, location


def _entry_at(
    read: BlockRead, view: memoryview, at: int, location: EntryLocation, last_id: int
) -> tuple[int, int]:
    """(size in bytes, id) of an entry, checked against the block and against its own batch."""
    if len(view) - at < ENTRY_HEADER_BYTES:
        raise Corrupt(f"no entry at position {location.position}: the bytes end before its header")
    size_bytes, entry_id = read_entry_header(view, at)
    block, body = read.block, view[at + ENTRY_HEADER_BYTES :]
    first_id = block.first_entry_id
    is_first = location.log_position == block.log_position
    if (
        not PREFIX_BYTES < size_bytes <= block.log_end - location.log_position
        or not max(first_id, last_id + 1) <= entry_id < read.next_entry_id
        or is_first != (entry_id == first_id)
    ):
        raise Corrupt(
            f"entry {entry_id} of {size_bytes} bytes at position {location.position} cannot be in "
            f"block {block.number}, whose entries begin with {first_id}, after entry {last_id}"
        )
    batch_bytes = size_at(body, 0)
    if batch_bytes is not None and (
        batch_bytes != size_bytes or int.from_bytes(body[:8], signed=True) != entry_id
    ):
        raise Corrupt(
            f"entry {entry_id} of {size_bytes} bytes at position {location.position} holds a batch "
            f"of {batch_bytes} bytes with offset {int.from_bytes(body[:8], signed=True)}"
        )
    return size_bytes, entry_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSegment:
    """What is kept of a segment between reads; `content` is that of the index object."""

    index: BlocksIndex
    table: PositionTable
    content: ObjectContent


class KnownSegments:
    """The indexes that were used last by the name of their object, without the indexes objects in
    them; their memory is bounded.
    """

    def __init__(self, max_bytes: int = KEPT_INDEX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, KnownSegment] = OrderedDict()
        self._kept_bytes = 0

    def get(self, key: str) -> KnownSegment | None:
        """The segment, if it is kept."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: str, index: BlocksIndex, content: ObjectContent) -> KnownSegment:
        """Keep an index that was read; what reads of the same content remembered stays."""
        known = self.get(key)
        if known is not None and known.content == content:
            return known
        self.forget((key,))
        index = replace(index, indexes=b"")
        known = KnownSegment(index=index, table=PositionTable(index), content=content)
        self._kept[key] = known
        self._kept_bytes += _memory_of(index)
        while self._kept_bytes > self._max_bytes and len(self._kept) > 1:
            self._kept_bytes -= _memory_of(self._kept.popitem(last=False)[1].index)
        return known

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is kept of these; others wrote or removed them."""
        for key in keys:
            dropped = self._kept.pop(key, None)
            if dropped is not None:
                self._kept_bytes -= _memory_of(dropped.index)


def _memory_of(index: BlocksIndex) -> int:
    """With all that may be remembered."""
    return index.kept_bytes + REMEMBERED_MAX * 100
