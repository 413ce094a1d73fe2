"""The RemoteStorageManager in a directory: the simplest store, and the model for the others.

Objects appear whole or not at all (temporary file, fsync, rename, fsync of the directory).
Checksums are computed from the stored bytes. An answer of the store is believed only if its
identity object is visible (H11). The root must exist: it is never created, because an unmounted
root must not be mistaken for an empty one. `KIND` declares the settings and opens the store.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kip405.contracts import (
    ExpectedSegment,
    FindingKind,
    Presence,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.errors import Corrupt, Fenced, RemoteStorageError
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, FileSlice, Layout, LogSegmentData, SegmentLocator
from kip405.settings import PATH, REQUIRED, Setting, Table
from rsm_plugins.blocks.segments import BlockSegments
from rsm_plugins.files.durable import SourceCut, copy_bytes
from rsm_plugins.files.segment_files import open_source
from rsm_plugins.files.store_tree import Entry, StoreTree, stored
from rsm_plugins.layout.keys import (
    ObjectKind,
    check_cluster_id,
    data_objects_of,
    entropy_digits,
    is_entropy_folder,
    is_segment_object,
    is_topic_folder,
    layout_of,
    object_name,
    object_names,
    partition_folder,
    segment_stem,
)
from rsm_plugins.layout.manifest import check_manifest_size
from rsm_plugins.layout.pinterest import PinterestLayout, refuse_marked
from rsm_plugins.layout.stored import (
    check_given_indexes,
    encode_contents,
    expected_sizes,
    given_contents,
)
from rsm_plugins.local.blocks import LocalBlockObjects
from rsm_plugins.local.both_objects import write_both
from rsm_plugins.local.views import LocalViews
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import with_imports
from rsm_plugins.pinterest.settings import COMMON as PINTEREST_ROWS
from rsm_plugins.pinterest.settings import PREFIX as PINTEREST_PREFIX
from rsm_plugins.pinterest.settings import layouts_with, written_layout
from rsm_plugins.pinterest.views import needs_views, not_configured
from rsm_plugins.segment_deletes import delete_each
from rsm_plugins.store_kinds import (
    BLOCK_SIZE_BYTES,
    BLOCK_SIZE_SETTING,
    PREFIX_SETTING,
    OpenStore,
    StoreKind,
)
from rsm_plugins.threads import FINISH_MS, FileThreads, StopFlag


class LocalRemoteStorageManager:
    """The contract over `root/prefix`; with `shared`, fetches return slices of the store's own
    files.
    """

    def __init__(
        self,
        root: Path,
        prefix: str = "",
        *,
        shared: bool = True,
        threads: FileThreads | None = None,
        block_size_bytes: int = BLOCK_SIZE_BYTES,
        pinterest: PinterestLayout | None = None,
        pinterest_prefix: str = "",
    ) -> None:
        self._tree = StoreTree(root, prefix)
        self._views = None
        if pinterest is not None:
            self._views = LocalViews(self._tree, pinterest, pinterest_prefix)
        self._shared = shared
        self._threads = FileThreads() if threads is None else threads
        self._owns_threads = threads is None
        self._blocks = BlockSegments(
            LocalBlockObjects(self._tree, self._threads),
            self._threads,
            block_size_bytes=block_size_bytes,
        )

    @property
    def folder(self) -> Path:
        """The directory that holds the objects; it may be away."""
        return self._tree.base

    @property
    def uri(self) -> str:
        return self._tree.base.as_uri()

    async def read_identity(self) -> StoreIdentity | None:
        """See RemoteStorageManager; Unavailable where the root is away."""
        return await self._threads.run(self._tree.read_identity)

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """See RemoteStorageManager; of concurrent creators one wins (hard link to a free name)."""
        check_cluster_id(identity.cluster_id)
        return await self._threads.run(self._tree.create_identity, identity)

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager; Fenced where the file to copy is gone or cut short."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.copy(locator, data)
        views = self._views_of(locator)
        if views is not None:
            await self._threads.run(views.withdraw, locator)
        name, indexes_name = (object_name(locator, kind) for kind in data_objects_of(locator))
        await self._threads.run_stoppable(lambda flag: self._copy(name, indexes_name, data, flag))
        return b"" if views is None else encode_contents(given_contents(data))

    def _views_of(self, locator: SegmentLocator) -> LocalViews | None:
        """What publishes names of Pinterest's form for a segment that has such names."""
        if not needs_views(locator):
            return None
        if self._views is None:
            raise not_configured(locator)
        return self._views

    def _copy(self, log_name: str, name: str, data: LogSegmentData, flag: StopFlag) -> None:
        check_given_indexes(data, name)
        source = open_source(data.log.path)
        try:
            copied = partial(_copy_log, source, data, flag)
            write_both(self._tree, (log_name, name), copied, data.indexes, flag)
        finally:
            os.close(source)

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """See RemoteStorageManager; Invalid for an empty one or one over 1 MiB."""
        check_manifest_size(manifest)
        name = object_name(locator, ObjectKind.MANIFEST)
        views = self._views_of(locator)
        if views is not None:
            await self._threads.run(views.publish, locator)
        await self._threads.run(self._tree.write, name, manifest, "write a manifest to")
        if views is not None:
            await self._threads.run(views.raise_watermark, locator)

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        name = object_name(locator, ObjectKind.MANIFEST)
        return await self._threads.run(self._tree.read, name, "read a manifest of")

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        """See RemoteStorageManager; a slice of the store's file where the volume is shared."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.fetch_log(locator, byte_range)
        refuse_marked(locator)
        name = object_name(locator, data_objects_of(locator)[0])
        start, end = byte_range.start, byte_range.end
        if not self._shared:
            return await self._threads.run(self._tree.read, name, "fetch from", start, end)
        size_bytes = await self._threads.run(self._tree.required_size, name, "fetch from")
        start, end = min(start, size_bytes), min(end, size_bytes)
        return FileSlice(path=self._tree.path_of(name), position=start, size_bytes=end - start)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.fetch_indexes(locator)
        name = object_name(locator, data_objects_of(locator)[1])
        return await self._threads.run(self._tree.read, name, "fetch indexes from")

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager; one answer for all from one tree."""
        return await self._threads.run(self._stat, tuple(segments))

    def _stat(self, segments: tuple[ExpectedSegment, ...]) -> tuple[SegmentPresence, ...]:
        with self._tree.opened("look into") as base:
            return tuple(self._presence(base, segment) for segment in segments)

    def _presence(self, base: int, expected: ExpectedSegment) -> SegmentPresence:
        sizes = {
            kind: self._tree.size_of(base, name)
            for kind, name in object_names(expected.locator).items()
        }
        return presence_of(expected, sizes)

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """See RemoteStorageManager; folders are read one by one, other files are left out."""
        check_cluster_id(cluster_id)
        async for folder in self._partition_folders(cluster_id, partition):
            for found in await self._threads.run(self._objects, folder):
                yield found

    async def _partition_folders(
        self, cluster_id: str, partition: TopicIdPartition | None
    ) -> AsyncIterator[str]:
        entropies = await self._folders("", is_entropy_folder)
        bases = sorted(
            ("", *entropies),
            key=lambda digits: f"{digits}/{cluster_id}/" if digits else f"{cluster_id}/",
        )
        for digits in bases:
            if partition is None:
                cluster = f"{digits}/{cluster_id}" if digits else cluster_id
                for topic in await self._folders(cluster, is_topic_folder):
                    for number in await self._folders(f"{cluster}/{topic}", str.isdecimal):
                        yield f"{cluster}/{topic}/{number}"
            elif digits == entropy_digits(
                cluster_id, partition.topic, partition.partition, len(digits)
            ):
                yield partition_folder(cluster_id, partition, len(digits))

    async def _folders(self, folder: str, is_wanted: Callable[[str], bool]) -> list[str]:
        entries = await self._threads.run(self._tree.entries, folder, "list")
        names = [entry.name for entry in entries if entry.is_folder and is_wanted(entry.name)]
        return sorted(names, key=lambda name: f"{name}/")

    def _objects(self, folder: str) -> list[StoredObject]:
        return sorted(
            _objects_in(self._tree.entries(folder, "list"), folder), key=lambda found: found.name
        )

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """See RemoteStorageManager; a copy of the same attempt that is still running cannot finish
        after it.
        """
        await self._threads.run(self._delete, locator, self._views_of(locator))

    def _delete(self, locator: SegmentLocator, views: LocalViews | None) -> None:
        """The manifest first: if it cannot be removed, the other objects stay too."""
        self._remove(locator, (ObjectKind.MANIFEST,))
        if views is None:
            self._remove(locator, data_objects_of(locator))
        else:
            views.remove(locator)

    def _remove(self, locator: SegmentLocator, kinds: tuple[ObjectKind, ...]) -> None:
        folder, _, stem = segment_stem(locator).rpartition("/")
        suffixes = tuple(kind.value for kind in kinds)
        self._tree.remove_segment(folder, stem, suffixes, "delete from")

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """See RemoteStorageManager; some at the same time."""
        return await delete_each(self.delete_log_segment_data, locators)

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """See RemoteStorageManager; the bytes that an ordinary user can still write."""
        return (await self._threads.run(self._free_space),)

    def _free_space(self) -> StoreFinding:
        try:
            free, total = self._tree.space()
        except RemoteStorageError as error:
            return StoreFinding(kind=FindingKind.FREE_SPACE, state=f"unknown: {error}")
        return StoreFinding(
            kind=FindingKind.FREE_SPACE, state=f"{free} of {total} bytes free", value=free
        )

    async def sweep(self, grace_ms: int) -> int:
        """Remove temporary files of crashed processes that were not written for longer than the
        grace; returns how many.
        """
        return await self._threads.run(self._tree.sweep, grace_ms)

    async def close(self) -> None:
        """See RemoteStorageManager."""
        if self._owns_threads:
            await self._threads.finish(FINISH_MS)


