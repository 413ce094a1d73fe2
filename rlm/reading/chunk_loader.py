"""Loads chunks and indexes: each is requested once, in ranges as large as the missing part.

What arrives is kept; a failure goes to the reads that wait and is forgotten. This module must not
know readers' plans.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from kip405.errors import Busy, RemoteStorageError
from kip405.ids import Uuid
from kip405.indexes import checked_custom
from kip405.segments import RemoteLogSegmentMetadata
from rlm.reading.chunk_cache import ChunkCache, ChunkKey, SingleFlightCache
from rlm.reading.chunk_memory import Chunk
from rlm.reading.load_scheduler import Load, LoadScheduler
from rlm.reading.segment_indexes import SegmentIndexes
from rlm.reading.source import Landed, SegmentSource, byte_range, runs
from rlm.reading.values import ReadCounts, ReadLimits
from rlm.spans import NO_SPAN, SpanReference, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Consecutive chunks of a segment that a reader wants.

    `holds_part`: the reader holds the beginning of a batch and can return nothing without the rest.
    """

    segment: RemoteLogSegmentMetadata
    numbers: range
    chunk_bytes: int
    reader: int
    is_ahead: bool = False
    holds_part: bool = False
    parent: SpanReference = NO_SPAN

    def key(self, number: int) -> ChunkKey:
        return (self.segment.segment_id.id, number)


