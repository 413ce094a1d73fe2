"""Reads verified chunks and indexes of one segment from disk cache, known file or store.

A range is split into chunks in a thread, once for the whole range, and each chunk must pass its
CRC-32C where it is kept (G9). Each chunk has its own memory (see `chunk_memory`), so that an
evicted chunk frees its memory whatever happens to its neighbours, and damage in one chunk does not
affect the others.

After a NotFound or Corrupt answer, the store itself is asked once more, for the affected part only,
before the answer is believed (H25). This module owns no task and no bound; `load_scheduler` does.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from kip405.contracts import SegmentReader
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.indexes import ChunkChecksums
from kip405.segments import ByteRange, FileSlice, RemoteLogSegmentMetadata
from rlm.reading.chunk_cache import ChunkKey
from rlm.reading.chunk_memory import Chunk, ChunkMemory, view_of
from rlm.reading.remote_index import RemoteIndex
from rlm.reading.segment_indexes import SegmentIndexes, checked_indexes
from rlm.reading.values import ReadCounts
from rsm_plugins.threads import Threads

E = TypeVar("E", bound=Exception)
_SPLIT_AT_ONCE = 2
_MOST_PATHS = 10_000

Landed = Mapping[int, Chunk | RemoteStorageError]
"""Chunk number -> verified bytes, or what is wrong with it."""


def byte_range(numbers: range, chunk_bytes: int, log_size_bytes: int) -> ByteRange:
    """The positions of consecutive chunks; the last chunk of a log may be short."""
    end = min(numbers.stop * chunk_bytes, log_size_bytes)
    return ByteRange(start=numbers.start * chunk_bytes, end=end)


def verified(
    found: ByteBuffer | FileSlice,
    numbers: range,
    checksums: ChunkChecksums,
    log_size_bytes: int,
    what: str,
    memory: ChunkMemory,
) -> Landed:
    """Split what the store returned for these chunks of the segment `what` into chunks of `memory`,
    and check each chunk.
    """
    whole = byte_range(numbers, checksums.chunk_size_bytes, log_size_bytes)
    if isinstance(found, FileSlice):
        return _of_file(found, whole, numbers, checksums, what, memory)
    if len(found) > whole.size_bytes:
        text = f"a range of {what} has {len(found)} bytes, {whole.size_bytes} expected"
        return dict.fromkeys(numbers, Corrupt(text))

    def copy(at: int, chunk: memoryview) -> int:
        part = view[at : at + len(chunk)]
        chunk[: len(part)] = part
        return len(part)

    with memoryview(found) as view:
        return _split(copy, whole, numbers, checksums, what, memory)


def _of_file(
    found: FileSlice,
    whole: ByteRange,
    numbers: range,
    checksums: ChunkChecksums,
    what: str,
    memory: ChunkMemory,
) -> Landed:
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        if found.keeper is not None:  # a lent file is no object of the store
            lost = Unavailable(f"{what}: {found.path} is gone")
            return dict.fromkeys(numbers, _caused(lost, error))
        return dict.fromkeys(numbers, _caused(NotFound(f"{what}: {found.path} is gone"), error))
    except OSError as error:
        text = f"{what}: cannot open {found.path}: {error.strerror}"
        return dict.fromkeys(numbers, _caused(Unavailable(text), error))

    def read(at: int, chunk: memoryview) -> int:
        part = chunk[: max(found.size_bytes - at, 0)]
        return os.preadv(descriptor, [part], found.position + at) if part else 0

    try:
        return _split(read, whole, numbers, checksums, what, memory)
    except OSError as error:
        text = f"{what}: cannot read {found.path}: {error.strerror}"
        return dict.fromkeys(numbers, _caused(Unavailable(text), error))
    finally:
        os.close(descriptor)


def _split(
    read: Callable[[int, memoryview], int],
    whole: ByteRange,
    numbers: range,
    checksums: ChunkChecksums,
    what: str,
    memory: ChunkMemory,
) -> Landed:
    """`read` fills a view with the bytes at a position of the range, and says how many it had."""
    size, landed = checksums.chunk_size_bytes, dict[int, Chunk | RemoteStorageError]()
    for number in numbers:
        start = number * size
        expected = min(size, whole.end - start)
        chunk = memory.buffer(expected)
        with memoryview(chunk) as bytes_of_any_kind, bytes_of_any_kind.cast("B") as view:
            read_bytes = read(start - whole.start, view)
        landed[number] = checked(chunk, read_bytes, number, expected, checksums, what)
    return landed


def checked(
    chunk: Chunk,
    read_bytes: int,
    number: int,
    size_bytes: int,
    checksums: ChunkChecksums,
    what: str,
) -> Chunk | Corrupt:
    """The chunk if it is complete and matches its checksum; `read_bytes` of it were read."""
    name = f"chunk {number} of {what}"
    if read_bytes != size_bytes:
        return Corrupt(f"{name} has {read_bytes} bytes, {size_bytes} expected")
    try:
        checksums.check(number, view_of(chunk))
    except Corrupt as error:
        return _caused(Corrupt(f"{name}: {error}"), error)
    return chunk


def _caused(error: E, cause: BaseException) -> E:
    error.__cause__ = cause
    return error


class ChunkDisk(Protocol):
    """Chunks on a local disk. It never fails; at worst it holds nothing."""

    def has(self, key: ChunkKey) -> bool: ...

    async def read(self, key: ChunkKey, memory: ChunkMemory) -> Chunk | None: ...

    def discard(self, key: ChunkKey) -> None: ...

    def write(self, key: ChunkKey, chunk: Chunk) -> None: ...


class SegmentSource:
    """Reads the store's objects; every byte that it returns has passed its checksum (G9)."""

    def __init__(
        self,
        *,
        store: SegmentReader,
        cluster_id: str,
        threads: Threads,
        disk: ChunkDisk | None,
        memory: ChunkMemory,
        counts: ReadCounts,
        remote_index: RemoteIndex | None,
    ) -> None:
        self._remote_index = remote_index
        self._store = store
        self._cluster_id = cluster_id
        self._threads = threads
        self._disk = disk
        self._memory = memory
        self._counts = counts
        self._paths: dict[Uuid, str] = {}
        # While its chunks are split off, a range exists twice in memory: limits how many do so at
        # once.
        self._splitting = asyncio.Semaphore(_SPLIT_AT_ONCE)

    async def indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
        """From the remote index files, else the whole indexes object; NotFound and Corrupt were
        asked twice.
        """
        found = await self.indexes_of_files(segment)
        return found if found is not None else await self.indexes_of_store(segment)

    async def indexes_of_files(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes | None:
        """From the remote index files; None: they do not have them."""
        files = self._remote_index
        return None if files is None else await files.indexes(segment)

    async def indexes_of_store(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
        """From the indexes object; what the remote index files have is made anew from it."""
        try:
            return await self._load_indexes(segment)
        except (NotFound, Corrupt):
            self._counts.refetches += 1
            return await self._load_indexes(segment)

    async def distrust_files(self, segment: RemoteLogSegmentMetadata) -> None:
        """What the remote index files had of a segment is not so."""
        if self._remote_index is not None:
            await self._remote_index.discard(segment)

    async def _load_indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
        self._counts.indexes += 1
        data = await self._store.fetch_indexes(segment.locator(self._cluster_id))
        indexes = checked_indexes(data, segment)
        if self._remote_index is not None:
            self._remote_index.keep(segment, data)
        return indexes

    async def chunks(
        self,
        segment: RemoteLogSegmentMetadata,
        numbers: range,
        chunk_bytes: int,
        indexes: SegmentIndexes | asyncio.Future[SegmentIndexes],
    ) -> Landed:
        """Consecutive chunks of `chunk_bytes`, each verified or with what is wrong with it; nothing
        if the segment's chunks have another size. NotFound and Corrupt were asked twice.

        While the indexes are still being loaded, the store is asked at once, unless the disk cache
        probably has all these chunks.
        """
        landed = dict[int, Chunk | RemoteStorageError]()
        early = None
        if isinstance(indexes, asyncio.Future):
            if not self._is_on_disk(segment, numbers):
                early = await self._ask(segment, numbers, chunk_bytes)
            try:
                indexes = await asyncio.shield(indexes)
            except BaseException:
                early = None  # the error refers to this frame, and must not keep the range
                raise
        if indexes.chunks.chunk_size_bytes != chunk_bytes:
            return {}
        if early is not None:
            landed.update(await self._verify(segment, numbers, indexes, early))
        elif self._disk is not None:
            landed.update(await self._of_disk(self._disk, segment, numbers, indexes))
        for run in runs(number for number in numbers if number not in landed):
            landed.update(await self._of_path(segment, run, indexes))
        for run in runs(number for number in numbers if number not in landed):
            found = await self._ask(segment, run, chunk_bytes)
            landed.update(await self._verify(segment, run, indexes, found))
        return await self._again(segment, landed, indexes)

    def _is_on_disk(self, segment: RemoteLogSegmentMetadata, numbers: range) -> bool:
        """Whether the disk cache probably has all these chunks."""
        disk, key = self._disk, segment.segment_id.id
        return disk is not None and all(disk.has((key, number)) for number in numbers)

    async def _ask(
        self, segment: RemoteLogSegmentMetadata, numbers: range, chunk_bytes: int
    ) -> ByteBuffer | FileSlice | RemoteStorageError:
        wanted = byte_range(numbers, chunk_bytes, segment.segment_size_bytes)
        self._counts.ranges += 1
        self._counts.range_bytes += wanted.size_bytes
        try:
            found = await self._store.fetch_log_segment(segment.locator(self._cluster_id), wanted)
        except RemoteStorageError as error:
            return error
        if isinstance(found, FileSlice) and found.keeper is None:
            self._remember_path(segment.segment_id.id, found, wanted)
        return found

    async def _again(
        self, segment: RemoteLogSegmentMetadata, landed: Landed, indexes: SegmentIndexes
    ) -> Landed:
        """Ask the store once more for what is missing or wrong."""
        wrong = [
            number for number, outcome in landed.items() if isinstance(outcome, NotFound | Corrupt)
        ]
        if not wrong:
            return landed
        if indexes.is_from_files:  # whose checksums may be wrong, and not the chunks
            await self.distrust_files(segment)
            indexes = await self.indexes_of_store(segment)
        self._paths.pop(segment.segment_id.id, None)
        mended = dict(landed)
        for run in runs(sorted(wrong)):
            self._counts.refetches += 1
            found = await self._ask(segment, run, indexes.chunks.chunk_size_bytes)
            mended.update(await self._verify(segment, run, indexes, found))
        return mended

    async def _verify(
        self,
        segment: RemoteLogSegmentMetadata,
        numbers: range,
        indexes: SegmentIndexes,
        found: ByteBuffer | FileSlice | RemoteStorageError,
    ) -> Landed:
        if isinstance(found, RemoteStorageError):
            return dict.fromkeys(numbers, found)
        if isinstance(found, FileSlice):
            landed = await self._split(segment, numbers, indexes, found)
        else:
            async with self._splitting:
                landed = await self._split(segment, numbers, indexes, found)
        if self._disk is not None:
            for number, outcome in landed.items():
                if not isinstance(outcome, RemoteStorageError):
                    self._disk.write((segment.segment_id.id, number), outcome)
        return landed

    async def _split(
        self,
        segment: RemoteLogSegmentMetadata,
        numbers: range,
        indexes: SegmentIndexes,
        found: ByteBuffer | FileSlice,
    ) -> Landed:
        return await self._threads.run(
            verified,
            found,
            numbers,
            indexes.chunks,
            segment.segment_size_bytes,
            _name(segment),
            self._memory,
        )

    async def _of_path(
        self, segment: RemoteLogSegmentMetadata, numbers: range, indexes: SegmentIndexes
    ) -> Landed:
        """Chunks from the object's own file, if the store once named it; chunks that fail are left
        out.
        """
        path = self._paths.get(segment.segment_id.id)
        if path is None:
            return {}
        wanted = byte_range(numbers, indexes.chunks.chunk_size_bytes, segment.segment_size_bytes)
        known = FileSlice(path=path, position=wanted.start, size_bytes=wanted.size_bytes)
        landed = await self._split(segment, numbers, indexes, known)
        good = {
            number: outcome
            for number, outcome in landed.items()
            if not isinstance(outcome, RemoteStorageError)
        }
        if len(good) < len(landed):
            self._paths.pop(segment.segment_id.id, None)  # the store decides
        return good

    async def _of_disk(
        self,
        disk: ChunkDisk,
        segment: RemoteLogSegmentMetadata,
        numbers: range,
        indexes: SegmentIndexes,
    ) -> Landed:
        """Chunks that the disk cache has and that match the segment's own checksums."""
        size, good = indexes.chunks.chunk_size_bytes, dict[int, Chunk | RemoteStorageError]()
        for number in numbers:
            key = (segment.segment_id.id, number)
            chunk = await disk.read(key, self._memory) if disk.has(key) else None
            if chunk is None:
                continue
            one = byte_range(range(number, number + 1), size, segment.segment_size_bytes)
            outcome = checked(
                chunk, len(chunk), number, one.size_bytes, indexes.chunks, _name(segment)
            )
            if not isinstance(outcome, Corrupt):
                good[number] = outcome
            else:
                disk.discard(key)
        self._counts.disk_hits += len(good)
        return good

    def _remember_path(self, segment_id: Uuid, found: FileSlice, wanted: ByteRange) -> None:
        """Remember the file of an object: a slice at the requested position is of the object
        itself, so the store need not be asked for the next one.
        """
        if not found.position == wanted.start > 0:
            return
        if len(self._paths) >= _MOST_PATHS:
            self._paths.clear()
        self._paths[segment_id] = found.path


def _name(segment: RemoteLogSegmentMetadata) -> str:
    return f"segment {segment.segment_id}"


def runs(numbers: Iterable[int]) -> Iterator[range]:
    """Ascending numbers as ranges of consecutive ones."""
    start = after = None
    for number in numbers:
        if start is not None and number == after:
            after = number + 1
            continue
        if start is not None and after is not None:
            yield range(start, after)
        start, after = number, number + 1
    if start is not None and after is not None:
        yield range(start, after)
