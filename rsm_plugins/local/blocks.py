"""Segments in blocks as files of a directory; see rsm_plugins.blocks.segments.BlockObjects."""

from kip405.segments import ByteRange, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.source import data_pieces
from rsm_plugins.files.durable import make_durable, write_at
from rsm_plugins.files.page_cache import drop_written
from rsm_plugins.files.store_tree import StoreTree
from rsm_plugins.layout.keys import ObjectKind, object_name
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
        folder, _, data_file = object_name(locator, ObjectKind.BLOCKS).rpartition("/")
        index_file = object_name(locator, ObjectKind.BLOCKS_INDEX).rpartition("/")[2]
        with (
            self._tree.opened("copy to") as base,
            self._tree.new_file(base, folder, data_file) as new,
        ):
            index_name, index_descriptor = new.temporary.create(index_file)
            position = 0
            for piece in data_pieces(plan, data):
                flag.check()
                write_at(new.descriptor, piece, position)
                position += len(piece)
            write_at(index_descriptor, index, 0)
            make_durable(new.descriptor)
            drop_written(new.descriptor)
            make_durable(index_descriptor)
            flag.check()
            new.temporary.publish(index_name, index_file)
            new.temporary.publish(new.name, data_file)
            new.temporary.make_durable()

    async def read_object(self, name: str) -> bytes:
        """See BlockObjects."""
        return await self._threads.run(self._tree.read, name, "fetch an index from")

    async def read_range(self, name: str, byte_range: ByteRange) -> bytes:
        """See BlockObjects."""
        return await self._threads.run(
            self._tree.read, name, "fetch from", byte_range.start, byte_range.end
        )
