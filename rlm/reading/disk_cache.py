"""The disk cache of chunks: it survives restarts, is bounded, and never makes a read fail.

At worst it holds nothing. A damaged file is a miss and is removed; a full, slow or broken disk
turns the cache off with one warning. Writes run in the background and are dropped when the disk
lags. The cache must not know stores or what a chunk means.

One service locks the folder, scans it at start, and reads and writes its files. This blocks, so it
runs in threads. A file appears whole under its name or not at all. Nothing is synced: the checksum
shows damage after a crash. The caller handles OSError.

A file holds one chunk behind a header: magic `RLMC`, u8 version, 16 bytes segment id, uint32
number, uint32 size, uint32 CRC-32C of the chunk. This is a cache and not a durable format: a file
that is not understood is a miss.
"""

import asyncio
import fcntl
import os
import re
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from kip405.crc import crc32c
from kip405.ids import Uuid
from rlm.reading.chunk_cache import ChunkKey
from rlm.reading.chunk_memory import Chunk, ChunkMemory, view_of
from rlm.reading.eviction import ScanResistant
from rsm_plugins.threads import Threads

_HEADER = struct.Struct(">4sB16sIII")
_MAGIC = b"RLMC"
_VERSION = 1
_NAME = re.compile(r"([0-9a-f]{32})-([0-9]{1,9})\.chunk")
HEADER_BYTES = _HEADER.size
_OWNER_ONLY = 0o700
"""Records are not for everybody on this machine, whatever the umask."""


def file_name(key: ChunkKey) -> str:
    """Name below the cache's folder: files are spread over 256 folders by the segment's id."""
    segment, number = key
    text = segment.raw.hex()
    return f"{text[:2]}/{text}-{number}.chunk"


def key_of(name: str) -> ChunkKey | None:
    """The chunk that a file holds by the last part of its name; None for any other file."""
    found = _NAME.fullmatch(name)
    return (Uuid(bytes.fromhex(found[1])), int(found[2])) if found else None


def header_of(key: ChunkKey, data: Chunk) -> bytes:
    """The header that is written before the chunk."""
    segment, number = key
    return _HEADER.pack(_MAGIC, _VERSION, segment.raw, number, len(data), crc32c(view_of(data)))


def chunk_of(key: ChunkKey, header: bytes, data: Chunk) -> Chunk | None:
    """The chunk; None unless header and bytes are those that were written for this key."""
    whole = len(header) == HEADER_BYTES and header == header_of(key, data)
    return data if whole else None


_LOCK = "lock"
_TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A chunk that was found at start."""

    key: ChunkKey
    size_bytes: int
    modified_ns: int


class ChunkFolder:
    """The files of chunks in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None

    def open(self) -> tuple[KeptFile, ...]:
        """Lock the folder, list its chunks, oldest first, and remove unfinished files.
        BlockingIOError: another service has locked it.
        """
        self._folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = tuple(self._scan())
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        return tuple(sorted(found, key=lambda one: one.modified_ns))

    def _scan(self) -> Iterator[KeptFile]:
        for part in self._folder.glob("[0-9a-f][0-9a-f]"):
            part.chmod(_OWNER_ONLY)  # earlier versions left that to the umask
            with os.scandir(part) as entries:
                for entry in entries:
                    key = key_of(entry.name)
                    if key is not None:
                        known = entry.stat(follow_symlinks=False)
                        yield KeptFile(
                            key=key, size_bytes=known.st_size, modified_ns=known.st_mtime_ns
                        )
                    elif entry.name.endswith(_TEMPORARY):
                        os.unlink(entry.path)

    def close(self) -> None:
        """Release the folder's lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, key: ChunkKey, memory: ChunkMemory) -> Chunk | None:
        """The chunk as it was written; None where the file is gone, or damaged (then removed)."""
        path = self._folder / file_name(key)
        try:
            with path.open("rb", buffering=0) as file:
                header, data = _read_whole(file.fileno(), memory)
        except FileNotFoundError:
            return None
        found = chunk_of(key, header, data)
        if found is None:
            path.unlink(missing_ok=True)
        return found

    def write(self, key: ChunkKey, data: Chunk) -> None:
        """Write the chunk's file, whole or not at all."""
        path = self._folder / file_name(key)
        path.parent.mkdir(mode=_OWNER_ONLY, exist_ok=True)
        temporary = path.with_name(path.name + _TEMPORARY)
        try:
            with open(temporary, "wb", buffering=0, opener=_private) as file:
                for piece in (header_of(key, data), data):
                    _write_all(file.fileno(), piece)
            temporary.replace(path)
        except OSError:
            _unlink_if_possible(temporary)
            raise

    def remove(self, key: ChunkKey) -> None:
        """Remove the chunk's file, if it is still there."""
        (self._folder / file_name(key)).unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    """Open a file of this user alone."""
    return os.open(path, flags, 0o600)


def _read_whole(descriptor: int, memory: ChunkMemory) -> tuple[bytes, Chunk]:
    """The header, and the chunk by the size that the file has now. A file that is cut short
    meanwhile has other bytes than its header says.
    """
    chunk = memory.buffer(max(os.fstat(descriptor).st_size - HEADER_BYTES, 0))
    header = bytearray(HEADER_BYTES)
    read_bytes = os.preadv(descriptor, [header, chunk], 0)
    return bytes(header), chunk if read_bytes == len(header) + len(chunk) else b""


