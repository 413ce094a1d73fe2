"""Objects of Pinterest's uploader in a bucket: reads and listings, and nothing else."""

from collections.abc import AsyncIterator

from kip405.contracts import StoredObject
from kip405.crc import ByteBuffer
from kip405.segments import ByteRange
from rsm_plugins.s3.objects import Objects


class S3UploadedObjects:
    """See UploadedObjects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def read(self, name: str) -> bytes:
        """See UploadedObjects."""
        return await self._objects.read(name)

    async def read_range(self, name: str, wanted: ByteRange) -> ByteBuffer:
        """See UploadedObjects."""
        return await self._objects.read_range(name, wanted)

    async def size_of(self, name: str) -> int | None:
        """See UploadedObjects."""
        return await self._objects.size_of(name)

    async def listed(self, folder: str) -> AsyncIterator[StoredObject]:
        """See UploadedObjects."""
        async for page in self._objects.pages(folder):
            for found in page.objects:
                yield found
