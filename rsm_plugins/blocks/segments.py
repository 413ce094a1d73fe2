"""Copies and reads segments in blocks, for every store that has a few operations on objects.

A manager asks for the layout of a locator and passes what concerns blocks to here, so each kind of
store has only its own writes and reads. Copies are planned from the log, whose CRC-32C is proved,
and answer what was stored, so that presence and checks know both objects. Reads fetch the index
object once, and then ranges of the data object.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Corrupt
from kip405.segments import ByteRange, CustomMetadata, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.index import BlocksIndex, build_index, parse_index
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.reading import (
    BlockRead,
    EntryLocation,
    KnownSegment,
    KnownSegments,
    batches_in,
    reads_of,
)
from rsm_plugins.blocks.source import plan_of
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.layout.stored import (
    ObjectContent,
    check_given_indexes,
    encode_contents,
    stored_contents,
)
from rsm_plugins.threads import FileThreads


class _NamedLocks:
    """A lock for each name that anybody uses now."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """The lock; whoever uses it keeps it alive."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


class BlockObjects(Protocol):
    """What a store does for segments in blocks; errors are those of RemoteStorageManager."""

    async def write_blocks(
        self, locator: SegmentLocator, data: LogSegmentData, plan: BlocksPlan, index: bytes
    ) -> None:
        """Store data object and index object durably, each whole or not at all visible; the data
        object is `source.data_pieces`. Existing objects are overwritten.
        """
        ...

    async def read_object(self, name: str) -> bytes:
        """A whole object; NotFound."""
        ...

    async def read_range(self, name: str, byte_range: ByteRange) -> ByteBuffer:
        """The range clipped to the object's size; NotFound, also for an empty range."""
        ...


class BlockSegments:
    """The layout `blocks` over a store; `block_size_bytes` counts for new copies alone."""

    def __init__(
        self, objects: BlockObjects, threads: FileThreads, *, block_size_bytes: int
    ) -> None:
        self._objects = objects
        self._threads = threads
        self._block_size_bytes = block_size_bytes
        self._known = KnownSegments()
        self._copies = _NamedLocks()
        self._readers = _NamedLocks()

    async def copy(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """As `copy_log_segment_data`; the answer says what was stored."""
        name = object_name(locator, ObjectKind.BLOCKS_INDEX)
        check_given_indexes(data, name)
        plan = await self._threads.run_stoppable(
            lambda flag: plan_of(data, self._block_size_bytes, flag.check)
        )
        index = build_index(plan, locator, data)
        # One at a time: an index of one copy beside the data of another would be no segment.
        async with self._copies.of(name):
            try:
                await self._objects.write_blocks(locator, data, plan, index)
            finally:
                self._known.forget((name,))
        return encode_contents(
            (
                ObjectContent(size_bytes=plan.data_size_bytes, crc32c=plan.data_crc32c),
                ObjectContent(size_bytes=len(index), crc32c=crc32c(index)),
            )
        )

    async def fetch_log(self, locator: SegmentLocator, wanted: ByteRange) -> bytes:
        """As `fetch_log_segment`; Corrupt where index and data object contradict each other."""
        known = await self._known_segment(locator)
        name = object_name(locator, ObjectKind.BLOCKS)
        reads = reads_of(known.index, known.table, wanted)
        if not reads:
            await self._objects.read_range(name, ByteRange(start=0, end=0))
            return b""
        found: list[ByteBuffer] = []
        for read in reads:
            byte_range = ByteRange(start=read.start, end=read.end)
            found.append(await self._objects.read_range(name, byte_range))
        log, locations = await self._threads.run(_log_in, name, reads, found)
        for location in locations:
            known.table.remember(location)
        return log

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """As `fetch_indexes`; the index object is remembered for reads of the log."""
        name = object_name(locator, ObjectKind.BLOCKS_INDEX)
        index, _ = await self._read_index(locator, name)
        return index.indexes

    async def _known_segment(self, locator: SegmentLocator) -> KnownSegment:
        name = object_name(locator, ObjectKind.BLOCKS_INDEX)
        async with self._readers.of(name):  # several readers wait for one fetch of the index
            known = self._known.get(name)
            stored = _stored_index(locator)
            if known is not None and stored in (None, known.content):
                return known
            return (await self._read_index(locator, name))[1]

    async def _read_index(
        self, locator: SegmentLocator, name: str
    ) -> tuple[BlocksIndex, KnownSegment]:
        data = await self._objects.read_object(name)
        index, content = await self._threads.run(_index_in, name, locator, data)
        return index, self._known.keep(name, index, content)


def _stored_index(locator: SegmentLocator) -> ObjectContent | None:
    """What the copy said of its index object; None before it answered. Invalid where it is
    malformed.
    """
    if locator.custom_metadata is None or not CustomMetadata.decode(locator.custom_metadata).plugin:
        return None
    return stored_contents(locator, 0)[ObjectKind.BLOCKS_INDEX]


def _index_in(name: str, locator: SegmentLocator, data: bytes) -> tuple[BlocksIndex, ObjectContent]:
    """The index in an object, proved by what the copy said of it."""
    content = ObjectContent(size_bytes=len(data), crc32c=crc32c(data))
    stored = _stored_index(locator)
    if stored not in (None, content):
        raise Corrupt(f"{name} is {content}, and the copy stored {stored}")
    try:
        index = parse_index(data)
    except Corrupt as error:
        raise Corrupt(f"{name}: {error}") from error
    if index.segment_id != locator.segment_id.id.raw:
        raise Corrupt(f"{name} is the index of segment {index.segment_id.hex()}")
    return index, content


def _log_in(
    name: str, reads: Sequence[BlockRead], found: Sequence[ByteBuffer]
) -> tuple[bytes, list[EntryLocation]]:
    """The bytes of the raw log in what was read, and the locations of entries to remember."""
    runs: list[memoryview] = []
    locations: list[EntryLocation] = []
    for read, data in zip(reads, found, strict=True):
        try:
            wanted, location = batches_in(read, data)
        except Corrupt as error:
            raise Corrupt(f"{name}: {error}") from error
        runs += wanted
        if location is not None:
            locations.append(location)
    return b"".join(runs), locations
