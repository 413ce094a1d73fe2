"""Keeps the index entries of remote segments in files, so that a read needs no indexes object.

`remote.index.files`: what a leader copied and what a reader loaded from the store is written below
`state.dir/remote-index/`, and found again after a restart. The files only repeat what the store
has: without them, or where they are damaged, readers ask the store. So nothing here fails; at worst
it keeps nothing. What has ended leaves with the cached chunks (`ended_segments`).
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from kip405.contracts import IndexType
from kip405.errors import Corrupt, RemoteStorageError
from kip405.ids import Uuid
from kip405.indexes import IndexesObject, checked_custom
from kip405.remote_index import SegmentRecord, segment_entries
from kip405.segments import RemoteLogSegmentMetadata
from rlm.reading.chunk_cache import ChunkKey
from rlm.reading.remote_index_partition import PartitionIndex, Rotation
from rlm.reading.segment_indexes import SegmentIndexes
from rsm_plugins.threads import Job, Threads

T = TypeVar("T")
log = structlog.get_logger(__name__)
FOLDER: Final = "remote-index"
_MOST_WAIT_MS = 2_000
"""How long a read waits for the files before it asks the store."""
_FAILURES = (OSError, ValueError, Corrupt)
"""Of the disk, or of what somebody put there; the store has it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIndexLimits:
    """`most_bytes`: of all files; what would exceed it is not kept."""

    rotation: Rotation
    most_bytes: int


@dataclass(slots=True, kw_only=True)
class RemoteIndexCounts:
    """Totals since the start, and `file_bytes`, `segments` now."""

    found: int = 0
    absent: int = 0
    kept: int = 0
    damaged: int = 0
    refused: int = 0
    failed: int = 0
    file_bytes: int = 0


class RemoteIndexFiles:
    """The blocking part; safe to call from several threads."""

    def __init__(
        self, state_dir: Path, limits: RemoteIndexLimits, now_ms: Callable[[], int]
    ) -> None:
        self._root = state_dir / FOLDER
        self._limits = limits
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._partitions: dict[str, PartitionIndex] | None = None
        self._bytes: dict[str, int] = {}
        self.partition_of: dict[bytes, str] = {}
        """The partition of each segment that is kept."""
        self.counts = RemoteIndexCounts()

    def load(self) -> None:
        """Find what is kept; done once, by whichever call is first."""
        with self._lock:
            try:
                self._loaded()
            except _FAILURES as error:
                self._fail("read", error)

    @property
    def is_loaded(self) -> bool:
        return self._partitions is not None

    def indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes | None:
        """The indexes of a segment; None: not kept, or damaged and therefore dropped."""
        with self._lock:
            try:
                found = self._indexes(segment)
            except _FAILURES as error:
                self._fail("read", error)
                found = None
            if found is None:
                self.counts.absent += 1
            else:
                self.counts.found += 1
            return found

    def keep(self, segment: RemoteLogSegmentMetadata, indexes_object: bytes) -> None:
        """Keep what the indexes object, which was verified, has in section 18, if it has one."""
        try:
            prepared = _prepared(segment, indexes_object)
        except (Corrupt, ValueError) as error:
            log.error("remote_index_not_usable", segment=str(segment.segment_id), error=str(error))
            return
        if prepared is None:
            return
        with self._lock:
            try:
                self._keep(_name(segment), *prepared)
            except _FAILURES as error:
                self._fail("write", error)

    def discard(self, segment: RemoteLogSegmentMetadata) -> None:
        """Forget a segment whose entries turned out to be wrong."""
        with self._lock:
            try:
                name, partitions = _name(segment), self._loaded()
                if name in partitions:
                    self.counts.damaged += 1
                    self._cut(name, segment)
            except _FAILURES as error:
                self._fail("write", error)

    def drop(self, ended: frozenset[bytes]) -> None:
        """Drop segments that have ended. A file is removed when all its segments have."""
        with self._lock:
            try:
                partitions = self._loaded()
                for name in {self.partition_of[raw] for raw in ended if raw in self.partition_of}:
                    try:
                        partitions[name].drop(ended)
                    finally:
                        self._note(name)
            except _FAILURES as error:
                self._fail("write", error)

    def _indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes | None:
        name = _name(segment)
        known = self._loaded().get(name)
        if known is None or segment.segment_id.id.raw not in self.partition_of:
            return None
        try:
            found = known.read(segment.segment_id.id.raw, segment.start_offset)
        finally:
            self._note(name)
        if found is None:
            return None
        try:
            return SegmentIndexes.of_files(*found, segment)
        except Corrupt as error:
            log.warning("remote_index_damaged", partition=name, error=str(error))
            self.counts.damaged += 1
            self._cut(name, segment)
            return None

    def _cut(self, name: str, segment: RemoteLogSegmentMetadata) -> None:
        try:
            self._loaded()[name].cut_at(segment.segment_id.id.raw, segment.start_offset)
        finally:
            self._note(name)

    def _keep(self, name: str, record: SegmentRecord, entries: bytes) -> None:
        partitions = self._loaded()
        added = len(entries) + len(record.encode())
        if self.counts.file_bytes + added > self._limits.most_bytes:
            self.counts.refused += 1
            return
        if record.segment_id.raw in self.partition_of:
            return
        known = partitions.get(name)
        if known is None:
            known = PartitionIndex(self._root / name, self._limits.rotation)
            partitions[name] = known
        try:
            known.keep(record, entries, self._now_ms())
            self.counts.kept += 1
        finally:
            self._note(name)

    def _loaded(self) -> dict[str, PartitionIndex]:
        """OSError: the folder cannot be read. A partition whose files cannot be read has none."""
        if self._partitions is None:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found: dict[str, PartitionIndex] = {}
            for folder in sorted(self._root.iterdir()):
                if not folder.is_dir():
                    continue
                partition = PartitionIndex(folder, self._limits.rotation)
                try:
                    partition.load()
                except OSError as error:
                    self._fail("read", error)
                else:
                    found[folder.name] = partition
            self._partitions = found
            for name in found:
                self._note(name)
        return self._partitions

    def _note(self, name: str) -> None:
        """After a change: what the partition has now."""
        partition = (self._partitions or {})[name]
        for raw, is_kept in partition.take_changes().items():
            if is_kept:
                self.partition_of[raw] = name
            else:
                self.partition_of.pop(raw, None)
        before, self._bytes[name] = self._bytes.get(name, 0), partition.disk_bytes
        self.counts.file_bytes += partition.disk_bytes - before
        self.counts.damaged += partition.damaged
        partition.damaged = 0

    def _fail(self, operation: str, error: Exception) -> None:
        self.counts.failed += 1
        log.warning("remote_index_failed", operation=operation, error=str(error))