def presence_of(expected: ExpectedSegment, sizes: dict[ObjectKind, int | None]) -> SegmentPresence:
    """The presence of a segment by the sizes found (None = missing); the detail names the first
    object that is missing or different.
    """
    wanted = expected_sizes(expected)
    names = object_names(expected.locator)
    manifest_present = sizes[ObjectKind.MANIFEST] is not None
    for kind in (*wanted, ObjectKind.MANIFEST):
        if sizes[kind] is None:
            detail = f"{names[kind]} is not there"
            return SegmentPresence(
                presence=Presence.MISSING, manifest_present=manifest_present, detail=detail
            )
    for kind, size_bytes in wanted.items():
        if sizes[kind] != size_bytes:
            detail = f"{names[kind]} has {sizes[kind]} bytes instead of {size_bytes}"
            return SegmentPresence(
                presence=Presence.DIFFERENT, manifest_present=manifest_present, detail=detail
            )
    return SegmentPresence(presence=Presence.COMPLETE, manifest_present=manifest_present)


def _copy_log(source: int, data: LogSegmentData, flag: StopFlag, destination: int) -> None:
    log = data.log
    try:
        crc = copy_bytes(source, log.position, log.size_bytes, destination, flag.check)
    except SourceCut as error:
        raise Fenced(
            f"{log.path} has only {error.copied_bytes} of {log.size_bytes} bytes left to copy"
        ) from error
    if crc != data.log_crc32c:
        raise Corrupt(
            f"the bytes copied from {log.path} have CRC-32C {crc:08x}, not {data.log_crc32c:08x}"
        )


