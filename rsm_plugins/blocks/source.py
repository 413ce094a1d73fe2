"""The bytes of a data object, made from the log file while they are sent or written.

Each block is made for itself, so that blocks can be sent in parallel, and made again for another
try. Memory is bounded by a piece. What was made is proved against the plan before its last piece is
given out: nobody gets a whole block that is not the planned one. Synchronous, for threads.
"""

from collections.abc import Callable, Iterator

from kip405.crc import crc32c
from kip405.errors import Corrupt
from kip405.segments import LogSegmentData
from rsm_plugins.blocks.format import Block, block_header, entry_header
from rsm_plugins.blocks.plan import (
    BatchCutter,
    BatchTooLarge,
    BlockPlanner,
    BlocksPlan,
    filling_runs,
)
from rsm_plugins.files.segment_files import source_pieces


def plan_of(
    data: LogSegmentData, block_size_bytes: int, go_on: Callable[[], None] = lambda: None
) -> BlocksPlan:
    """The plan for the log of a copy, which is read once; with larger blocks where a batch needs
    them, which is then read again.

    Corrupt unless the log has its CRC-32C and is whole batches; Fenced where the file is gone or
    cut short. `go_on` is called between pieces and may raise.
    """
    try:
        plan = _planned(data, block_size_bytes, go_on)
    except BatchTooLarge as error:
        return plan_of(data, error.block_size_bytes, go_on)
    if plan.log_crc32c != data.log_crc32c:
        raise Corrupt(
            f"the bytes read from {data.log.path} have CRC-32C {plan.log_crc32c:08x}, not "
            f"{data.log_crc32c:08x}"
        )
    return plan


def _planned(data: LogSegmentData, block_size_bytes: int, go_on: Callable[[], None]) -> BlocksPlan:
    planner = BlockPlanner(block_size_bytes)
    try:
        for piece in source_pieces(data.log, 0, data.log.size_bytes):
            go_on()
            planner.feed(piece)
        return planner.finish()
    except Corrupt as error:
        raise Corrupt(f"{data.log.path} cannot be stored in blocks: {error}") from error


def block_pieces(plan: BlocksPlan, block: Block, data: LogSegmentData) -> Iterator[bytes]:
    """The block from its first byte on; Corrupt instead of its last piece where it is not the
    planned one, Fenced where the file is gone or cut short.
    """
    crc, size_bytes, held = 0, 0, b""
    for piece in _made(block, data):
        if held:
            yield held
        crc, size_bytes, held = crc32c(piece, crc), size_bytes + len(piece), piece
    planned = plan.block_crcs[block.number - 1]
    if crc != planned or size_bytes != block.size_bytes:
        raise Corrupt(
            f"block {block.number} from {data.log.path} has {size_bytes} bytes with CRC-32C "
            f"{crc:08x}, planned were {block.size_bytes} with {planned:08x}"
        )
    yield held


def _made(block: Block, data: LogSegmentData) -> Iterator[bytes]:
    runs: list[bytes | memoryview] = [block_header(block.size_bytes, block.first_entry_id)]
    cutter = BatchCutter(block.log_position)
    for piece in source_pieces(data.log, block.log_position, block.log_size_bytes):
        for batch, run in cutter.feed(piece):
            if batch is not None:
                runs.append(entry_header(batch.size_bytes, batch.entry_id))
            runs.append(memoryview(run))
        yield b"".join(runs)
        runs = []
    cutter.finish()
    yield from filling_runs(block.end - block.entries_end)


def data_pieces(plan: BlocksPlan, data: LogSegmentData) -> Iterator[bytes]:
    """The whole data object in order; errors as `block_pieces`."""
    for block in plan.blocks:
        yield from block_pieces(plan, block, data)
