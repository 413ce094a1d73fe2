"""Where each batch of a log goes: the blocks, their checksums, and a sparse table of positions.

The log is read once, in pieces of any size, and its CRC-32C is computed on the way. So a plan whose
log has the CRC-32C of the copy is a plan for the very bytes that the copy is to store. The bytes
that are sent later are proved against the plan again, block by block. Memory is bounded by the
number of blocks and of MiBs, not by that of batches. Sans-IO.
"""

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from kip405.batches import PREFIX_BYTES, size_at
from kip405.crc import ByteBuffer, crc32c, joined_crc32c
from kip405.errors import Corrupt
from kip405.scan import MAX_BATCH_BYTES
from rsm_plugins.blocks.format import (
    BLOCK_HEADER_BYTES,
    ENTRY_HEADER_BYTES,
    Block,
    block_header,
    entry_header,
    filling,
)

POINT_INTERVAL_BYTES = 1024 * 1024
"""A point of the sparse table is the batch that holds a multiple of so many bytes of the log."""
_PIECE_BYTES = 1024 * 1024
_INT64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBegin:
    """A batch begins; `log_position` is where."""

    entry_id: int
    size_bytes: int
    log_position: int


class BatchCutter:
    """Cuts the bytes of a log into batches. Feed it from `log_position` on, where a batch begins.

    Only offset and length of a batch are read. A batch may straddle feeds.
    """

    def __init__(self, log_position: int = 0, *, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._position = log_position
        self._max_batch_bytes = max_batch_bytes
        self._carry = b""
        self._left = 0
        self._last_id = -1

    def feed(self, data: ByteBuffer) -> Iterator[tuple[BatchBegin | None, ByteBuffer]]:
        """Runs of bytes of one batch each, with the batch where the run is its beginning."""
        if self._carry:
            data = self._carry + bytes(data)
            self._carry = b""
        view, at = memoryview(data), 0
        while at < len(view):
            begin = None
            if not self._left:
                if len(view) - at < PREFIX_BYTES:
                    self._carry = bytes(view[at:])
                    return
                begin = self._begin(view, at)
                self._left = begin.size_bytes
            run = view[at : at + self._left]
            at += len(run)
            self._left -= len(run)
            self._position += len(run)
            yield begin, run

    def _begin(self, view: memoryview, at: int) -> BatchBegin:
        try:
            size_bytes = size_at(view, at)
        except Corrupt as error:
            raise Corrupt(f"at position {self._position} of the log: {error}") from error
        (entry_id,) = _INT64.unpack_from(view, at)
        if size_bytes is None or size_bytes > self._max_batch_bytes or entry_id <= self._last_id:
            raise Corrupt(
                f"at position {self._position} of the log: a batch of {size_bytes} bytes at offset "
                f"{entry_id} after {self._last_id}"
            )
        self._last_id = entry_id
        return BatchBegin(entry_id=entry_id, size_bytes=size_bytes, log_position=self._position)

    def finish(self) -> int:
        """Id of the last batch, -1 without any; Corrupt where the log ends inside one."""
        if self._left or self._carry:
            raise Corrupt(f"the log ends inside a batch, at position {self._position}")
        return self._last_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionPoints:
    """Entries of known location: positions of batches in the raw log, and of their entries in
    the data object; both ascend.
    """

    log_positions: "array[int]"
    positions: "array[int]"

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksPlan:
    """The data object of a log before it is written; `block_crcs` are those of whole blocks."""

    block_size_bytes: int
    blocks: tuple[Block, ...]
    block_crcs: tuple[int, ...]
    points: PositionPoints
    last_entry_id: int
    log_size_bytes: int
    log_crc32c: int

    @property
    def data_size_bytes(self) -> int:
        return self.blocks[-1].end if self.blocks else 0

    @property
    def data_crc32c(self) -> int:
        """Of the whole data object."""
        crc = 0
        for block, block_crc in zip(self.blocks, self.block_crcs, strict=True):
            crc = joined_crc32c(crc, block_crc, block.size_bytes)
        return crc


class BatchTooLarge(Exception):
    """A batch does not fit in any block of the size; `block_size_bytes` is one in which it does:
    the smallest multiple.
    """

    def __init__(self, block_size_bytes: int) -> None:
        super().__init__(f"a batch needs blocks of {block_size_bytes} bytes")
        self.block_size_bytes = block_size_bytes


class BlockPlanner:
    """Feed it a log from its first byte on, then `finish`. Corrupt for a log that is not whole
    batches of ascending offsets, BatchTooLarge for one that needs larger blocks.
    """

    def __init__(
        self, block_size_bytes: int, *, interval_bytes: int = POINT_INTERVAL_BYTES
    ) -> None:
        self._block_size_bytes = block_size_bytes
        self._interval_bytes = interval_bytes
        self._cutter = BatchCutter()
        self._blocks: list[Block] = []
        self._crcs: list[int] = []
        self._points = PositionPoints(log_positions=array("q"), positions=array("q"))
        self._log_bytes = 0
        self._log_crc = 0
        # Of the block that is being filled:
        self._first_id = -1
        self._log_position = 0
        self._entry_count = 0
        self._used_bytes = 0
        self._crc = 0

    def feed(self, data: ByteBuffer) -> None:
        """The next bytes of the log."""
        self._log_crc = crc32c(data, self._log_crc)
        self._log_bytes += len(data)
        for begin, run in self._cutter.feed(data):
            if begin is not None:
                self._add_entry(begin)
            self._crc = crc32c(run, self._crc)

    def _add_entry(self, batch: BatchBegin) -> None:
        entry_bytes = ENTRY_HEADER_BYTES + batch.size_bytes
        if self._used_bytes and self._used_bytes + entry_bytes > self._block_size_bytes:
            self._close(batch.log_position, self._block_size_bytes)
        if not self._used_bytes:
            self._begin_block(batch, entry_bytes)
        self._note_point(batch)
        self._entry_count += 1
        self._used_bytes += entry_bytes
        self._crc = crc32c(entry_header(batch.size_bytes, batch.entry_id), self._crc)

    def _begin_block(self, batch: BatchBegin, entry_bytes: int) -> None:
        wanted_bytes = BLOCK_HEADER_BYTES + entry_bytes
        if wanted_bytes > self._block_size_bytes:
            count = -(-wanted_bytes // self._block_size_bytes)
            raise BatchTooLarge(count * self._block_size_bytes)
        self._first_id = batch.entry_id
        self._log_position = batch.log_position
        self._entry_count = self._crc = 0
        self._used_bytes = BLOCK_HEADER_BYTES

    def _note_point(self, batch: BatchBegin) -> None:
        start, end = batch.log_position, batch.log_position + batch.size_bytes
        if (end - 1) // self._interval_bytes > (start - 1) // self._interval_bytes:
            self._points.log_positions.append(start)
            self._points.positions.append(self._block_position + self._used_bytes)

    @property
    def _block_position(self) -> int:
        return self._blocks[-1].end if self._blocks else 0

    def _close(self, log_end: int, size_bytes: int) -> None:
        """The header is known only now: the last block has the size of what is in it."""
        crc, left = self._crc, size_bytes - self._used_bytes
        for run in filling_runs(left):
            crc = crc32c(run, crc)
        header = crc32c(block_header(size_bytes, self._first_id))
        self._crcs.append(joined_crc32c(header, crc, size_bytes - BLOCK_HEADER_BYTES))
        self._blocks.append(
            Block(
                number=len(self._blocks) + 1,
                first_entry_id=self._first_id,
                position=self._block_position,
                size_bytes=size_bytes,
                log_position=self._log_position,
                log_size_bytes=log_end - self._log_position,
                entry_count=self._entry_count,
            )
        )
        self._used_bytes = 0

    def finish(self) -> BlocksPlan:
        """The plan; Corrupt where the log ends inside a batch."""
        last_entry_id = self._cutter.finish()
        if self._used_bytes:
            self._close(self._log_bytes, self._used_bytes)
        return BlocksPlan(
            block_size_bytes=self._block_size_bytes,
            blocks=tuple(self._blocks),
            block_crcs=tuple(self._crcs),
            points=self._points,
            last_entry_id=last_entry_id,
            log_size_bytes=self._log_bytes,
            log_crc32c=self._log_crc,
        )


def filling_runs(size_bytes: int) -> Iterator[bytes]:
    """The filling of a block in pieces; each but the last has whole patterns."""
    if size_bytes >= _PIECE_BYTES:
        piece = filling(_PIECE_BYTES)
        for _ in range(size_bytes // _PIECE_BYTES):
            yield piece
    if rest := size_bytes % _PIECE_BYTES:
        yield filling(rest)