def _objects_in(entries: list[Entry], folder: str) -> Iterator[StoredObject]:
    for entry in entries:
        found = stored(entry, folder)
        if not entry.is_folder and is_segment_object(found.name):
            yield found


ROOT_SETTING = Setting(
    key="rsm.config.root",
    kind=PATH,
    doc="Directory of the store. It must exist; the plugin never creates it.",
    default=REQUIRED,
)


PINTEREST_ROOT = Setting(
    key="rsm.config.pinterest.root",
    kind=PATH,
    doc="Directory with the objects of Pinterest's uploader: their bucket as it is mounted, or a "
    "copy of it. It is only read.",
)


async def open_local(settings: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store below `rsm.config.root`, which may be away."""
    written = written_layout(settings, PINTEREST_ROOT.key)
    store = LocalRemoteStorageManager(
        settings[ROOT_SETTING.key],
        settings[PREFIX_SETTING.key],
        threads=threads,
        block_size_bytes=settings[BLOCK_SIZE_SETTING.key],
        pinterest=written,
        pinterest_prefix=settings[PINTEREST_PREFIX.key],
    )
    uploaded = partial(LocalUploadedObjects, threads=threads)
    return OpenStore(
        manager=with_imports(store, settings, PINTEREST_ROOT.key, uploaded),
        uri=store.uri,
        objects_folder=store.folder,
        sweep=store.sweep,
        layouts=layouts_with(written),
    )


SETTINGS = Table(ROOT_SETTING, PREFIX_SETTING, BLOCK_SIZE_SETTING, PINTEREST_ROOT, *PINTEREST_ROWS)
KIND = StoreKind(name="local", settings=SETTINGS, open=open_local)
