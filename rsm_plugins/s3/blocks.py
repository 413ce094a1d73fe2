"""Segments in blocks as objects of a bucket; see rsm_plugins.blocks.segments.BlockObjects.

A block is a part of the upload. It is made from the log file by a thread while it is sent, so that
no block is in memory, and parts go in parallel. The server verifies each by the CRC-32C of the
plan. A data object of one block is one PUT. Both objects name the version of their format in their
user metadata.
"""

from collections.abc import Iterator

from kip405.crc import ByteBuffer, crc32c
from kip405.segments import ByteRange, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.format import FORMAT_VERSION, Block
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.source import block_pieces
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.s3.bodies import Body, StreamedBody
from rsm_plugins.s3.objects import Objects, UserMetadata, segment_metadata
from rsm_plugins.s3.uploads import Uploads
from rsm_plugins.threads import FileThreads

FORMAT_VERSION_KEY = "rlm-format-version"


class BlockBody(Body):
    """A block that is sent in one request, made while it is sent. Its last piece goes only where
    the whole is the planned block. See Body.
    """

    def __init__(
        self, plan: BlocksPlan, block: Block, data: LogSegmentData, threads: FileThreads
    ) -> None:
        self._plan = plan
        self._block = block
        self._data = data
        self._threads = threads

    def __len__(self) -> int:
        return self._block.size_bytes

    def pieces(self) -> Iterator[bytes]:
        """See Body; Corrupt, or Fenced where the file is gone or cut short."""
        return block_pieces(self._plan, self._block, self._data)

    async def for_aiohttp(self) -> StreamedBody:
        """See Body; a block may have 2 GiB."""
        return StreamedBody(self, self._threads)


class S3BlockObjects:
    """Writes and reads both objects of segments."""

    def __init__(self, objects: Objects, uploads: Uploads, threads: FileThreads) -> None:
        self._objects = objects
        self._uploads = uploads
        self._threads = threads

    async def write_blocks(
        self, locator: SegmentLocator, data: LogSegmentData, plan: BlocksPlan, index: bytes
    ) -> None:
        """See BlockObjects."""
        metadata = segment_metadata(locator, data.end_offset)
        metadata[FORMAT_VERSION_KEY] = str(FORMAT_VERSION)
        name = object_name(locator, ObjectKind.BLOCKS)
        index_name = object_name(locator, ObjectKind.BLOCKS_INDEX)
        bodies = [BlockBody(plan, block, data, self._threads) for block in plan.blocks]
        if len(bodies) <= 1:
            body = bodies[0] if bodies else b""
            async with self._uploads.permits:
                await self._objects.write(
                    name, body, metadata=metadata, checksum=plan.data_crc32c, data=True
                )
            await self._write_index(index_name, index, metadata)
            return
        parts = tuple(zip(bodies, plan.block_crcs, strict=True))
        upload = await self._uploads.upload_parts(name, parts, metadata)
        try:
            await self._write_index(index_name, index, metadata)
            await upload.complete()
        except BaseException:
            await upload.abort()
            raise

    async def _write_index(self, name: str, index: bytes, metadata: UserMetadata) -> None:
        await self._objects.write(name, index, metadata=metadata, checksum=crc32c(index), data=True)

    async def read_object(self, name: str) -> bytes:
        """See BlockObjects."""
        return await self._objects.read(name)

    async def read_range(self, name: str, byte_range: ByteRange) -> ByteBuffer:
        """See BlockObjects."""
        return await self._objects.read_range(name, byte_range)
