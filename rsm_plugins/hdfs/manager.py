"""The RemoteStorageManager in HDFS: temporary file, hsync, close, rename; the manifest last.

Objects appear whole or not at all. The bytes written are those whose CRC-32C was computed (from
there on HDFS checks its own checksums). An answer of the store is believed only if its identity
object is visible (H11). HDFS has no user metadata: the manifest carries it. Objects are listed
folder by folder, in bytewise order of names.

`KIND` declares the settings and opens the store. For Kerberos, principal, keytab and cache go to
the client library, which logs in through the machine's libgssapi; its handshake, SASL protection
and encryption towards DataNodes are the library's. The tests show that the settings reach the
library, not a login: there is no KDC in the tests. According to its source, the library logs in
again for every connection, so that a ticket need not outlive the process.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from hdfs_native import FileStatus, WriteOptions

from kip405.contracts import (
    ExpectedSegment,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, FileSlice, Layout, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.segments import BlockSegments
from rsm_plugins.hdfs.connection import Connection, Session, pause, together
from rsm_plugins.hdfs.errors import NOT_REPLICATED, is_caused_by
from rsm_plugins.hdfs.findings import inspect_store
from rsm_plugins.hdfs.rights import FILE_MODE
from rsm_plugins.hdfs.settings import SETTINGS, HdfsSettings, settings_of
from rsm_plugins.hdfs.sources import BlocksSource, LogSource, Source
from rsm_plugins.hdfs.tree import TEMPORARY_FOLDER, HdfsTree, NewFile, Writing, file_of
from rsm_plugins.layout.keys import (
    ObjectKind,
    check_cluster_id,
    entropy_digits,
    is_entropy_folder,
    is_segment_object,
    is_topic_folder,
    layout_of,
    object_name,
    object_names,
    partition_folder,
)
from rsm_plugins.layout.manifest import check_manifest_size
from rsm_plugins.layout.stored import check_given_indexes
from rsm_plugins.local.manager import presence_of
from rsm_plugins.segment_deletes import delete_each
from rsm_plugins.store_kinds import LAYOUTS_OF_OURS, OpenStore, StoreKind
from rsm_plugins.threads import FileThreads

_OPERATION = "list"


async def list_objects(
    tree: HdfsTree, cluster_id: str, partition: TopicIdPartition | None
) -> AsyncIterator[StoredObject]:
    """Every object of a segment; other files are left out."""
    session = await tree.opened(_OPERATION)
    async for folder in _partition_folders(tree, session, cluster_id, partition):
        entries = await tree.entries(session, folder, _OPERATION)
        for found in sorted(_objects_in(entries, folder), key=lambda found: found.name):
            yield found


async def _partition_folders(
    tree: HdfsTree, session: Session, cluster_id: str, partition: TopicIdPartition | None
) -> AsyncIterator[str]:
    entropies = await _folders(tree, session, "", is_entropy_folder)
    for cluster in sorted([cluster_id, *(f"{one}/{cluster_id}" for one in entropies)], key=_order):
        digits = cluster[: -len(cluster_id)].rstrip("/")
        if partition is None:
            for topic in await _folders(tree, session, cluster, is_topic_folder):
                for number in await _folders(tree, session, f"{cluster}/{topic}", str.isdecimal):
                    yield f"{cluster}/{topic}/{number}"
        elif digits == entropy_digits(
            cluster_id, partition.topic, partition.partition, len(digits)
        ):
            yield partition_folder(cluster_id, partition, len(digits))


async def _folders(
    tree: HdfsTree, session: Session, folder: str, is_wanted: Callable[[str], bool]
) -> list[str]:
    entries = await tree.entries(session, folder, _OPERATION)
    names = (file_of(entry) for entry in entries if entry.isdir)
    return sorted((name for name in names if is_wanted(name)), key=_order)


def _order(folder: str) -> str:
    """Sorts folders like the names below them."""
    return f"{folder}/"


def _objects_in(entries: list[FileStatus], folder: str) -> list[StoredObject]:
    found = []
    for entry in entries:
        name = f"{folder}/{file_of(entry)}"
        if not entry.isdir and is_segment_object(name):
            found.append(
                StoredObject(
                    name=name, size_bytes=entry.length, modified_ms=entry.modification_time
                )
            )
    return found


PIECE_BYTES = 4 << 20
AT_ONCE = 32
_BLOCK_PAUSES_SECONDS = (0.4, 1.6, 6.4)
_LIST_FROM = 16
"""So many segments of one folder are cheaper to find by listing it than by asking for each."""


class HdfsRemoteStorageManager:
    """The contract over `root/prefix` of an HDFS."""

    def __init__(self, settings: HdfsSettings, *, threads: FileThreads) -> None:
        self._settings = settings
        self._threads = threads
        self._connection = Connection(settings)
        self._tree = HdfsTree(self._connection, settings.url, settings.root, settings.prefix)
        self._blocks = BlockSegments(self, threads, block_size_bytes=settings.block_size_bytes)

    @property
    def uri(self) -> str:
        return self._tree.uri

    async def read_identity(self) -> StoreIdentity | None:
        """See RemoteStorageManager; Unavailable where the root is away."""
        return await self._tree.read_identity()

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """See RemoteStorageManager; of concurrent creators one wins (rename to a free name)."""
        check_cluster_id(identity.cluster_id)
        return await self._tree.create_identity(identity)

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager; Fenced where the file to copy is gone or cut short."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.copy(locator, data)
        log_name = object_name(locator, ObjectKind.LOG)
        indexes_name = object_name(locator, ObjectKind.INDEXES)
        check_given_indexes(data, indexes_name)
        await self._write_both(
            locator,
            (log_name, partial(LogSource, data, self._threads)),
            (indexes_name, data.indexes),
        )
        return b""

    async def write_blocks(
        self, locator: SegmentLocator, data: LogSegmentData, plan: BlocksPlan, index: bytes
    ) -> None:
        """See rsm_plugins.blocks.segments.BlockObjects."""
        name = object_name(locator, ObjectKind.BLOCKS)
        index_name = object_name(locator, ObjectKind.BLOCKS_INDEX)
        source = partial(BlocksSource, plan, data, self._threads)
        await self._write_both(locator, (name, source), (index_name, index))

    async def read_object(self, name: str) -> bytes:
        """See rsm_plugins.blocks.segments.BlockObjects."""
        return await self._tree.read(name, "fetch an index from")

    async def read_range(self, name: str, byte_range: ByteRange) -> bytes:
        """See rsm_plugins.blocks.segments.BlockObjects."""
        return await self._tree.read(name, "fetch from", byte_range.start, byte_range.end)

    async def _write_both(
        self,
        locator: SegmentLocator,
        data: tuple[str, Callable[[], Source]],
        indexes: tuple[str, bytes],
    ) -> None:
        """Both objects of a segment by name: the one with the records, and a small one."""
        operation = "copy to"
        async with self._writing(locator, operation) as writing:
            small, large = await together(
                [
                    writing.write(indexes[1], operation, self._options),
                    self._closed(data[1], writing, operation),
                ]
            )
            await together(
                [
                    writing.publish(path, name, size_bytes, operation)
                    for path, name, size_bytes in (
                        (small, indexes[0], len(indexes[1])),
                        (large, data[0], data[1]().size_bytes),
                    )
                ]
            )

    async def _closed(
        self, make_source: Callable[[], Source], writing: Writing, operation: str
    ) -> str:
        file = await self._written(make_source, writing, operation)
        return await file.close()

    @asynccontextmanager
    async def _writing(self, locator: SegmentLocator, operation: str) -> AsyncIterator[Writing]:
        """Files of one segment being written in a store that is there."""
        async with self._tree.writing(str(locator.segment_id.id)) as writing:
            await self._tree.require_identity(writing.session, operation)
            yield writing

    async def _written(
        self, make_source: Callable[[], Source], writing: Writing, operation: str
    ) -> NewFile:
        """The file, written and not yet closed; from its first byte again, with longer and longer
        pauses between blocks, where DataNodes report their blocks so late that the NameNode refuses
        the next one. Kafka's own plugins have a client that asks again (DFSOutputStream.addBlock);
        after this library's, the file that was begun cannot be finished.
        """
        pause_seconds, longer = 0.0, iter(_BLOCK_PAUSES_SECONDS)
        while True:
            file = await writing.create(operation, self._options)
            try:
                await self._write(make_source(), file, pause_seconds)
            except Unavailable as error:
                pause_seconds = next(longer, 0.0)
                if not pause_seconds or not is_caused_by(error, NOT_REPLICATED):
                    raise
            else:
                return file

    async def _write(self, source: Source, file: NewFile, pause_seconds: float) -> None:
        """Every block of HDFS is on the disks of its DataNodes before the next one begins."""
        position, size_bytes = 0, source.size_bytes
        block_bytes = await file.block_bytes() if size_bytes > PIECE_BYTES else PIECE_BYTES
        while position < size_bytes:
            left_of_block = block_bytes - position % block_bytes
            piece_bytes = min(PIECE_BYTES, size_bytes - position, left_of_block)
            await file.append(await source.next(piece_bytes))
            position += piece_bytes
            if piece_bytes == left_of_block and position < size_bytes:
                await file.sync()
                await pause(pause_seconds)
        source.prove()

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """See RemoteStorageManager; Invalid for an empty one or one over 1 MiB."""
        check_manifest_size(manifest)
        operation = "write a manifest to"
        name = object_name(locator, ObjectKind.MANIFEST)
        async with self._writing(locator, operation) as writing:
            path = await writing.write(manifest, operation, self._options)
            await writing.publish(path, name, len(manifest), operation)

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        name = object_name(locator, ObjectKind.MANIFEST)
        return await self._tree.read(name, "read a manifest of")

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        """See RemoteStorageManager; large ranges are read in parts concurrently."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.fetch_log(locator, byte_range)
        name = object_name(locator, ObjectKind.LOG)
        return await self._tree.read(name, "fetch from", byte_range.start, byte_range.end)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        if layout_of(locator) is Layout.BLOCKS:
            return await self._blocks.fetch_indexes(locator)
        return await self._tree.read(object_name(locator, ObjectKind.INDEXES), "fetch indexes from")

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager; a folder asked about for many segments is listed instead."""
        names = [object_names(segment.locator) for segment in segments]
        folders: defaultdict[str, list[list[str]]] = defaultdict(list)
        for one in names:
            folders[one[ObjectKind.MANIFEST].rpartition("/")[0]].append(list(one.values()))
        session = await self._tree.opened("look into")
        asking = [self._sizes_of(session, folder, several) for folder, several in folders.items()]
        sizes = {
            name: size
            for found in await together(asking, at_once=AT_ONCE)
            for name, size in found.items()
        }
        return tuple(
            presence_of(segment, {kind: sizes.get(name) for kind, name in one.items()})
            for segment, one in zip(segments, names, strict=True)
        )

    async def _sizes_of(
        self, session: Session, folder: str, segments: Sequence[Sequence[str]]
    ) -> dict[str, int]:
        """Sizes by name of the existing objects among these, by segment."""
        operation = "look into"
        if len(segments) >= _LIST_FROM:
            entries = await self._tree.entries(session, folder, operation)
            return {f"{folder}/{file_of(one)}": one.length for one in entries if not one.isdir}
        names = [name for segment in segments for name in segment]
        found = await together([self._tree.status(session, name, operation) for name in names])
        return {
            name: one.length
            for name, one in zip(names, found, strict=True)
            if one is not None and not one.isdir
        }

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """See RemoteStorageManager."""
        check_cluster_id(cluster_id)
        async for found in list_objects(self._tree, cluster_id, partition):
            yield found

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """See RemoteStorageManager; a copy of the same attempt that is still running cannot finish
        after it.
        """
        names = object_names(locator)
        session = await self._tree.opened("delete from")
        await self._remove(session, f"{TEMPORARY_FOLDER}/{locator.segment_id.id}", whole=True)
        for name in names.values():
            await self._remove(session, name)
        folder = names[ObjectKind.MANIFEST].rpartition("/")[0]
        await self._remove(session, folder)  # if it is empty

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """See RemoteStorageManager; some at the same time."""
        return await delete_each(self.delete_log_segment_data, locators)

    async def _remove(self, session: Session, name: str, *, whole: bool = False) -> None:
        path = self._tree.path_of(name)
        await self._tree.remove(session, path, "delete from", recursive=whole)

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """See RemoteStorageManager; free space and replication factor."""
        return await inspect_store(self._tree, self._settings, self._threads)

    async def sweep(self, grace_ms: int) -> int:
        """Remove what broken copies left, if they began longer ago than the grace; returns how many
        files.
        """
        return await self._tree.sweep(grace_ms)

    async def close(self) -> None:
        """See RemoteStorageManager; the library's threads stay as long as the process."""
        await self._connection.close()

    @property
    def _options(self) -> WriteOptions:
        """Replication and block size of the configuration, else those of the server."""
        replication = self._settings.number("dfs.replication")
        block_bytes = self._settings.number("dfs.blocksize")
        return WriteOptions(
            create_parent=True,
            overwrite=False,
            permission=FILE_MODE,
            replication=replication,
            block_size=block_bytes,
        )


async def open_hdfs(settings: Mapping[str, Any], threads: FileThreads) -> OpenStore:
    """The store below `rsm.config.root`, whose NameNode may be away; Invalid where the settings
    name no file system.
    """
    store = HdfsRemoteStorageManager(settings_of(settings), threads=threads)
    return OpenStore(
        manager=store,
        uri=store.uri,
        sweep=store.sweep,
        layouts=LAYOUTS_OF_OURS,
    )


KIND = StoreKind(name="hdfs", settings=SETTINGS, open=open_hdfs)
