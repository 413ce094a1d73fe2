"""Reads of remote segments: index lookup, verified chunks, whole batches; the runner of
plans/fetch.

Every byte served passed its chunk's CRC-32C and every index its object's (G9). A NotFound or
Corrupt answer is asked once more past the cache before it is believed (H25).
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from kip405.batches import read_header
from kip405.contracts import IndexType, RemoteStorageManager
from kip405.crc import crc32c
from kip405.errors import Busy, Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    OffsetIndex,
    TimeIndex,
    aborted_for_fetch,
    decode_aborted,
)
from kip405.records import find_timestamp
from kip405.segments import ByteRange, FileSlice, RemoteLogSegmentMetadata
from rlm.cache.single_flight import LoadPool, SingleFlightCache
from rlm.plans.fetch import ChunkWindow, Cut, ReadBounds, cut
from rlm.proxy.tier import RemoteRecords, TimestampedOffset

V = TypeVar("V")
_READS_IN_CACHE = 4
_CHUNKS_AT_ONCE = 8
_MOST_PATHS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndexes:
    """The parsed indexes object of one segment; `size_bytes` is what it weighs in the cache."""

    offsets: OffsetIndex
    times: TimeIndex
    aborted: tuple[AbortedTransaction, ...]
    chunks: ChunkChecksums
    size_bytes: int

    @classmethod
    def parse(cls, data: bytes, segment: RemoteLogSegmentMetadata) -> "SegmentIndexes":
        """Corrupt names the segment and the section that is missing or damaged."""
        parsed = IndexesObject.parse(data)
        checksums = _section(parsed, IndexType.CHUNK_CHECKSUMS, segment)
        offsets = _section(parsed, IndexType.OFFSET, segment)
        times = _section(parsed, IndexType.TIMESTAMP, segment)
        return cls(
            offsets=OffsetIndex(offsets, segment.start_offset),
            times=TimeIndex(times, segment.start_offset),
            aborted=decode_aborted(_section(parsed, IndexType.ABORTED_TRANSACTIONS, segment)),
            chunks=ChunkChecksums.decode(checksums, segment.segment_size_bytes),
            size_bytes=len(data),
        )

    def chunk_numbers(self, start: int, end: int) -> range:
        """The chunks that hold the positions [start, end) of the log, as far as it reaches."""
        size = self.chunks.chunk_size_bytes
        return range(start // size, min(-(-end // size), len(self.chunks.crcs)))


def _section(
    parsed: IndexesObject, index_type: IndexType, segment: RemoteLogSegmentMetadata
) -> memoryview:
    section = parsed.section(index_type)
    if section is None:
        raise Corrupt(f"indexes of segment {segment.segment_id} have no {index_type.name} section")
    return section


ChunkKey = tuple[Uuid, int]


class RemoteReader:
    """Reads batches of FINISHED segments from the store through caches; owns no task, no pool."""

    def __init__(
        self,
        *,
        store: RemoteStorageManager,
        cluster_id: str,
        pool: LoadPool,
        threads: ThreadPoolExecutor,
        chunk_cache_bytes: int,
        index_cache_bytes: int,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._threads = threads
        # However much a client asks for, one answer holds no more than this of the log.
        self._most_bytes = max(chunk_cache_bytes // _READS_IN_CACHE, 1)
        self._paths: dict[Uuid, str] = {}
        self._indexes: SingleFlightCache[Uuid, SegmentIndexes] = SingleFlightCache(
            capacity_bytes=index_cache_bytes, weigh=lambda kept: kept.size_bytes, pool=pool
        )
        self.chunks: SingleFlightCache[ChunkKey, bytes] = SingleFlightCache(
            capacity_bytes=chunk_cache_bytes, weigh=len, pool=pool
        )

    async def read(
        self, segment: RemoteLogSegmentMetadata, bounds: ReadBounds, *, read_committed: bool
    ) -> RemoteRecords:
        """Batches of one segment within the bounds; empty if it holds none there.

        Unavailable or Busy: try again. NotFound or Corrupt: asked twice, the objects are gone or
        damaged.
        """
        bounds = replace(bounds, max_bytes=min(bounds.max_bytes, self._most_bytes))
        indexes = await self._indexes_of(segment)
        position = indexes.offsets.lookup(bounds.offset)
        found, window = await self._cut(segment, indexes, position, bounds)
        if found.end == found.start:
            return RemoteRecords(
                records=(),
                size_bytes=0,
                next_offset=bounds.offset,
                aborted=(),
                exhausted=found.exhausted,
            )
        self._read_ahead(segment, indexes, found)
        aborted: tuple[tuple[int, int], ...] = ()
        if read_committed:
            aborted = aborted_for_fetch(indexes.aborted, bounds.offset, found.next_offset)
        return RemoteRecords(
            records=window.slices(found.start, found.end),
            size_bytes=found.end - found.start,
            next_offset=found.next_offset,
            aborted=aborted,
            has_zstd=found.has_zstd,
        )

    async def _cut(
        self,
        segment: RemoteLogSegmentMetadata,
        indexes: SegmentIndexes,
        position: int,
        bounds: ReadBounds,
    ) -> tuple[Cut, ChunkWindow]:
        size = indexes.chunks.chunk_size_bytes
        loaded: dict[int, bytes] = {}
        window = ChunkWindow(size, segment.segment_size_bytes, loaded)
        wanted = (position, position + max(bounds.max_bytes, 1))
        while True:
            busy: Busy | None = None
            try:
                await self._load(segment, indexes, loaded, wanted)
            except Busy as error:
                busy = error
            try:
                found = cut(window, position, bounds)
            except Corrupt as error:
                raise Corrupt(f"log object of segment {segment.segment_id}: {error}") from error
            if found.needed is None or (busy is not None and found.end > found.start):
                return found, window
            if busy is not None:
                raise busy
            position, wanted = found.start, found.needed
            for passed in [number for number in loaded if (number + 1) * size <= position]:
                del loaded[passed]

    async def find_timestamp(
        self, segment: RemoteLogSegmentMetadata, timestamp_ms: int, lower_offset: int
    ) -> TimestampedOffset | None:
        """First record of the segment at or after both timestamp and offset (ListOffsets)."""
        indexes = await self._indexes_of(segment)
        offset = max(lower_offset, indexes.times.lookup(timestamp_ms))
        while offset <= segment.end_offset:
            bounds = ReadBounds(
                offset=offset, upper_offset=segment.next_offset, max_bytes=1, at_least_one=True
            )
            read = await self.read(segment, bounds, read_committed=False)
            if read.size_bytes == 0:
                return None
            batch = b"".join(read.records)
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, find_timestamp, batch, timestamp_ms, lower_offset
            )
            if found is not None:
                return TimestampedOffset(
                    offset=found[0],
                    timestamp_ms=found[1],
                    leader_epoch=read_header(batch).leader_epoch,
                )
            offset = read.next_offset
        return None

    async def _indexes_of(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
        return await self._indexes.get(
            segment.segment_id.id, lambda: _twice(lambda: self._load_indexes(segment))
        )

    async def _load_indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
        what = f"segment {segment.segment_id}"
        try:
            custom = segment.custom()
        except ValueError as error:
            raise Corrupt(f"metadata of {what}: {error}") from error
        data = await self._store.fetch_indexes(segment.locator(self._cluster_id))
        if len(data) != custom.indexes_size_bytes or crc32c(data) != custom.indexes_crc32c:
            raise Corrupt(f"indexes object of {what} is not what was stored")
        return SegmentIndexes.parse(data, segment)

    async def _load(
        self,
        segment: RemoteLogSegmentMetadata,
        indexes: SegmentIndexes,
        loaded: dict[int, bytes],
        wanted: tuple[int, int],
    ) -> None:
        """Bring the chunks of the positions wanted, half-open, and at most to the log's end.

        A few at a time: however much one read wants, it leaves room for the others. Busy only where
        not even one could be asked for.
        """
        flights: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        for number in indexes.chunk_numbers(*wanted):
            if number in loaded:
                continue
            flight: asyncio.Future[bytes] | None = None
            while flight is None:
                if len(flights) == _CHUNKS_AT_ONCE:
                    await _land(flights, loaded)
                chunk = self.chunks.peek((segment.segment_id.id, number))
                if chunk is not None:
                    loaded[number] = chunk
                    break
                try:
                    flight = self._start_chunk(segment, indexes, number)
                except Busy:
                    if not flights:
                        raise
                    await _land(flights, loaded)
                else:
                    flights.append((number, flight))
        while flights:
            await _land(flights, loaded)

    def _start_chunk(
        self, segment: RemoteLogSegmentMetadata, indexes: SegmentIndexes, number: int
    ) -> asyncio.Future[bytes]:
        return self.chunks.start(
            (segment.segment_id.id, number),
            lambda: _twice(lambda: self._load_chunk(segment, indexes, number)),
        )

    def _read_ahead(
        self, segment: RemoteLogSegmentMetadata, indexes: SegmentIndexes, found: Cut
    ) -> None:
        """Begin to load what a reader that goes on will ask for next: as much as it got now."""
        for number in indexes.chunk_numbers(found.end, 2 * found.end - found.start):
            if not self.chunks.knows((segment.segment_id.id, number)):
                try:
                    self._start_chunk(segment, indexes, number)
                except Busy:
                    return  # those who wait go first

    async def _load_chunk(
        self, segment: RemoteLogSegmentMetadata, indexes: SegmentIndexes, number: int
    ) -> bytes:
        size = indexes.chunks.chunk_size_bytes
        start = number * size
        wanted = ByteRange(start=start, end=min(start + size, segment.segment_size_bytes))
        what = f"chunk {number} of segment {segment.segment_id}"
        path = self._paths.get(segment.segment_id.id)
        if path is not None:
            known = FileSlice(path=path, position=start, size_bytes=wanted.size_bytes)
            try:
                return await self._verify(known, wanted, indexes, number, what)
            except RemoteStorageError:
                self._paths.pop(segment.segment_id.id, None)  # the store has the last word
        found = await self._store.fetch_log_segment(segment.locator(self._cluster_id), wanted)
        data = await self._verify(found, wanted, indexes, number, what)
        if isinstance(found, FileSlice) and found.position == start > 0:
            self._remember_path(segment.segment_id.id, found.path)
        return data

    async def _verify(
        self,
        found: bytes | FileSlice,
        wanted: ByteRange,
        indexes: SegmentIndexes,
        number: int,
        what: str,
    ) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, _verified, found, wanted.size_bytes, indexes.chunks, number, what
        )

    def _remember_path(self, segment_id: Uuid, path: str) -> None:
        """A slice at the position asked for is of the object itself: the next need not be asked."""
        if len(self._paths) >= _MOST_PATHS:
            self._paths.clear()
        self._paths[segment_id] = path


async def _land(
    flights: deque[tuple[int, asyncio.Future[bytes]]], loaded: dict[int, bytes]
) -> None:
    number, flight = flights.popleft()
    loaded[number] = await asyncio.shield(flight)


async def _twice(load: Callable[[], Awaitable[V]]) -> V:
    try:
        return await load()
    except (NotFound, Corrupt):
        return await load()


def _verified(
    found: bytes | FileSlice, size_bytes: int, checksums: ChunkChecksums, number: int, what: str
) -> bytes:
    data = _read_slice(found, what) if isinstance(found, FileSlice) else found
    if len(data) != size_bytes:
        raise Corrupt(f"{what} has {len(data)} bytes, {size_bytes} expected")
    try:
        checksums.check(number, data)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error}") from error
    return data


def _read_slice(found: FileSlice, what: str) -> bytes:
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"{what}: {found.path} is gone") from error
    except OSError as error:
        raise Unavailable(f"{what}: cannot open {found.path}: {error.strerror}") from error
    try:
        return os.pread(descriptor, found.size_bytes, found.position)
    except OSError as error:
        raise Unavailable(f"{what}: cannot read {found.path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
