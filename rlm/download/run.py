"""Runs a download: a few segments at once, every byte checked before it counts (`verified.py`)."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from kip405.errors import RemoteStorageError
from kip405.segments import ByteRange
from rlm.clock import Clock
from rlm.download.folder import PartitionFolder
from rlm.download.plan import PartitionPlan, Piece, Source
from rlm.download.verified import VerifiedReads
from rsm_plugins.threads import Threads

P = ParamSpec("P")
V = TypeVar("V")
_SEGMENTS_AT_ONCE = 4
_HANGING_AFTER_S = 60.0


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
        self._reads = VerifiedReads(source, clock=clock, threads=threads)
        self._threads = threads
        self._root = root
        self._report = report

    async def run(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        """All that the remote tier has, partition by partition; what was downloaded.

        Invalid: something foreign is in the way. Corrupt, NotFound: asked twice, an object is
        damaged or gone. After an interruption the same call continues.
        """
        plans = await self._reads.plans(topic, partition)
        for plan in plans:
            with PartitionFolder.opened(self._root, plan) as folder:
                await _PartitionRun(self._reads, plan, folder, self._threads, self._report).run()
        return plans


class _PartitionRun:
    def __init__(
        self,
        reads: VerifiedReads,
        plan: PartitionPlan,
        folder: PartitionFolder,
        threads: Threads,
        report: Report,
    ) -> None:
        self._reads = reads
        self._plan = plan
        self._folder = folder
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
        found = await self._reads.indexes(self._plan, piece)
        checksums = found.checksums
        position = await self._to_its_end(self._folder.part_size, piece, checksums)
        self._had_bytes += position
        self._advance(position)
        while position < piece.size_bytes:
            wanted = ByteRange(
                start=position, end=min(position + found.step_bytes, piece.size_bytes)
            )
            data = await self._reads.log(self._plan, piece, wanted, checksums)
            await self._to_its_end(self._folder.append, piece, position, data)
            position = wanted.end
            self._advance(len(data))
        await self._to_its_end(self._folder.finish, piece, found.indexes)
        self._done_segments += 1
        self._show_progress()

    async def _to_its_end(self, work: Callable[P, V], *args: P.args, **kwargs: P.kwargs) -> V:
        """File work in a thread; when this is cancelled the folder is not left before it has ended,
        or hangs.
        """
        job = self._threads.begin(partial(work, *args, **kwargs))
        return await self._threads.result(job, lambda: _HANGING_AFTER_S)

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


def _first(group: BaseException) -> BaseException:
    return _first(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group
