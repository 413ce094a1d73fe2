"""Segments in the layout `pinterest` in a bucket: a log is one version of an object.

Keys of Pinterest's form have no id of an attempt, so several attempts share them. The bucket's
versioning keeps them apart. The `.log` of an attempt is a version with the attempt's id in its user
metadata, and the id of the version is in the segment's custom metadata: reads, presence and
deletions name it. What is at the key without it may be any attempt's, and is for Pinterest's
consumer only, like `.index`, `.timeindex` and `offset.wm` beside it.

    <start offset>-<attempt>.pinterest-log      which key, and by which upload (small)
    <start offset>-<attempt>.pinterest-indexes  our indexes object

The log is always an upload of parts, whose id is stored before the first part is sent. So a
deletion aborts it, and a writer that was thought dead cannot make its log visible afterwards.
Versions of an attempt that did not record one are found by the id in their user metadata.

`.index` and `.timeindex` may come late: a put is on its way, its writer dies, the attempt is
deleted. They name the keys of their attempt in their user metadata. Where nothing is under these,
they go with the next segment of their offset. Not so a log: if others have removed what is under
our keys, it may be all that is left of records.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kip405.contracts import ExpectedSegment, Presence, SegmentPresence, StoredObject
from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.segments import ByteRange, LogSegmentData, SegmentLocator
from rsm_plugins.layout.keys import (
    ObjectKind,
    data_objects_of,
    is_segment_object,
    names_prefix,
    object_name,
)
from rsm_plugins.layout.pinterest import (
    LOG,
    LOG_MAX_BYTES,
    OFFSET_INDEX,
    TIME_INDEX,
    VERSION_ID_MAX_BYTES,
    WATERMARK,
    PinterestLayout,
    UploadReference,
    encode_upload_reference,
    encode_watermark,
    parse_file,
    parse_upload_reference,
    parse_watermark,
)
from rsm_plugins.layout.stored import (
    ObjectContent,
    check_given_indexes,
    encode_contents,
    own_metadata,
)
from rsm_plugins.pinterest.views import index_views
from rsm_plugins.s3.calls import backoff_seconds, to_its_end, together
from rsm_plugins.s3.objects import Objects, UserMetadata, segment_metadata
from rsm_plugins.s3.uploads import ABORT_SECONDS, Upload, Uploads
from rsm_plugins.s3.versions import Current, Head, Version, Versions

ATTEMPT_KEY = "rlm-segment"
KEYS_KEY = "rlm-keys"
"""What the keys of the attempt's own objects begin with."""
_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, LOG)
_LOG_SUFFIX = f".{ObjectKind.PINTEREST_LOG.value}"
_NO_VERSION = ("", "null")
_WATERMARK_TRIES = 20
_VERSIONS_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PinterestSegments:
    """`own`: objects under keys of ours. `objects`: those below the prefix of Pinterest's form."""

    layout: PinterestLayout
    own: Objects
    objects: Objects
    uploads: Uploads
    versions: Versions
    own_versions: Versions

    async def copy(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """As `copy_log_segment_data`; the answer has the id of the version."""
        indexes_name = object_name(locator, ObjectKind.PINTEREST_INDEXES)
        check_given_indexes(data, indexes_name)
        await self.versions.check_bucket()
        metadata = self._metadata(locator, data.end_offset)
        name = self.layout.view_of(locator, LOG)
        contents = [ObjectContent(size_bytes=len(data.indexes), crc32c=data.indexes_crc32c)]

        async def begun(upload_id: str) -> None:
            text = encode_upload_reference(
                UploadReference(
                    key=self.objects.key(name), upload=upload_id, size_bytes=data.log.size_bytes
                )
            )
            contents.insert(0, ObjectContent(size_bytes=len(text), crc32c=crc32c(text)))
            reference_name = object_name(locator, ObjectKind.PINTEREST_LOG)
            await self.own.write(
                reference_name, text, metadata=metadata, checksum=contents[0].crc32c
            )

        try:
            upload = await self.uploads.upload(name, data, metadata, begun)
            try:
                await self._write_indexes(indexes_name, data, metadata)
                version_id = await upload.complete_version()
            except BaseException:
                await upload.abort()
                raise
        except BaseException:
            await to_its_end(self._forget(locator), ABORT_SECONDS)
            raise
        if version_id is None:
            version_id = (await self._found(locator)).version_id
        self._check_id(name, version_id)
        return encode_contents(contents, version_id.encode())

    def _metadata(self, locator: SegmentLocator, end_offset: int | None) -> UserMetadata:
        attempt = {ATTEMPT_KEY: _attempt(locator), KEYS_KEY: self.own.key(names_prefix(locator))}
        return segment_metadata(locator, end_offset) | attempt

    async def _write_indexes(self, name: str, data: LogSegmentData, metadata: UserMetadata) -> None:
        await self.own.write(
            name, data.indexes, metadata=metadata, checksum=data.indexes_crc32c, data=True
        )

    async def _forget(self, locator: SegmentLocator) -> None:
        """Remove what a copy left that has made no log and makes none; else a deletion needs it."""
        names = [object_name(locator, kind) for kind in data_objects_of(locator)]
        with suppress(RemoteStorageError):
            there = [one async for one in self.own_versions.listed(names_prefix(locator))]
            end_uploads = await self._uploads_in(locator, there)
            await end_uploads()  # a request that completes one may still be on the way
            if [one async for one in self._of_attempt(locator, (LOG,))]:
                return
            await self.own_versions.remove([one for one in there if one.name in names])

    def _check_id(self, name: str, version_id: str) -> None:
        if version_id in _NO_VERSION:
            raise Invalid(
                f"{self.objects.location(name)}: the server made no version of its own of it: the "
                "layout pinterest needs a bucket whose versioning is enabled"
            )
        if len(version_id.encode()) > VERSION_ID_MAX_BYTES:
            raise Invalid(
                f"{self.objects.location(name)}: the server's ids of versions have "
                f"{len(version_id)} bytes; the layout pinterest takes {VERSION_ID_MAX_BYTES}"
            )

    async def fetch_log(self, locator: SegmentLocator, wanted: ByteRange) -> ByteBuffer:
        """As `fetch_log_segment`: of the attempt's own version."""
        version = await self._version(locator)
        try:
            return await self.objects.read_range(version.name, wanted, version.version_id)
        except NotFound:
            await self._check_gone(locator, version)
            raise

    async def presence(self, expected: ExpectedSegment, found: SegmentPresence) -> SegmentPresence:
        """That of a segment whose objects under our own keys are `found`: with its log."""
        if found.presence is not Presence.COMPLETE:
            return found
        version: Version | None = None
        try:
            version = await self._version(expected.locator)
            head = await self.versions.head(version)
        except NotFound:
            head = None
        name = self.layout.view_of(expected.locator, LOG)
        if head is None:
            await self._check_gone(expected.locator, version)
            await self.objects.page("", most=1)  # Unavailable if it is the bucket that is missing
            return replace(found, presence=Presence.MISSING, detail=f"{name} has no such version")
        if head.size_bytes != expected.log_size_bytes:
            detail = f"{name} has {head.size_bytes} bytes instead of {expected.log_size_bytes}"
            return replace(found, presence=Presence.DIFFERENT, detail=detail)
        return found

    def turn_of(self, locator: SegmentLocator) -> str:
        """Attempts with the same are to be deleted one after the other: each asks whose the
        versions of their key are, which are fewer for the next one.
        """
        return self.layout.view_of(locator, LOG)

    async def publish(self, locator: SegmentLocator) -> None:
        """Put `.index` and `.timeindex` of a copied segment; nothing where there is no copy."""
        indexes_name = object_name(locator, ObjectKind.PINTEREST_INDEXES)
        try:
            indexes = await self.own.read(indexes_name)
        except NotFound:
            return
        metadata = self._metadata(locator, None)
        try:
            for suffix, data in index_views(indexes, self.own.location(indexes_name)).items():
                name = self.layout.view_of(locator, suffix)
                await self.versions.put(name, data, metadata=metadata, checksum=crc32c(data))
        finally:  # however it ended, they may be there
            await to_its_end(self._withdraw_if_deleted(locator, indexes_name), ABORT_SECONDS)

    async def _withdraw_if_deleted(self, locator: SegmentLocator, indexes_name: str) -> None:
        """Remove the views of an attempt that was deleted meanwhile, its views before its indexes
        object.
        """
        if await self.own.size_of(indexes_name) is None:
            views = [one async for one in self._of_attempt(locator, (OFFSET_INDEX, TIME_INDEX))]
            await self.versions.remove(views)

    async def raise_watermark(self, locator: SegmentLocator) -> None:
        """Raise `offset.wm` to a copied segment, unless it is beyond. It is written again where it
        is the same, so that who finds an empty folder removes no watermark that is in use.
        """
        if await self.own.size_of(object_name(locator, ObjectKind.PINTEREST_LOG)) is None:
            return
        name = f"{self.layout.folder_of(locator)}/{WATERMARK}"
        data, metadata = encode_watermark(locator.start_offset), self._metadata(locator, None)
        for _ in range(_WATERMARK_TRIES):
            before = await self.versions.current(name)
            if before is not None:
                there = parse_watermark(before.body, self.objects.location(name))
                if there > locator.start_offset:
                    return
            if await self.versions.replace(
                name, data, metadata=metadata, checksum=crc32c(data), before=before
            ):
                if before is not None and _is_removable(before):
                    await self.versions.remove([Version(name=name, version_id=before.version_id)])
                return
        raise Unavailable(f"{self.objects.location(name)}: others keep writing it")

    async def delete(self, locator: SegmentLocator) -> None:
        """As `delete_log_segment_data`: the manifest, views and log of this attempt alone, and last
        what says that there is an attempt. Nothing where the settings are not those of the copy.
        """
        reference_name = object_name(locator, ObjectKind.PINTEREST_LOG)
        manifest_name = object_name(locator, ObjectKind.MANIFEST)
        own = [one async for one in self.own_versions.listed(names_prefix(locator))]
        if not own and not own_metadata(locator):  # what is written first and removed last
            return
        end_uploads = await self._uploads_in(locator, own)
        await self.own_versions.remove([one for one in own if one.name == manifest_name])
        await end_uploads()
        # The indexes before the views: who publishes views looks for the indexes afterwards.
        left = [one for one in own if one.name not in (manifest_name, reference_name)]
        await self.own_versions.remove(left)
        were_any = await self._remove_versions(locator)
        if were_any or any(one.name == reference_name for one in own):
            await self._remove_watermark(locator)
        await self.own_versions.remove([one for one in own if one.name == reference_name])

    async def sweep(self, age_ms: int) -> int:
        """Abort uploads of logs that began longer ago; how many."""

        def is_stale(name: str, began_ms: int, now_ms: int) -> bool:
            return now_ms - began_ms > age_ms and self._is_log(name)

        return await self.uploads.abort_all("", is_stale)

    def _is_log(self, name: str) -> bool:
        *above, cluster, _, file = ["", "", *name.split("/")]
        parsed = parse_file(file)
        return (
            len(above) <= 3
            and cluster == self.layout.cluster
            and parsed is not None
            and parsed.suffix == LOG
        )

    async def _uploads_in(
        self, locator: SegmentLocator, own: Sequence[Version]
    ) -> Callable[[], Awaitable[None]]:
        """What aborts each upload that these versions of an attempt's objects record, so that none
        of them is completed when they are removed. Where it is not known which it is, all uploads
        of the key end: other attempts begin again.
        """
        name = self.layout.view_of(locator, LOG)
        reference_name = object_name(locator, ObjectKind.PINTEREST_LOG)
        upload_ids: set[str | None] = set()
        is_unknown = False
        for one in own:
            if one.name == reference_name and not one.is_marker:
                try:
                    upload_ids.add(await self._reference(locator, one.version_id))
                except Corrupt:
                    is_unknown = True

        async def abort() -> None:
            if is_unknown:
                await self.uploads.abort_all(name, lambda found, _began, _now: found == name)
            for upload_id in upload_ids - {None}:
                await Upload(self.objects, name, upload_id).abort_now()

        return abort

    async def _reference(
        self, locator: SegmentLocator, version_id: str | None = None
    ) -> str | None:
        """The id of the attempt's upload, by the last reference or one version of it; None where
        there is none. Invalid where it went to another key than the settings say.
        """
        name = object_name(locator, ObjectKind.PINTEREST_LOG)
        try:
            data = await self.own.read(name, version_id)
        except NotFound:
            return None
        found = parse_upload_reference(data, self.own.location(name))
        wanted = self.objects.key(self.layout.view_of(locator, LOG))
        if found.key != wanted:
            raise Invalid(
                f"segment {locator.segment_id} is at {found.key}, and by the store's settings at "
                f"{wanted}: cluster, prefix or entropy bits (rsm.config.pinterest.*) are others"
            )
        return found.upload

    async def _check_gone(self, locator: SegmentLocator, version: Version | None) -> None:
        """Invalid where the log is not found because the settings have changed, Unavailable where
        it is listed: some servers move versions, and do not find them meanwhile.
        """
        await self._reference(locator)
        if version is not None and version in await self._listed(locator, (LOG,)):
            raise Unavailable(f"{self._log_location(locator)}: its version is listed and not found")

    async def _version(self, locator: SegmentLocator) -> Version:
        """The version that the custom metadata names; that of an attempt that has none yet is
        found. NotFound.
        """
        version_id = own_metadata(locator)
        if version_id:
            name = self.layout.view_of(locator, LOG)
            return Version(name=name, version_id=version_id.decode("ascii", errors="replace"))
        return await self._found(locator)

    async def _found(self, locator: SegmentLocator) -> Version:
        """The newest version of the attempt's log; NotFound, too where it has begun none."""
        if await self._reference(locator) is not None:
            async for one in self._of_attempt(locator, (LOG,)):
                return one
        raise NotFound(
            f"{self._log_location(locator)} has no version of segment {locator.segment_id}"
        )

    async def _of_attempt(
        self, locator: SegmentLocator, suffixes: Sequence[str]
    ) -> AsyncIterator[Version]:
        """The versions with the attempt's id in their user metadata, of one name newest first.
        Unavailable as `_asked`.
        """
        for one, head in await self._asked(locator, suffixes):
            if head.metadata.get(ATTEMPT_KEY) == _attempt(locator):
                yield one

    async def _asked(
        self, locator: SegmentLocator, suffixes: Sequence[str]
    ) -> list[tuple[Version, Head]]:
        """All versions of these views with what a HEAD says of them. Unavailable where one is
        listed and cannot be asked: it may be the attempt's.
        """
        for tried in range(1, _VERSIONS_TRIES + 1):
            there = await self._listed(locator, suffixes)
            heads = await together(map(self.versions.head, there))
            found = list(zip(there, heads, strict=True))
            doubtful = {one for one, head in found if head is None}
            if not doubtful or doubtful.isdisjoint(await self._listed(locator, suffixes)):
                return [(one, head) for one, head in found if head is not None]
            await self.objects.calls.pause(backoff_seconds(tried))
        raise Unavailable(f"{self._log_location(locator)}: versions are listed and not found")

    async def _remove_versions(self, locator: SegmentLocator) -> bool:
        """Remove the versions of an attempt until none of them is listed; whether there were any.
        A server that moves versions while they are asked for may have missed one.
        """
        were_any, attempt = False, _attempt(locator)
        for tried in range(1, _VERSIONS_TRIES + 1):
            asked = await self._asked(locator, _SUFFIXES)
            theirs = [one for one, head in asked if head.metadata.get(ATTEMPT_KEY) == attempt]
            if tried == 1:
                with suppress(RemoteStorageError):  # then the next deletion removes them
                    await self.versions.remove(await self._late_views(asked, but_of=attempt))
            were_any |= bool(theirs)
            await self.versions.remove(theirs)
            if not theirs or set(theirs).isdisjoint(await self._listed(locator, _SUFFIXES)):
                return were_any
            await self.objects.calls.pause(backoff_seconds(tried))
        raise Unavailable(
            f"{self._log_location(locator)}: versions that were deleted are there still"
        )

    async def _late_views(
        self, asked: Sequence[tuple[Version, Head]], *, but_of: str
    ) -> list[Version]:
        """Index files that came after the deletion of their attempt. What is under its own keys is
        written before them and removed last, and is asked for after they were seen.
        """
        by_keys: defaultdict[str, list[Version]] = defaultdict(list)
        for one, head in asked:
            keys, attempt = head.metadata.get(KEYS_KEY, ""), head.metadata.get(ATTEMPT_KEY, but_of)
            is_index = not one.name.endswith(f".{LOG}")
            if is_index and attempt != but_of and self._may_be_own(keys):
                by_keys[self.own.name(keys)].append(one)
        late: list[Version] = []
        for keys, views in by_keys.items():
            if not [one async for one in self.own_versions.listed(keys)]:
                late += views
        return late

    def _may_be_own(self, keys: str) -> bool:
        """Whether the names of a segment in this store begin so; another store has other keys."""
        name = self.own.name(keys)
        return self.own.key(name) == keys and is_segment_object(name + ObjectKind.MANIFEST.value)

    async def _listed(self, locator: SegmentLocator, suffixes: Sequence[str]) -> list[Version]:
        names = [self.layout.view_of(locator, suffix) for suffix in suffixes]
        beginning = names[0] if len(names) == 1 else self.layout.view_of(locator, "")
        found = [one async for one in self.versions.listed(beginning)]
        return [one for one in found if one.name in names and not one.is_marker]

    def _log_location(self, locator: SegmentLocator) -> str:
        return self.objects.location(self.layout.view_of(locator, LOG))

    async def _remove_watermark(self, locator: SegmentLocator) -> None:
        """Remove the watermark of a partition that has no other file, with older versions of it. It
        is read before the folder is listed again: one that was written since then is another
        version, and stays.
        """
        folder = self.layout.folder_of(locator)
        name = f"{folder}/{WATERMARK}"
        if not await self._has_only(folder, name):
            return
        before = await self.versions.current(name)
        if before is None or not _is_removable(before):
            return
        if not await self._has_only(folder, name):
            return
        there = [one async for one in self.versions.listed(name) if one.name == name]
        ids = [one.version_id for one in there]
        if before.version_id in ids:
            old = [one for one in there[ids.index(before.version_id) :] if not one.is_marker]
            heads = await together(map(self.versions.head, old))
            ours = zip(old, heads, strict=True)
            await self.versions.remove([one for one, head in ours if _is_of_ours(head)])

    async def _has_only(self, folder: str, name: str) -> bool:
        page = await self.objects.page(f"{folder}/", most=2)
        return [one.name for one in page.objects] == [name]


async def with_log_sizes(
    own: Objects, found: AsyncIterator[StoredObject]
) -> AsyncIterator[StoredObject]:
    """The same objects, in the order of names; what stands for a log has the log's size where there
    is no manifest. Who decides whether others replace such a copy has nothing else to judge by.
    """
    held: StoredObject | None = None
    async for one in found:
        if held is not None:
            stem = held.name.removesuffix(_LOG_SUFFIX)
            if one.name == f"{stem}.{ObjectKind.MANIFEST.value}":
                yield held
            else:
                yield await _with_log_size(own, held)
            held = None
        if one.name.endswith(_LOG_SUFFIX):
            held = one
        else:
            yield one
    if held is not None:
        yield await _with_log_size(own, held)


async def _with_log_size(own: Objects, reference: StoredObject) -> StoredObject:
    """The largest size that a log may have where the reference cannot be read any more."""
    try:
        data = await own.read(reference.name)
        size_bytes = parse_upload_reference(data, own.location(reference.name)).size_bytes
    except (Corrupt, NotFound):
        size_bytes = LOG_MAX_BYTES
    return replace(reference, size_bytes=size_bytes)


def _is_removable(watermark: Current) -> bool:
    """Whether it is a version of ours that is no other one by the time it is removed."""
    return ATTEMPT_KEY in watermark.metadata and watermark.version_id not in _NO_VERSION


def _is_of_ours(head: Head | None) -> bool:
    return head is not None and ATTEMPT_KEY in head.metadata


def _attempt(locator: SegmentLocator) -> str:
    return str(locator.segment_id.id)
