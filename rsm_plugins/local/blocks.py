"""Segments in blocks as files of a directory; see rsm_plugins.blocks.segments.BlockObjects."""

from kip405.segments import ByteRange, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.source import data_pieces
from rsm_plugins.files.durable import write_at
from rsm_plugins.files.store_tree import StoreTree
from rsm_plugins.layout.keys import data_objects_of, object_name
from rsm_plugins.local.both_objects import write_both
from rsm_plugins.threads import FileThreads, StopFlag


class LocalBlockObjects:
    """Writes and reads both objects of segments; each appears whole or not at all."""

    def __init__(self, tree: StoreTree, threads: FileThreads) -> None:
        self._tree = tree
        self._threads = threads

    async def write_blocks(
        self, locator: SegmentLocator, data: LogSegmentData, plan: BlocksPlan, index: bytes
    ) -> None:
        """See BlockObjects; a copy that was deleted meanwhile cannot finish."""
        await self._threads.run_stoppable(
            lambda flag: self._write(locator, data, plan, index, flag)
        )

    def _write(
        self,
        locator: SegmentLocator,
        data: LogSegmentData,
        plan: BlocksPlan,
        index: bytes,
        flag: StopFlag,
    ) -> None:
        def write_blocks(descriptor: int) -> None:
            position = 0
            for piece in data_pieces(plan, data):
                flag.check()
                write_at(descriptor, piece, position)
                position += len(piece)

        names = [object_name(locator, kind) for kind in data_objects_of(locator)]
        write_both(self._tree, names, write_blocks, index, flag)

    async def read_object(self, name: str) -> bytes:
        """See BlockObjects."""
        return await self._threads.run(self._tree.read, name, "fetch an index from")

    async def read_range(self, name: str, byte_range: ByteRange) -> bytes:
        """See BlockObjects."""
        return await self._threads.run(
            self._tree.read, name, "fetch from", byte_range.start, byte_range.end
        )
