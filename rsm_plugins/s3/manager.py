"""The RemoteStorageManager over a bucket: a segment's objects, and the order of writes and deletes.

Bytes become visible whole: a log by one PUT or a completed upload, after every byte was proved. A
manifest and the identity are written only if absent. An existing manifest with the same bytes is
success. A different one is Fenced, because a copy attempt has one writer, and the object that says
which bytes are in the ledger must not change under it. A bucket is believed only if it answers;
otherwise it is Unavailable, never empty. `KIND` declares the settings and opens the store.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kip405.contracts import (
    ExpectedSegment,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Fenced, Internal, Invalid, NotFound, RemoteStorageError
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, FileSlice, Layout, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.segments import BlockSegments
from rsm_plugins.layout.keys import (
    IDENTITY_NAME,
    ObjectKind,
    check_cluster_id,
    data_objects_of,
    is_segment_object,
    layout_of,
    names_prefix,
    object_name,
    object_names,
)
from rsm_plugins.layout.manifest import check_manifest_size, decode_identity, encode_identity
from rsm_plugins.layout.pinterest import refuse_marked
from rsm_plugins.layout.stored import check_given_indexes
from rsm_plugins.pinterest.manager import with_imports
from rsm_plugins.pinterest.settings import layouts_with
from rsm_plugins.pinterest.views import needs_views, not_configured
from rsm_plugins.s3.blocks import S3BlockObjects
from rsm_plugins.s3.calls import Calls, Connection, Pause, pause, quiet_library, together
from rsm_plugins.s3.findings import findings_of, findings_with_versions
from rsm_plugins.s3.objects import (
    AlreadyThere,
    Objects,
    UserMetadata,
    end_offset_of,
    segment_metadata,
)
from rsm_plugins.s3.pinterest import PinterestSegments, with_log_sizes
from rsm_plugins.s3.presence import REQUESTS_AT_ONCE, listed, presence_in
from rsm_plugins.s3.settings import PINTEREST_BUCKET, SETTINGS, S3Settings, s3_settings
from rsm_plugins.s3.uploaded import S3UploadedObjects
from rsm_plugins.s3.uploads import Uploads
from rsm_plugins.s3.versions import Versions
from rsm_plugins.segment_deletes import delete_each
from rsm_plugins.store_kinds import OpenStore, StoreKind
from rsm_plugins.threads import FileThreads


class S3RemoteStorageManager:
    """The contract over one bucket and prefix; its creator calls `close`."""

    def __init__(self, settings: S3Settings, threads: FileThreads, pause: Pause) -> None:
        self._settings = settings
        self._connection = Connection(settings)
        calls = Calls(
            self._connection,
            max_connections=settings.max_connections,
            call_timeout_ms=settings.call_timeout_ms,
            attempt_timeout_ms=settings.attempt_timeout_ms,
            pause=pause,
        )
        self._objects = Objects(calls, settings)
        self._uploads = Uploads(
            self._objects,
            threads,
            part_size_bytes=settings.part_size_bytes,
            concurrency=settings.upload_concurrency,
        )
        self._blocks = BlockSegments(
            S3BlockObjects(self._objects, self._uploads, threads),
            threads,
            block_size_bytes=settings.block_size_bytes,
        )
        self._pinterest = self._pinterest_segments(settings, calls)

    def _pinterest_segments(self, settings: S3Settings, calls: Calls) -> PinterestSegments | None:
        if settings.pinterest is None:
            return None
        objects = Objects(calls, replace(settings, prefix=settings.pinterest_prefix))
        return PinterestSegments(
            layout=settings.pinterest,
            own=self._objects,
            objects=objects,
            uploads=self._uploads.of(objects),
            versions=Versions(objects, settings.pinterest_prefix),
            own_versions=Versions(self._objects, settings.prefix),
        )

    async def read_identity(self) -> StoreIdentity | None:
        """See RemoteStorageManager."""
        try:
            found = await self._objects.read(IDENTITY_NAME)
        except NotFound:
            return None
        return decode_identity(found, self._objects.location(IDENTITY_NAME))

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """See RemoteStorageManager; of concurrent creators one wins (If-None-Match)."""
        check_cluster_id(identity.cluster_id)
        found = await self.read_identity()
        if found is not None:
            return found
        metadata = {"rlm-cluster": identity.cluster_id}
        with suppress(AlreadyThere):  # then another writer's object is the identity
            await self._write_new(IDENTITY_NAME, encode_identity(identity), metadata)
        found = await self.read_identity()
        if found is None:
            raise Internal(
                f"{self._objects.location(IDENTITY_NAME)} is not there after it was written"
            )
        return found

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager; Fenced where the file to copy is gone or cut short."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.copy(locator, data)
        pinterest = self._pinterest_of(locator)
        if pinterest is not None:
            return await pinterest.copy(locator, data)
        log = object_name(locator, ObjectKind.LOG)
        indexes = object_name(locator, ObjectKind.INDEXES)
        check_given_indexes(data, indexes)
        metadata = segment_metadata(locator, data.end_offset)
        if data.log.size_bytes <= self._settings.part_size_bytes:
            await self._copy_small(log, indexes, data, metadata)
        else:
            await self._copy_large(log, indexes, data, metadata)
        return b""

    async def _copy_small(
        self, log: str, indexes: str, data: LogSegmentData, metadata: UserMetadata
    ) -> None:
        """The log first: it is proved while it is sent, and where that fails nothing stays."""
        async with self._uploads.permits:
            await self._objects.write(
                log,
                self._uploads.body_of(data),
                metadata=metadata,
                checksum=data.log_crc32c,
                data=True,
            )
        await self._write_indexes(indexes, data, metadata)

    async def _copy_large(
        self, log: str, indexes: str, data: LogSegmentData, metadata: UserMetadata
    ) -> None:
        upload = await self._uploads.upload(log, data, metadata)
        try:
            await self._write_indexes(indexes, data, metadata)
            await upload.complete()
        except BaseException:
            await upload.abort()
            raise

    async def _write_indexes(self, name: str, data: LogSegmentData, metadata: UserMetadata) -> None:
        await self._objects.write(
            name, data.indexes, metadata=metadata, checksum=data.indexes_crc32c, data=True
        )

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """See RemoteStorageManager; Fenced where the attempt has another manifest already, Invalid
        for an empty one or one over 1 MiB.
        """
        check_manifest_size(manifest)
        name = object_name(locator, ObjectKind.MANIFEST)
        metadata = segment_metadata(locator, end_offset_of(manifest))
        pinterest = self._pinterest_of(locator)
        if pinterest is not None:
            await pinterest.publish(locator)
        try:
            await self._write_new(name, manifest, metadata)
        except AlreadyThere as error:
            if await self._objects.read(name) != manifest:
                raise Fenced(
                    f"{self._objects.location(name)} is there already and is another one: somebody "
                    "else finished this copy"
                ) from error
        if pinterest is not None:
            await pinterest.raise_watermark(locator)

    def _pinterest_of(self, locator: SegmentLocator) -> PinterestSegments | None:
        """What copies, reads and deletes a segment in the layout `pinterest`."""
        if not needs_views(locator):
            return None
        if self._pinterest is None:
            raise not_configured(locator)
        return self._pinterest

    async def _write_new(self, name: str, body: bytes, metadata: UserMetadata) -> None:
        await self._objects.write(
            name, body, metadata=metadata, checksum=crc32c(body), only_if_absent=True
        )

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        return await self._objects.read(object_name(locator, ObjectKind.MANIFEST))

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> ByteBuffer | FileSlice:
        """See RemoteStorageManager; always in memory."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.fetch_log(locator, byte_range)
        pinterest = self._pinterest_of(locator)
        if pinterest is not None:
            return await pinterest.fetch_log(locator, byte_range)
        refuse_marked(locator)
        return await self._objects.read_range(object_name(locator, ObjectKind.LOG), byte_range)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.fetch_indexes(locator)
        return await self._objects.read(object_name(locator, data_objects_of(locator)[1]))

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager."""
        found = await presence_in(self._objects, tuple(segments))
        logs = [self._pinterest_of(expected.locator) for expected in segments]
        if not any(logs):
            return found
        slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def with_log(at: int, one: SegmentPresence) -> SegmentPresence:
            pinterest = logs[at]
            if pinterest is None:
                return one
            async with slots:
                return await pinterest.presence(segments[at], one)

        return tuple(await together(with_log(at, one) for at, one in enumerate(found)))

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """See RemoteStorageManager; other objects are left out."""
        found = listed(self._objects, cluster_id, partition)
        async for one in with_log_sizes(self._objects, found):
            yield one

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """See RemoteStorageManager; unfinished uploads of its data are aborted too, so that such a
        copy of the same attempt cannot finish after it.
        """
        pinterest = self._pinterest_of(locator)
        if pinterest is not None:
            await pinterest.delete(locator)
            return
        names = object_names(locator)
        manifest = names.pop(ObjectKind.MANIFEST)
        data = next(iter(names.values()))
        await self._remove_all(manifest, (manifest,))
        with suppress(Invalid):  # a server that cannot list uploads has none either
            await self._uploads.abort_all(data, lambda found, _began_ms, _now_ms: found == data)
        await self._remove_all(names_prefix(locator), tuple(names.values()))

    async def _remove_all(self, beginning: str, names: Sequence[str]) -> None:
        """Remove objects of a segment, whose names begin so; in a bucket that has versions for the
        layout `pinterest`, with all of theirs: nothing else would ever remove those.
        """
        if self._pinterest is None:
            await together(self._objects.remove(name) for name in names)
            return
        versions = self._pinterest.own_versions
        found = [one async for one in versions.listed(beginning)]
        await versions.remove([one for one in found if one.name in names])

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """See RemoteStorageManager; in a bucket with versions one by one, some at once."""
        one_by_one = [self._is_deleted_alone(locator) for locator in locators]
        alone = [one for one, is_alone in zip(locators, one_by_one, strict=True) if is_alone]
        others = [one for one, is_alone in zip(locators, one_by_one, strict=True) if not is_alone]
        of_alone = iter(await delete_each(self.delete_log_segment_data, alone, self._turn_of))
        of_others = iter(await self._delete_together(others))
        return tuple(next(of_alone if is_alone else of_others) for is_alone in one_by_one)

    def _turn_of(self, locator: SegmentLocator) -> str | SegmentLocator:
        return locator if self._pinterest is None else self._pinterest.turn_of(locator)

    def _is_deleted_alone(self, locator: SegmentLocator) -> bool:
        try:
            return self._pinterest is not None or needs_views(locator)
        except Invalid:
            return False  # which is the answer for it then

    async def _delete_together(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """All manifests in one request, then the unfinished uploads of the data, then all other
        objects. What keeps one object keeps the rest of its segment.
        """
        named = [_names_or_error(locator) for locator in locators]
        wanted = {
            names[ObjectKind.MANIFEST]: tuple(names.values())
            for names in named
            if isinstance(names, dict)
        }
        kept = await self._remove({manifest: (manifest,) for manifest in wanted})
        left = {one: names[1:] for one, names in wanted.items() if one not in kept}
        kept |= await self._abort_uploads(left)
        kept |= await self._remove({one: left[one] for one in left if one not in kept})
        return tuple(
            kept.get(one[ObjectKind.MANIFEST]) if isinstance(one, dict) else one for one in named
        )

    async def _remove(self, names: Mapping[str, Sequence[str]]) -> dict[str, RemoteStorageError]:
        """Remove these objects by the manifest of their segment; the errors by manifest."""
        manifests = {name: manifest for manifest, several in names.items() for name in several}
        failed = await self._objects.remove_many(tuple(manifests))
        return {manifests[name]: error for name, error in failed.items()}

    async def _abort_uploads(
        self, names: Mapping[str, Sequence[str]]
    ) -> dict[str, RemoteStorageError]:
        """Only the first object of a segment is uploaded in parts."""
        manifests = {several[0]: manifest for manifest, several in names.items()}
        failed = await self._uploads.abort_of(tuple(manifests))
        return {manifests[name]: error for name, error in failed.items()}

    def uploaded(self, bucket: str, prefix: str) -> S3UploadedObjects:
        """The objects of another uploader, by the same connections."""
        settings = replace(self._settings, bucket=bucket, prefix=prefix)
        return S3UploadedObjects(Objects(self._objects.calls, settings))

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """See RemoteStorageManager."""
        settings = self._settings
        if self._pinterest is None:
            return await findings_of(self._objects, settings.prefix)
        return await findings_with_versions(
            self._objects,
            settings.prefix,
            settings.pinterest_prefix,
            self._pinterest.versions.problem_of_conditions(),
        )

    async def sweep(self, grace_ms: int) -> int:
        """Abort uploads of our own names that began longer ago than the grace, and than
        `rsm.config.s3.stale.upload.age.ms`, by the server's clock; how many.
        """
        age_ms = max(grace_ms, self._settings.stale_upload_age_ms)
        aborted = await self._uploads.abort_all(
            "", lambda name, began_ms, now_ms: is_stale(name, began_ms, now_ms, age_ms)
        )
        if self._pinterest is not None:
            aborted += await self._pinterest.sweep(age_ms)
        return aborted

    async def close(self) -> None:
        """See RemoteStorageManager."""
        await self._connection.close()


def _names_or_error(locator: SegmentLocator) -> dict[ObjectKind, str] | RemoteStorageError:
    """In the order of `objects_of`: the manifest, then the object with the records."""
    try:
        return object_names(locator)
    except Invalid as error:
        return error


def is_stale(name: str, began_ms: int, now_ms: int, age_ms: int) -> bool:
    """Whether an unfinished upload is this product's and older than the age."""
    return now_ms - began_ms > age_ms and is_segment_object(name)


async def open_s3(values: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store in the bucket, which may be away; Invalid if settings contradict each other."""
    settings = s3_settings(values)
    quiet_library()
    store = S3RemoteStorageManager(settings, threads, pause)
    return OpenStore(
        manager=with_imports(store, values, PINTEREST_BUCKET.key, store.uploaded),
        uri=settings.uri,
        sweep=store.sweep,
        layouts=layouts_with(settings.pinterest),
    )


KIND = StoreKind(name="s3", settings=SETTINGS, open=open_s3)