def _write_all(descriptor: int, data: Chunk) -> None:
    view = view_of(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _unlink_if_possible(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # the caller will soon meet the same broken disk


log = structlog.get_logger(__name__)
V = TypeVar("V")
_QUEUE_SHARE = 8
_MOST_QUEUED_BYTES = 32 << 20
_READ_TIMEOUT_MS = 5_000
_WRITES_AT_ONCE = 8


@dataclass(slots=True, kw_only=True)
class DiskCounts:
    """Totals since the start."""

    damaged: int = 0
    dropped_writes: int = 0


class DiskCache:
    """Chunks in files. Nothing is cached unless `run` owns the folder."""

    def __init__(
        self,
        path: Path,
        capacity_bytes: int,
        *,
        threads: Threads,
        read_timeout_ms: int = _READ_TIMEOUT_MS,
        folder: ChunkFolder | None = None,
    ) -> None:
        self._folder = folder or ChunkFolder(path)
        self._path = path
        self._capacity_bytes = capacity_bytes
        self._most_queued_bytes = min(_MOST_QUEUED_BYTES, capacity_bytes // _QUEUE_SHARE)
        self._read_timeout_ms = read_timeout_ms
        self._order: ScanResistant[ChunkKey] = ScanResistant(capacity_bytes)
        self._threads = threads
        self._queue: deque[tuple[ChunkKey, Chunk]] = deque()
        self._queued_bytes = 0
        self._removals: deque[ChunkKey] = deque()
        self._work = asyncio.Event()
        self._uses = 0
        self.is_on = False
        self.is_idle = False
        """Nothing is being written or removed, or waits for it."""
        self.counts = DiskCounts()

    @property
    def kept_bytes(self) -> int:
        """Bytes of all files, headers included."""
        return self._order.bytes

    async def run(self) -> None:
        """Own the folder until cancelled or until the disk fails."""
        try:
            if await self._guarded("open", self._open()) is None:
                return
            self.is_on = True
            while self.is_on:
                self.is_idle = not self._work.is_set()
                await self._work.wait()
                self._work.clear()
                await self._guarded("write", self._write_queued())
        finally:
            self.is_on = False
            self._queue.clear()
            self._folder.close()

    async def _open(self) -> bool:
        for kept in await self._threaded(self._folder.open):
            self._order.add(kept.key, kept.size_bytes, 0)
        self._removals.extend(self._make_room(0))
        self._work.set()
        log.info("disk_cache_opened", chunks=len(self._order), size_bytes=self.kept_bytes)
        return True

    async def _guarded(self, operation: str, work: Awaitable[V]) -> V | None:
        try:
            return await work
        except (OSError, TimeoutError) as error:
            if self.is_on or operation == "open":
                log.warning(
                    "disk_cache_off", operation=operation, path=str(self._path), error=repr(error)
                )
            self.is_on = False
            self._work.set()
            return None

    # Implements rlm.reading.source.ChunkDisk.

    def has(self, key: ChunkKey) -> bool:
        """Whether the chunk is probably there."""
        return self.is_on and key in self._order

    async def read(self, key: ChunkKey, memory: ChunkMemory) -> Chunk | None:
        """The chunk as it was written; None in every other case."""
        if not self.has(key):
            return None
        self._uses += 1
        self._order.touch(key, self._uses)
        data = await self._guarded("read", self._read(key, memory))
        if data is None:
            self._order.discard(key)
            self.counts.damaged += self.is_on
            return None
        return data

    async def _read(self, key: ChunkKey, memory: ChunkMemory) -> Chunk | None:
        async with asyncio.timeout(self._read_timeout_ms / 1000):
            return await self._threaded(self._folder.read, key, memory)

    def discard(self, key: ChunkKey) -> None:
        """Remove a chunk that is not what its segment's checksums say."""
        if self.has(key):
            self.counts.damaged += 1
            self.drop([key])

    def keys(self) -> tuple[ChunkKey, ...]:
        """All chunks that are in files."""
        return self._order.keys() if self.is_on else ()

    def drop(self, keys: Collection[ChunkKey]) -> None:
        """Remove chunks that nobody will read again."""
        for key in keys:
            if self.has(key):
                self._order.discard(key)
                self._removals.append(key)
                self._has_work()

    def _has_work(self) -> None:
        self.is_idle = False
        self._work.set()

    def write(self, key: ChunkKey, data: Chunk) -> None:
        """Keep the chunk, unless the disk lags behind."""
        if not self.is_on or key in self._order:
            return
        if self._queued_bytes + len(data) > self._most_queued_bytes:
            self.counts.dropped_writes += 1
            return
        self._queue.append((key, data))
        self._queued_bytes += len(data)
        self._has_work()

    # Background writes.

    async def _write_queued(self) -> None:
        while self._queue or self._removals:
            removals = [self._removals.popleft() for _ in range(len(self._removals))]
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _WRITES_AT_ONCE))]
            size_bytes = sum(len(data) for _, data in batch)
            removals += self._make_room(size_bytes + len(batch) * HEADER_BYTES)
            try:
                await self._threaded(self._change, removals, batch)
            finally:
                self._queued_bytes -= size_bytes
            for key, data in batch:
                self._order.add(key, len(data) + HEADER_BYTES, 0)

    def _make_room(self, size_bytes: int) -> list[ChunkKey]:
        leaving: list[ChunkKey] = []
        while self.kept_bytes + size_bytes > self._capacity_bytes:
            key = self._order.pop(lambda _: True)
            if key is None:
                break
            leaving.append(key)
        return leaving

    def _change(self, removals: list[ChunkKey], batch: list[tuple[ChunkKey, Chunk]]) -> None:
        for key in removals:
            self._folder.remove(key)
        for key, data in batch:
            self._folder.write(key, data)

    async def _threaded(self, work: Callable[..., V], *arguments: object) -> V:
        return await self._threads.run(work, *arguments)