class ChunkLoader:
    """Single flight over chunks and indexes; raises Busy when too many loads wait."""

    def __init__(
        self,
        *,
        source: SegmentSource,
        chunks: ChunkCache,
        indexes: SingleFlightCache[Uuid, SegmentIndexes],
        range_scheduler: LoadScheduler,
        index_scheduler: LoadScheduler,
        limits: ReadLimits,
        counts: ReadCounts,
        has_files: bool,
        tracer: Tracer | None = None,
    ) -> None:
        self._has_files = has_files
        self._tracer = tracer
        self._source = source
        self._chunks = chunks
        self._indexes = indexes
        self._range_scheduler = range_scheduler
        self._index_scheduler = index_scheduler
        self._limits = limits
        self._counts = counts
        self._loads: dict[ChunkKey, Load[Landed]] = {}
        self._index_loads: dict[Uuid, Load[SegmentIndexes]] = {}

    def _knows(self, key: ChunkKey) -> bool:
        """Whether a chunk is kept or being loaded."""
        return key in self._loads or key in self._chunks

    def pump(self) -> None:
        """Begin waiting loads, because there may be room now."""
        self._range_scheduler.pump()

    def forget(self, reader: int) -> None:
        """A reader is gone: cancel what is read ahead for it, and release what was kept for it."""
        dropped = set(self._range_scheduler.forget(reader))
        if dropped:
            self._loads = {key: load for key, load in self._loads.items() if load not in dropped}
        for load in self._loads.values():
            if load.reader == reader:
                load.is_reader_gone = True
        self._chunks.release(reader)

    # Indexes.

    def kept_indexes(self, segment: RemoteLogSegmentMetadata, reader: int) -> SegmentIndexes | None:
        return self._indexes.peek(segment.segment_id.id, reader)

    def begin_indexes(
        self,
        segment: RemoteLogSegmentMetadata,
        reader: int,
        *,
        is_ahead: bool,
        parent: SpanReference = NO_SPAN,
        asks_files: bool = True,
    ) -> asyncio.Future[SegmentIndexes]:
        """The load of the indexes, begun now or already running; shield it. Corrupt: bad
        metadata. `asks_files` False: `indexes_of_files` has just found nothing.
        """
        key = segment.segment_id.id
        size_bytes = checked_custom(segment).indexes_size_bytes
        flying = self._index_loads.get(key)
        if flying is not None and not is_ahead:
            self._index_scheduler.want(flying)

        def begin() -> asyncio.Future[SegmentIndexes]:
            load = Load(
                reader=reader,
                size_bytes=size_bytes,
                is_ahead=is_ahead,
                run=lambda _: self._load_indexes(segment, parent, asks_files),
                waits_for_room=False,  # ranges in flight wait for it
            )
            self._index_scheduler.submit(load)
            self._index_loads[key] = load
            load.future.add_done_callback(lambda _: self._index_loads.pop(key, None))
            return load.future

        return self._indexes.start(key, begin, reader)

    async def indexes_of_files(
        self, segment: RemoteLogSegmentMetadata, reader: int
    ) -> SegmentIndexes | None:
        """From the remote index files, kept from now on. None: they do not have them, or a load of
        them runs already.
        """
        key = segment.segment_id.id
        if not self._has_files or key in self._index_loads:
            return None
        found = await self._source.indexes_of_files(segment)
        if found is not None:
            self._indexes.put(key, found, reader)
        return found

    async def indexes_of_store(
        self, segment: RemoteLogSegmentMetadata, reader: int
    ) -> SegmentIndexes:
        """Those of the indexes object, since what the remote index files had is wrong. It is rare,
        so each reader that meets it asks for itself.
        """
        await self._source.distrust_files(segment)
        found = await self._source.indexes_of_store(segment)
        self._indexes.put(segment.segment_id.id, found, reader)
        return found

    async def _load_indexes(
        self, segment: RemoteLogSegmentMetadata, parent: SpanReference, asks_files: bool
    ) -> SegmentIndexes:
        load = self._source.indexes if asks_files else self._source.indexes_of_store
        if self._tracer is None or not parent:
            return await load(segment)
        segment_id = str(segment.segment_id.id)
        with self._tracer.span("load of indexes", parent, segment_id=segment_id):
            return await load(segment)

    # Chunks.

    def ask(self, wanted: Wanted) -> None:
        """Begin to load the chunks that are neither kept nor being loaded. Busy: not even the first
        range could be queued.
        """
        if wanted.is_ahead:
            for number in wanted.numbers:
                key, most_bytes = wanted.key(number), self._limits.ahead_bytes
                self._chunks.expect(key, wanted.reader, most_bytes)
        is_first = True
        for numbers in self._missing(wanted):
            try:
                load = self._new_load(wanted, numbers)
                self._range_scheduler.submit(load)
            except Busy:
                if is_first:
                    raise
                return
            is_first = False
            keys = [wanted.key(number) for number in numbers]
            self._loads.update(dict.fromkeys(keys, load))
            load.future.add_done_callback(partial(self._ended, keys, load))
            if wanted.is_ahead:
                self._counts.ahead_bytes += load.size_bytes
            else:
                self._counts.misses += len(numbers)

    def _missing(self, wanted: Wanted) -> Iterable[range]:
        most = max(self._limits.one_range_bytes // wanted.chunk_bytes, 1)
        for run in runs(n for n in wanted.numbers if not self._knows(wanted.key(n))):
            for start in range(run.start, run.stop, most):
                yield range(start, min(start + most, run.stop))

    def _new_load(self, wanted: Wanted, numbers: range) -> Load[Landed]:
        """The load of a range; the load of its indexes is begun first if they are not kept."""
        segment = wanted.segment
        size_bytes = byte_range(numbers, wanted.chunk_bytes, segment.segment_size_bytes).size_bytes
        indexes = self.kept_indexes(segment, wanted.reader)
        if indexes is None:
            ahead, parent = wanted.is_ahead, wanted.parent
            self.begin_indexes(segment, wanted.reader, is_ahead=ahead, parent=parent)
        return Load(
            reader=wanted.reader,
            size_bytes=size_bytes,
            is_ahead=wanted.is_ahead,
            run=partial(self._bring, wanted, numbers, indexes),
            holds_part=wanted.holds_part or size_bytes > self._limits.chunk_bytes,
        )

    def _ended(
        self,
        keys: Iterable[ChunkKey],
        load: Load[Landed],
        _: asyncio.Future[Landed] | None = None,
    ) -> None:
        for key in keys:
            if self._loads.get(key) is load:
                del self._loads[key]

    async def _bring(
        self,
        wanted: Wanted,
        numbers: range,
        indexes: SegmentIndexes | None,
        load: Load[Landed],
    ) -> Landed:
        """Load a range and keep its chunks. `indexes` None: their load was begun before this one.
        Nothing is kept if the segment's chunks have another size than supposed.
        """
        segment = wanted.segment
        known: SegmentIndexes | asyncio.Future[SegmentIndexes] | None = indexes
        known = known or self.kept_indexes(segment, wanted.reader)
        if known is None:
            ahead, parent = load.is_ahead, wanted.parent
            known = self.begin_indexes(segment, wanted.reader, is_ahead=ahead, parent=parent)
        if self._tracer is None or not wanted.parent:
            landed = await self._source.chunks(segment, numbers, wanted.chunk_bytes, known)
        else:
            with self._tracer.span(
                "load of chunks",
                wanted.parent,
                segment_id=str(segment.segment_id.id),
                first_chunk=numbers.start,
                chunks=len(numbers),
                bytes=load.size_bytes,
            ):
                landed = await self._source.chunks(segment, numbers, wanted.chunk_bytes, known)
        self._range_scheduler.landed(load)
        # At once: a read that does not find its chunks in what arrived must not find this load
        # again.
        self._ended([wanted.key(number) for number in numbers], load)
        waits_for_reader = wanted.is_ahead and not load.is_reader_gone
        for number, outcome in landed.items():
            if not isinstance(outcome, RemoteStorageError):
                is_ahead = waits_for_reader and number not in load.waited_for
                self._chunks.put(wanted.key(number), outcome, wanted.reader, is_ahead=is_ahead)
        return landed

    def is_queued(self, key: ChunkKey) -> bool:
        """Whether the load of a chunk has not begun."""
        load = self._loads.get(key)
        return load is not None and load.task is None

    async def land(self, key: ChunkKey, *, holds_part: bool = False) -> Chunk | None:
        """Wait for a chunk that is being loaded; its error is raised. None: it never arrived, and
        must be requested again.

        `holds_part`: as in Wanted, whichever reader requested it first.
        """
        load = self._loads.get(key)
        if load is None:
            return None
        if load.is_ahead:
            self._counts.joined += 1
        load.holds_part = load.holds_part or holds_part
        self._range_scheduler.want(load, key[1])
        outcome = (await asyncio.shield(load.future)).get(key[1])
        if isinstance(outcome, RemoteStorageError):
            del load  # the error refers to this frame, and must not keep what else the load brought
            raise outcome
        return outcome
