"""Checks stores right before an irreversible step: identity, presence, bytes (H11, H13).

A FINISHED record may be minutes or years old; these checks are about now. Every segment is checked
in the store that its own metadata names, whatever the rules currently say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kip405.batches import BatchHeader, batch_headers, read_header
from kip405.contracts import ExpectedSegment, IndexType, Presence, SegmentReader, StoreAdmin
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from kip405.ids import Uuid
from kip405.indexes import IndexesObject, OffsetIndex
from kip405.segments import (
    ByteRange,
    FileSlice,
    Layout,
    RemoteLogSegmentMetadata,
    SegmentLocator,
)
from rlm.remote_log.objects import slice_bytes
from rlm.remote_log.ports import Broker, Stores
from rlm.stores.connection import identity_problem
from rlmm.ledger_values import decode_value
from rsm_plugins.layout.manifest import Manifest
from rsm_plugins.layout.pinterest import MANIFEST_LAYOUT, is_marked
from rsm_plugins.layout.stored import stored_contents
from rsm_plugins.threads import Threads

_COMPARED_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundManifest:
    """A manifest's metadata, or why the existing manifest cannot be used."""

    metadata: RemoteLogSegmentMetadata | None
    unreadable: str = ""


def store_of(metadata: RemoteLogSegmentMetadata) -> Uuid:
    """The store that a segment lies in; Invalid where its metadata does not name one."""
    try:
        return metadata.custom().store_id
    except ValueError as error:
        raise Invalid(f"it is not known where the segment lies: {error}") from error


def check_layout(manifest: Manifest, metadata: RemoteLogSegmentMetadata) -> None:
    """Corrupt unless the manifest's metadata has the manifest's layout, and says what is stored.
    That of an imported segment names the layout of its log.
    """
    locator = metadata.locator(manifest.cluster_id)
    try:
        custom = metadata.custom()
        stored_contents(locator, metadata.segment_size_bytes)
    except (ValueError, Invalid) as error:
        raise Corrupt(f"it does not say what is stored: {error}") from error
    layout = str(custom.layout)
    if custom.layout is Layout.KAFKA and is_marked(locator):
        layout = MANIFEST_LAYOUT
    if manifest.layout != layout:
        raise Corrupt(f"it is of layout {manifest.layout}, its segment of {layout}")