class RemoteIndex:
    """The files as tasks use them; no method fails."""

    def __init__(self, files: RemoteIndexFiles, threads: Threads) -> None:
        self.files = files
        self._threads = threads
        self._writing: set[asyncio.Future[None]] = set()

    @property
    def counts(self) -> RemoteIndexCounts:
        return self.files.counts

    async def indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes | None:
        """The indexes of a segment, if they are kept and the disk answers soon: a reader waits."""
        if self.files.is_loaded and segment.segment_id.id.raw not in self.files.partition_of:
            self.counts.absent += 1
            return None
        job = await self._soon(partial(self.files.indexes, segment))
        return None if job is None else job.future.result()

    async def discard(self, segment: RemoteLogSegmentMetadata) -> None:
        """Forget a segment whose entries turned out to be wrong; waits as long as `indexes`."""
        if await self._soon(partial(self.files.discard, segment)) is None:
            self.counts.failed += 1

    async def _soon(self, work: Callable[[], T]) -> Job[T] | None:
        """Work that is done; None: not soon enough, as the threads are busy, or hang. A read may
        begin outside of a task, so there is no asyncio.timeout here (`rlm.proxy.begun`).
        """
        try:
            job = self._threads.begin(work)
        except RemoteStorageError:
            return None
        try:
            done, _ = await asyncio.wait((job.future,), timeout=_MOST_WAIT_MS / 1000)
        except asyncio.CancelledError:
            self._threads.drop(job)
            raise
        if not done:
            self._threads.drop(job)
            return None
        return job

    def keep(self, segment: RemoteLogSegmentMetadata, indexes_object: bytes) -> None:
        """Keep what a verified indexes object has, in the background."""
        if segment.segment_id.id.raw not in self.files.partition_of:
            self._begin(partial(self.files.keep, segment, indexes_object))

    def keys(self) -> Sequence[ChunkKey]:
        """Each segment that is kept, as the caches of chunks name theirs; none before the files are
        loaded, which begins here if nothing was read or copied before.
        """
        if not self.files.is_loaded:
            self._begin(self.files.load)
        return [(Uuid(raw), 0) for raw in tuple(self.files.partition_of)]

    def drop(self, keys: Collection[ChunkKey]) -> None:
        """Keep these segments no longer, in the background."""
        if keys:
            self._begin(partial(self.files.drop, frozenset(segment.raw for segment, _ in keys)))

    async def load(self) -> None:
        """Find what is kept, and return once it is known."""
        self._begin(self.files.load)
        await self.written()

    async def written(self) -> None:
        """Return once everything that was begun is done."""
        while self._writing:
            await asyncio.wait(self._writing)

    def _begin(self, work: Callable[[], None]) -> None:
        try:
            future = self._threads.begin(work).future
        except RemoteStorageError:  # the threads are busy, or hang
            self.counts.refused += 1
            return
        self._writing.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._writing.discard(future)
        if not future.cancelled() and future.exception() is not None:
            self.counts.failed += 1


def _name(segment: RemoteLogSegmentMetadata) -> str:
    partition = segment.topic_id_partition
    return f"{partition.topic}-{partition.partition}"


def _prepared(
    segment: RemoteLogSegmentMetadata, indexes_object: bytes
) -> tuple[SegmentRecord, bytes] | None:
    """Record and entries; None: the segment was copied without entries. Corrupt: they are not of
    this segment.
    """
    parsed = IndexesObject.parse(indexes_object)
    section = parsed.section(IndexType.REMOTE_LOG_INDEX)
    checksums = parsed.section(IndexType.CHUNK_CHECKSUMS)
    aborted = parsed.section(IndexType.ABORTED_TRANSACTIONS)
    if section is None or checksums is None or aborted is None:
        return None
    entries = bytes(section)
    segment_entries(entries, segment.segment_size_bytes, segment.start_offset, segment.end_offset)
    record = SegmentRecord(
        segment_id=segment.segment_id.id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        log_size_bytes=segment.segment_size_bytes,
        indexes_crc32c=checked_custom(segment).indexes_crc32c,
        position=0,
        size_bytes=len(entries),
        checksums=bytes(checksums),
        aborted=bytes(aborted),
    )
    return record, entries
