"""Runs a download: a few segments at once, every byte checked before it counts (G9).

Indexes are checked by the CRC-32C in the segment's metadata, the log by the chunk checksums that
the indexes hold. A failure that may pass is retried.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Corrupt, NotFound, RemoteStorageError
from kip405.indexes import ChunkChecksums, IndexesObject
from kip405.segments import ByteRange
from rlm.clock import Clock, backoff_ms
from rlm.download.folder import PartitionFolder
from rlm.download.plan import RANGE_BYTES, PartitionPlan, Piece, Source
from rsm_plugins.threads import Threads

P = ParamSpec("P")
V = TypeVar("V")
_SEGMENTS_AT_ONCE = 4
_HANGING_AFTER_S = 60.0
_ATTEMPTS = 6
_ONCE_MORE = (Corrupt, NotFound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of one partition in bytes of log objects, `had_bytes` of them from an earlier
    call.
    """

    plan: PartitionPlan
    done_bytes: int
    had_bytes: int
    done_segments: int


Report = Callable[[Progress], None]


class Download:
    """Downloads partitions of one source into one directory."""

    def __init__(
        self, source: Source, root: Path, *, clock: Clock, threads: Threads, report: Report
    ) -> None:
        self._source = source
        self._threads = threads
        self._root = root
        self._clock = clock
        self._report = report

    async def run(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        """All that the remote tier has, partition by partition; what was downloaded.

        Invalid: something foreign is in the way. Corrupt, NotFound: asked twice, an object is
        damaged or gone. After an interruption the same call continues.
        """
        plans = await self._retried(lambda: self._source.plans(topic, partition))
        for plan in plans:
            with PartitionFolder.opened(self._root, plan) as folder:
                await _PartitionRun(
                    self._source, plan, folder, self._retried, self._threads, self._report
                ).run()
        return plans

    async def _retried(self, call: Callable[[], Awaitable[V]]) -> V:
        for attempt in range(_ATTEMPTS):
            try:
                return await call()
            except RemoteStorageError as error:
                last = attempt == _ATTEMPTS - 1
                if last or not (
                    error.retriable or (attempt == 0 and isinstance(error, _ONCE_MORE))
                ):
                    raise
            await self._clock.sleep_ms(backoff_ms(attempt))
        raise AssertionError("not reached: the last attempt raises or returns")


Retried = Callable[[Callable[[], Awaitable[bytes]]], Awaitable[bytes]]


class _PartitionRun:
    def __init__(
        self,
        source: Source,
        plan: PartitionPlan,
        folder: PartitionFolder,
        retried: Retried,
        threads: Threads,
        report: Report,
    ) -> None:
        self._source = source
        self._plan = plan
        self._folder = folder
        self._retried = retried
        self._threads = threads
        self._report = report
        self._left = deque(folder.pending)
        self._had_bytes = plan.size_bytes - sum(piece.size_bytes for piece in self._left)
        self._done_bytes = self._had_bytes
        self._done_segments = len(plan.pieces) - len(self._left)

    async def run(self) -> None:
        self._show_progress()
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(_SEGMENTS_AT_ONCE, len(self._left))):
                    workers.create_task(self._work())
        except* (RemoteStorageError, OSError) as group:
            raise _first(group) from group
        await self._to_its_end(self._folder.complete)

    async def _work(self) -> None:
        while self._left:
            await self._fetch(self._left.popleft())

    async def _fetch(self, piece: Piece) -> None:
        indexes = IndexesObject.parse(await self._retried(partial(self._indexes, piece)))
        checksums = _checksums(indexes, piece)
        position = await self._to_its_end(self._folder.part_size, piece, checksums)
        self._had_bytes += position
        self._advance(position)
        step = max(RANGE_BYTES // checksums.chunk_size_bytes, 1) * checksums.chunk_size_bytes
        while position < piece.size_bytes:
            wanted = ByteRange(start=position, end=min(position + step, piece.size_bytes))
            data = await self._retried(partial(self._log, piece, wanted, checksums))
            await self._to_its_end(self._folder.append, piece, position, data)
            position = wanted.end
            self._advance(len(data))
        await self._to_its_end(self._folder.finish, piece, indexes)
        self._done_segments += 1
        self._show_progress()

    async def _indexes(self, piece: Piece) -> bytes:
        try:
            custom = piece.metadata.custom()
        except ValueError as error:
            raise Corrupt(f"metadata of segment {piece.metadata.segment_id}: {error}") from error
        data = await self._source.read_indexes(self._plan, piece)
        if len(data) != custom.indexes_size_bytes or crc32c(data) != custom.indexes_crc32c:
            raise Corrupt(
                f"indexes object of segment {piece.metadata.segment_id} is not what was stored"
            )
        return data

    async def _log(self, piece: Piece, wanted: ByteRange, checksums: ChunkChecksums) -> bytes:
        data = await self._source.read_log(self._plan, piece, wanted)
        try:
            await self._threads.run(_check, data, wanted, checksums)
        except Corrupt as error:
            raise Corrupt(f"log of segment {piece.metadata.segment_id}: {error}") from error
        return data

    async def _to_its_end(self, work: Callable[P, V], *args: P.args, **kwargs: P.kwargs) -> V:
        """File work in a thread; when this is cancelled the folder is not left before it has ended,
        or hangs.
        """
        job = self._threads.begin(partial(work, *args, **kwargs))
        try:
            await asyncio.wait((job.future,))
        except asyncio.CancelledError:
            self._threads.drop(job)
            await asyncio.wait((job.future,), timeout=_HANGING_AFTER_S)
            raise
        return job.future.result()

    def _advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self._show_progress()

    def _show_progress(self) -> None:
        self._report(
            Progress(
                plan=self._plan,
                done_bytes=self._done_bytes,
                had_bytes=self._had_bytes,
                done_segments=self._done_segments,
            )
        )


def _checksums(indexes: IndexesObject, piece: Piece) -> ChunkChecksums:
    what = f"indexes of segment {piece.metadata.segment_id}"
    section = indexes.section(IndexType.CHUNK_CHECKSUMS)
    if section is None:
        raise Corrupt(f"{what} have no chunk checksums")
    try:
        return ChunkChecksums.decode(section, piece.size_bytes)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error}") from error


def _check(data: bytes, wanted: ByteRange, checksums: ChunkChecksums) -> None:
    if len(data) != wanted.size_bytes:
        raise Corrupt(f"bytes {wanted.start}..{wanted.end} came as {len(data)} bytes")
    size = checksums.chunk_size_bytes
    view = memoryview(data)
    for at in range(0, len(data), size):
        checksums.check((wanted.start + at) // size, view[at : at + size])


def _first(group: BaseException) -> BaseException:
    return _first(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group