class StoreEvidence:
    """Checks the stores on behalf of one cluster; Unavailable where a store is away."""

    def __init__(self, stores: Stores, *, cluster_id: str, threads: Threads) -> None:
        self._stores = stores
        self._cluster_id = cluster_id
        self._threads = threads

    def locator(self, metadata: RemoteLogSegmentMetadata) -> SegmentLocator:
        return metadata.locator(self._cluster_id)

    async def check_identity(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Invalid unless every store that holds one of the segments is the expected one (H11)."""
        for store_id in dict.fromkeys(store_of(metadata) for metadata in segments):
            manager = self._stores.manager(store_id)
            problem = await identity_problem(manager, store_id, self._cluster_id)
            if problem is not None:
                raise Invalid(problem)

    async def missing(
        self, segments: Sequence[RemoteLogSegmentMetadata], *, needs_manifest: bool = True
    ) -> Mapping[Uuid, str]:
        """The segments of which an object is missing or truncated, with the reason; without
        `needs_manifest`, only those that cannot be read.

        Checked twice, in stores that had the expected identity before and after: a store that is
        away, or is another one, proves nothing (H11, H25). Errors as `check_identity`.
        """
        await self.check_identity(segments)
        first = await self._not_whole(segments, needs_manifest)
        if not first:
            return {}
        doubted = [metadata for metadata in segments if metadata.segment_id.id in first]
        found = await self._not_whole(doubted, needs_manifest)
        await self.check_identity(doubted)
        return found

    async def _not_whole(
        self, segments: Iterable[RemoteLogSegmentMetadata], needs_manifest: bool
    ) -> dict[Uuid, str]:
        by_store: dict[Uuid, list[RemoteLogSegmentMetadata]] = {}
        for metadata in segments:
            by_store.setdefault(store_of(metadata), []).append(metadata)
        missing: dict[Uuid, str] = {}
        for store_id, wanted in by_store.items():
            found = await self._stores.manager(store_id).stat(
                [self._expected(metadata) for metadata in wanted]
            )
            for metadata, seen in zip(wanted, found, strict=True):
                if seen.presence is Presence.COMPLETE and seen.manifest_present:
                    continue
                if not needs_manifest and await self.is_readable(metadata):
                    continue
                missing[metadata.segment_id.id] = (
                    f"{metadata.segment_id} is {seen.presence.value}: "
                    f"{seen.detail or 'manifest missing'}"
                )
        return missing

    async def is_readable(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Whether readers can still get it: log and indexes have their sizes, with or without a
        manifest. Stores report a segment without its manifest as missing, whatever else is there.
        """
        store, size = self._stores.manager(store_of(metadata)), metadata.segment_size_bytes
        last_and_next = ByteRange(start=max(size - 1, 0), end=size + 1)
        try:
            indexes = await store.fetch_indexes(self.locator(metadata))
            found = await store.fetch_log_segment(self.locator(metadata), last_and_next)
        except (NotFound, Corrupt):
            return False
        found_bytes = found.size_bytes if isinstance(found, FileSlice) else len(found)
        has_end = found_bytes == size - last_and_next.start
        return has_end and len(indexes) == metadata.custom().indexes_size_bytes

    async def presence(self, metadata: RemoteLogSegmentMetadata) -> Presence:
        """Presence of the objects that this metadata (with sizes) lists."""
        (seen,) = await self._admin(metadata).stat([self._expected(metadata)])
        return seen.presence

    async def manifest(self, metadata: RemoteLogSegmentMetadata) -> FoundManifest:
        """What exists of the attempt's manifest."""
        try:
            data = await self._admin(metadata).read_manifest(self.locator(metadata))
        except NotFound:
            return FoundManifest(metadata=None)
        except Corrupt as error:
            return FoundManifest(metadata=None, unreadable=str(error))
        try:
            manifest = Manifest.parse(data)
            if (manifest.cluster_id, manifest.store_id) != (self._cluster_id, store_of(metadata)):
                return FoundManifest(metadata=None, unreadable="it is of another cluster or store")
            found = decode_value(manifest.segment_metadata)
            check_layout(manifest, found)
            return FoundManifest(metadata=found)
        except Corrupt as error:
            return FoundManifest(metadata=None, unreadable=str(error))

    async def delete(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> tuple[RemoteStorageError | None, ...]:
        """Remove what exists of segments of one store, in one call: the error of each, None =
        deleted. An error that concerns all is raised.
        """
        store = self._admin(segments[0])
        return await store.delete_log_segments([self.locator(one) for one in segments])

    async def check_same_bytes(
        self,
        broker: Broker,
        metadata: RemoteLogSegmentMetadata,
        *,
        offset: int,
        leader_epoch: int,
    ) -> None:
        """Corrupt unless the copy has the broker's batch at `offset`, byte for byte (H13)."""
        partition = metadata.topic_id_partition
        local = await broker.fetch(
            partition.topic,
            partition.partition,
            offset,
            max_bytes=_COMPARED_BYTES,
            leader_epoch=leader_epoch,
        )
        header = read_header(local.records)
        batch = local.records[: header.size_bytes]
        if len(batch) < header.size_bytes:
            raise Corrupt(f"{partition}: the broker answered part of the batch at {offset}")
        if batch != await self._remote_batch(metadata, header):
            raise Corrupt(
                f"{metadata.segment_id}: its batch at {header.base_offset} is not the broker's"
            )

    async def _remote_batch(self, metadata: RemoteLogSegmentMetadata, local: BatchHeader) -> bytes:
        """The copy's batch with the base offset of the local one, empty if there is none.

        The requested range ends at an indexed batch behind it.
        """
        store: SegmentReader = self._stores.manager(store_of(metadata))
        data = await store.fetch_indexes(self.locator(metadata))
        section = IndexesObject.parse(data).section(IndexType.OFFSET)
        if section is None:
            raise Corrupt(f"{metadata.segment_id}: the indexes object has no offset index")
        index = OffsetIndex(section, metadata.start_offset)
        start = index.lookup(local.base_offset)
        end = index.end_position(local.last_offset) or metadata.segment_size_bytes
        answer = await store.fetch_log_segment(
            self.locator(metadata), ByteRange(start=start, end=end)
        )
        found = await slice_bytes(answer, self._threads)
        for position, header in batch_headers(found):
            if header.base_offset == local.base_offset:
                return found[position : position + header.size_bytes]
        return b""

    def _admin(self, metadata: RemoteLogSegmentMetadata) -> StoreAdmin:
        return self._stores.manager(store_of(metadata))

    def _expected(self, metadata: RemoteLogSegmentMetadata) -> ExpectedSegment:
        return ExpectedSegment(
            locator=self.locator(metadata),
            log_size_bytes=metadata.segment_size_bytes,
            indexes_size_bytes=metadata.custom().indexes_size_bytes,
        )
