"""A store of ours, some of whose segments have their log in a bucket of Pinterest's uploader.

Manifest and indexes of such a segment are in our store, and so is a reference in place of its log.
Their bucket is only read: `UploadedObjects` has no call that changes anything, so no deletion,
sweep or mistake of ours can reach their data. Deleting an imported segment removes what is ours.
Segments without the mark are those of the store itself.

Their retention may delete an object, and their bucket may be away: a log counts as missing only
while the partition's offset.wm beside it can be read (H11).
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kip405.contracts import (
    ExpectedSegment,
    Presence,
    RemoteStorageManager,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    FileSlice,
    LogSegmentData,
    SegmentLocator,
)
from rsm_plugins.layout.pinterest import (
    WATERMARK,
    PinterestLayout,
    check_mark,
    is_marked,
    mark_of,
    reference,
)
from rsm_plugins.pinterest.settings import PREFIX, pinterest_layout

Where = TypeVar("Where", str, Path)


class UploadedObjects(Protocol):
    """Objects that another uploader keeps, by name below its prefix. Nothing here writes."""

    async def read(self, name: str) -> bytes:
        """The whole object; NotFound."""
        ...

    async def read_range(self, name: str, wanted: ByteRange) -> ByteBuffer:
        """The range clipped to the object's size; NotFound."""
        ...

    async def size_of(self, name: str) -> int | None:
        """In bytes; None: the object or all of them are not there."""
        ...

    def listed(self, folder: str) -> AsyncIterator[StoredObject]:
        """The objects whose names begin with `folder`, in the order of names."""
        ...


class ImportingRemoteStorageManager:
    """The contract over our own store and their objects."""

    def __init__(
        self, own: RemoteStorageManager, layout: PinterestLayout, uploaded: UploadedObjects
    ) -> None:
        self.layout = layout
        self.uploaded = uploaded
        self._own = own

    async def import_segment(
        self, locator: SegmentLocator, log_size_bytes: int, log_crc32c: int, indexes: bytes
    ) -> bytes:
        """Store reference and indexes of a segment whose log was checked; returns the plugin's own
        metadata. Idempotent. The manifest is written after it, as that of a copy.
        """
        name = self.layout.log_of(locator)
        text = reference(name, log_size_bytes, log_crc32c)
        with tempfile.NamedTemporaryFile(prefix="rlm-import-") as file:
            file.write(text)
            file.flush()
            data = LogSegmentData(
                log=FileSlice(path=file.name, position=0, size_bytes=len(text)),
                log_crc32c=crc32c(text),
                indexes=indexes,
                indexes_crc32c=crc32c(indexes),
            )
            await self._own.copy_log_segment_data(locator, data)
        return mark_of(name)

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> ByteBuffer | FileSlice:
        """See RemoteStorageManager."""
        if not is_marked(locator):
            return await self._own.fetch_log_segment(locator, byte_range)
        name = self._log_of(locator)
        try:
            return await self.uploaded.read_range(name, byte_range)
        except NotFound:
            await self._check_there(locator, name)
            raise

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        return await self._own.fetch_indexes(locator)

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager; of an imported segment both what is ours and their log."""
        found = await self._own.stat([self._own_part(one) for one in segments])
        return tuple(
            [
                await self._with_log(expected, own)
                for expected, own in zip(segments, found, strict=True)
            ]
        )

    def _own_part(self, expected: ExpectedSegment) -> ExpectedSegment:
        locator = expected.locator
        if not is_marked(locator) or locator.custom_metadata is None:
            return expected
        crc = CustomMetadata.decode(locator.custom_metadata).log_crc32c
        text = reference(self._log_of(locator), expected.log_size_bytes, crc)
        return ExpectedSegment(
            locator=locator,
            log_size_bytes=len(text),
            indexes_size_bytes=expected.indexes_size_bytes,
        )

    async def _with_log(self, expected: ExpectedSegment, own: SegmentPresence) -> SegmentPresence:
        if own.presence is not Presence.COMPLETE or not is_marked(expected.locator):
            return own
        name = self._log_of(expected.locator)
        size_bytes = await self.uploaded.size_of(name)
        if size_bytes == expected.log_size_bytes:
            return own
        if size_bytes is None:
            await self._check_there(expected.locator, name)
            presence, detail = Presence.MISSING, f"{name} is not there"
        else:
            presence = Presence.DIFFERENT
            detail = f"{name} has {size_bytes} bytes instead of {expected.log_size_bytes}"
        return SegmentPresence(
            presence=presence, manifest_present=own.manifest_present, detail=detail
        )

    def _log_of(self, locator: SegmentLocator) -> str:
        name = self.layout.log_of(locator)
        check_mark(locator, name)
        return name

    async def _check_there(self, locator: SegmentLocator, name: str) -> None:
        """Unavailable unless the object beside it can be read."""
        partition = locator.segment_id.topic_id_partition
        watermark = f"{self.layout.folder(partition.topic, partition.partition)}/{WATERMARK}"
        try:
            await self.uploaded.read(watermark)
        except NotFound as error:
            raise Unavailable(
                f"{name} is not there, and {watermark} is not either: their objects are away, or "
                "they are not the ones that were imported"
            ) from error

    # What follows is of our own store alone.

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager; copies go to our own store."""
        if is_marked(locator):
            raise Invalid(f"segment {locator.segment_id} is imported: its log is not ours to write")
        return await self._own.copy_log_segment_data(locator, data)

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """See RemoteStorageManager."""
        await self._own.write_manifest(locator, manifest)

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        return await self._own.read_manifest(locator)

    async def read_identity(self) -> StoreIdentity | None:
        """See RemoteStorageManager; that of our own store."""
        return await self._own.read_identity()

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """See RemoteStorageManager."""
        return await self._own.create_identity(identity)

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """See RemoteStorageManager; a log that is imported has the size of its reference."""
        async for found in self._own.list_objects(cluster_id, partition):
            yield found

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """See RemoteStorageManager; their log stays."""
        await self._own.delete_log_segment_data(locator)

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """See RemoteStorageManager; their logs stay."""
        return await self._own.delete_log_segments(locators)

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """See RemoteStorageManager."""
        return await self._own.inspect()

    async def close(self) -> None:
        """See RemoteStorageManager."""
        await self._own.close()


def with_imports(
    own: RemoteStorageManager,
    values: Mapping[str, Any],
    bucket_key: str,
    uploaded: Callable[[Where, str], UploadedObjects],
) -> RemoteStorageManager:
    """The store, with imported segments if checked values name a bucket of their uploader.
    `uploaded`: its objects, by bucket and prefix. Invalid: it is given without the cluster.
    """
    layout = pinterest_layout(values, bucket_key)
    if layout is None:
        return own
    return ImportingRemoteStorageManager(
        own, layout, uploaded(values[bucket_key], values[PREFIX.key])
    )
