"""Reads whole batches of remote segments from verified chunks, and reads ahead for steady readers.

A read waits for the first chunk that is missing and then returns what is there: a reader that asks
for much gets its first record as soon as a reader that asks for little. The indexes and the first
range of an unknown segment are requested together, so that the first record is at most two round
trips away. Where the remote index files have the segment, its first range is the only request.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from kip405.batches import read_header
from kip405.contracts import SegmentReader
from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction, aborted_for_fetch
from kip405.records import find_timestamp
from kip405.scan import DEFAULT_CHUNK_BYTES
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import Clock
from rlm.plans.fetch import ChunkWindow, Cut, ReadBounds, cut, first_offset
from rlm.reading.chunk_cache import ChunkCache, SingleFlightCache
from rlm.reading.chunk_loader import ChunkLoader, Wanted
from rlm.reading.chunk_memory import ChunkMemory, view_of
from rlm.reading.cursors import Cursor, Cursors, Following
from rlm.reading.load_scheduler import LoadScheduler, ReadMemory
from rlm.reading.remote_index import RemoteIndex
from rlm.reading.segment_indexes import SegmentIndexes, guessed_numbers
from rlm.reading.source import ChunkDisk, SegmentSource
from rlm.reading.values import ReadCounts, ReadLimits, RemoteRecords, TimestampedOffset
from rlm.spans import NO_SPAN, SpanReference, Tracer
from rsm_plugins.threads import Threads


class RemoteReader:
    """Reads batches of FINISHED segments from the store through caches; owns no task and no
    pool.
    """

    def __init__(
        self,
        *,
        store: SegmentReader,
        cluster_id: str,
        tasks: asyncio.TaskGroup,
        threads: Threads,
        clock: Clock,
        limits: ReadLimits,
        disk: ChunkDisk | None = None,
        remote_index: RemoteIndex | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.remote_index = remote_index
        self._tracer = tracer
        self._threads = threads
        self._clock = clock
        self._limits = limits
        self._cursors = Cursors(limits)
        self._chunk_bytes = DEFAULT_CHUNK_BYTES
        self.counts = ReadCounts()
        self.chunks = ChunkCache(limits.chunk_bytes)
        self.chunk_memory = ChunkMemory()
        self.indexes: SingleFlightCache[Uuid, SegmentIndexes] = SingleFlightCache(
            capacity_bytes=limits.index_bytes,
            weigh=lambda kept: kept.size_bytes + limits.index_objects_bytes,
        )
        self.memory = ReadMemory(limits, self.chunks, lambda: self.indexes.kept_bytes)
        self.range_scheduler, self.index_scheduler = (
            LoadScheduler(
                tasks, self.memory, clock, at_once=at_once, most_waiting=limits.most_waiting
            )
            for at_once in (limits.ranges_at_once, limits.indexes_at_once)
        )
        self._loader = ChunkLoader(
            source=SegmentSource(
                store=store,
                cluster_id=cluster_id,
                threads=threads,
                disk=disk,
                memory=self.chunk_memory,
                counts=self.counts,
                remote_index=remote_index,
            ),
            chunks=self.chunks,
            indexes=self.indexes,
            range_scheduler=self.range_scheduler,
            index_scheduler=self.index_scheduler,
            limits=limits,
            counts=self.counts,
            has_files=remote_index is not None,
            tracer=tracer,
        )

    @property
    def reader_count(self) -> int:
        """Readers that are known now."""
        return len(self._cursors)

    def suppose_chunk_bytes(self, chunk_bytes: int) -> None:
        """Set the chunk size to suppose for a segment whose indexes are not known yet."""
        self._chunk_bytes = chunk_bytes

    async def read(
        self,
        segment: RemoteLogSegmentMetadata,
        bounds: ReadBounds,
        *,
        read_committed: bool,
        following: Following | None = None,
        parent: SpanReference = NO_SPAN,
    ) -> RemoteRecords:
        """Batches of one segment within the bounds, fewer if more is not loaded yet, none if the
        segment has none there. `following` finds the segments to read ahead; without it nothing is
        read ahead.

        Unavailable or Busy: try again. NotFound or Corrupt: the store was asked twice, the objects
        are gone or damaged.
        """
        answer_bytes = self.memory.answer_bytes()
        if answer_bytes < bounds.max_bytes:
            bounds = replace(bounds, max_bytes=answer_bytes)
        one = _OneRead(
            loader=self._loader,
            chunks=self.chunks,
            counts=self.counts,
            limits=self._limits,
            segment=segment,
            bounds=bounds,
        )
        cursor = self._cursor(segment, bounds.offset) if following is not None else None
        one.reader = cursor.reader if cursor is not None else self._cursors.new_reader()
        if cursor is not None and following is not None:
            one.before_wait = lambda end: self._waits(cursor, segment, end, following)
        try:
            if self._tracer is None:
                found = await one.run(self._chunk_bytes)
            else:
                found = await _traced(self._tracer, parent, one, self._chunk_bytes)
        except BaseException:
            one.drop_chunks()
            raise
        self.suppose_chunk_bytes(one.indexes.chunks.chunk_size_bytes)
        if cursor is not None and following is not None:
            self._read_on(cursor, one, found, following)
        return _answer(one, found, read_committed)

    async def find_timestamp(
        self, segment: RemoteLogSegmentMetadata, timestamp_ms: int, lower_offset: int
    ) -> TimestampedOffset | None:
        """First record of the segment at or after both timestamp and offset (ListOffsets)."""
        indexes = await self._indexes(segment)
        offset = max(lower_offset, indexes.times.lookup(timestamp_ms))
        while offset <= segment.end_offset:
            bounds = ReadBounds(
                offset=offset, upper_offset=segment.next_offset, max_bytes=1, at_least_one=True
            )
            read = await self.read(segment, bounds, read_committed=False)
            if read.size_bytes == 0:
                return None
            batch = b"".join(read.records)
            found = await self._threads.run(find_timestamp, batch, timestamp_ms, lower_offset)
            if found is not None:
                return TimestampedOffset(
                    offset=found[0],
                    timestamp_ms=found[1],
                    leader_epoch=read_header(batch).leader_epoch,
                )
            offset = read.next_offset
        return None

    async def aborted_list(
        self, segment: RemoteLogSegmentMetadata
    ) -> tuple[AbortedTransaction, ...]:
        """The list that is stored with the segment (H9): the transactions that touch it and were
        aborted in the log of the leader that copied it. Errors as `read`.
        """
        return (await self._indexes(segment)).aborted

    async def _indexes(self, segment: RemoteLogSegmentMetadata) -> SegmentIndexes:
        reader = self._cursors.new_reader()
        indexes = self._loader.kept_indexes(segment, reader)
        if indexes is not None:
            return indexes
        coming = self._loader.begin_indexes(segment, reader, is_ahead=False)
        return await asyncio.shield(coming)

    # Readers, and what is read ahead for them.

    def _cursor(self, segment: RemoteLogSegmentMetadata, offset: int) -> Cursor:
        key = segment.topic_id_partition.key
        cursor = self._cursors.at(key, offset, self._clock.monotonic_ms())
        for gone in self._cursors.gone():
            self._loader.forget(gone.reader)
        return cursor

    def _waits(
        self, cursor: Cursor, segment: RemoteLogSegmentMetadata, end: int, following: Following
    ) -> None:
        """A read waits for something up to `end`, which was requested just now."""
        cursor.asked(segment, end, self._chunk_bytes)
        if cursor.reads:
            self._read_ahead(cursor, following)

    def _read_on(self, cursor: Cursor, one: "_OneRead", found: Cut, following: Following) -> None:
        cursor.reads += 1
        cursor.start_offset = one.bounds.offset
        cursor.next_offset = found.next_offset
        if found.end == found.start:
            if found.exhausted:  # its reader continues in the next segment
                cursor.next_offset = max(found.next_offset, one.segment.next_offset)
            return
        cursor.moved(one.segment, found.end, self._chunk_bytes)
        if cursor.is_known:
            size_bytes = found.end - found.start
            cursor.grow(self._limits.window_bytes, size_bytes, has_waited=one.has_waited)
        self._read_ahead(cursor, following)
        self._loader.pump()

    def _read_ahead(self, cursor: Cursor, following: Following) -> None:
        """Request what the reader will need next, up to its window."""
        if not self._cursors.knows(cursor):
            return  # forgotten during the read: what is kept for it would never be released
        plan = cursor.ahead(
            window_bytes=min(cursor.window_bytes, self._cursors.window_share_bytes),
            range_bytes=self._limits.range_bytes,
            chunk_bytes=self._chunk_bytes,
            following=following,
        )
        for ahead in plan:
            try:
                if ahead.start == ahead.end:
                    if self._loader.kept_indexes(ahead.segment, cursor.reader) is None:
                        self._loader.begin_indexes(ahead.segment, cursor.reader, is_ahead=True)
                    continue
                size = self._chunk_bytes
                self._loader.ask(
                    Wanted(
                        segment=ahead.segment,
                        numbers=range(ahead.start // size, -(-ahead.end // size)),
                        chunk_bytes=size,
                        reader=cursor.reader,
                        is_ahead=True,
                    )
                )
            except Corrupt:
                return  # the reader that gets there receives the error


async def _traced(
    tracer: Tracer, parent: SpanReference, one: "_OneRead", supposed_chunk_bytes: int
) -> Cut:
    partition = one.segment.topic_id_partition
    with tracer.span(
        "remote read",
        parent,
        topic=partition.topic,
        partition=partition.partition,
        offset=one.bounds.offset,
        max_bytes=one.bounds.max_bytes,
    ) as span:
        one.span = span.reference
        found = await one.run(supposed_chunk_bytes)
        span.set(
            bytes=found.end - found.start,
            chunks=one.chunk_count,
            all_from_memory=not one.has_waited,
        )
    return found


class _OneRead:
    """One read of one segment, from its position to the batches that answer it."""

    def __init__(
        self,
        *,
        loader: ChunkLoader,
        chunks: ChunkCache,
        counts: ReadCounts,
        limits: ReadLimits,
        segment: RemoteLogSegmentMetadata,
        bounds: ReadBounds,
    ) -> None:
        self._loader = loader
        self._chunks = chunks
        self._counts = counts
        self._limits = limits
        self.segment = segment
        self.bounds = bounds
        self.reader = 0
        self.has_waited = False
        self.span = NO_SPAN
        self.before_wait: Callable[[int], None] = _nothing
        self._has_yielded = False
        self._pieces: dict[int, memoryview] = {}

    @property
    def chunk_count(self) -> int:
        """Chunks that it holds now."""
        return len(self._pieces)

    def drop_chunks(self) -> None:
        """After a failure: the error refers to this object by its traceback, and must not keep
        chunks alive.
        """
        self._pieces.clear()

    async def run(self, supposed_chunk_bytes: int) -> Cut:
        """Load what is missing until there is at least one batch to return, or certainly none."""
        known = self._loader.kept_indexes(self.segment, self.reader)
        if known is None:
            known = await self._loader.indexes_of_files(self.segment, self.reader)
        if known is None:
            known = await self._first(supposed_chunk_bytes)
        position = self._begin_at(known)
        while True:
            self._take(position)
            found = self._cut(position)
            if found is None:
                self.has_waited = True
                certain = await self._loader.indexes_of_store(self.segment, self.reader)
                position = self._begin_at(certain)
                continue
            if found.needed is None or found.end > found.start:
                return found
            position = found.start
            size = self.indexes.chunks.chunk_size_bytes
            for passed in [number for number in self._pieces if (number + 1) * size <= position]:
                del self._pieces[passed]
            await self._bring(found.needed)

    def _begin_at(self, indexes: SegmentIndexes) -> int:
        """Read by these indexes, from the position that they have for the offset."""
        self.indexes = indexes
        size = indexes.chunks.chunk_size_bytes
        self._pieces.clear()
        self.window = ChunkWindow(size, self.segment.segment_size_bytes, self._pieces)
        self._start = indexes.start_of(self.bounds.offset)
        self._first_end = self._start[0]
        if indexes.is_from_files:  # the batch is somewhere in the sequence: one range has it all
            end = indexes.offsets.upper_position(self.bounds.offset + 1)
            most = self._start[0] + 2 * self._limits.first_bytes
            self._first_end = min(end or self.segment.segment_size_bytes, most)
        return self._start[0]

    def _cut(self, position: int) -> Cut | None:
        """As `rlm.plans.fetch.cut`; None where the remote index files led to no batch."""
        try:
            self._check_start()
            return cut(self.window, position, self.bounds, self.indexes.offsets)
        except Corrupt as error:
            if self.indexes.is_from_files:
                return None
            text = f"log object of segment {self.segment.segment_id}: {error}"
            raise Corrupt(text) from error

    def _check_start(self) -> None:
        """Corrupt where the batch at the start is another than the remote index files say: a read
        from there would leave out records.
        """
        position, offset = self._start
        headers = None if offset is None else self.window.headers_at(position)
        if headers is not None and first_offset(*headers) != offset:
            raise Corrupt(f"no batch at {position} begins with offset {offset}")

    async def _first(self, supposed_chunk_bytes: int) -> SegmentIndexes:
        """Load the indexes, which no file has, and the first range at the same time."""
        coming = self._loader.begin_indexes(
            self.segment, self.reader, is_ahead=False, parent=self.span, asks_files=False
        )
        self.has_waited = True
        wanted_bytes = min(self.bounds.max_bytes, self._limits.first_bytes)
        numbers = guessed_numbers(
            self.segment, self.bounds.offset, supposed_chunk_bytes, wanted_bytes
        )
        self._loader.ask(
            Wanted(
                segment=self.segment,
                numbers=numbers,
                chunk_bytes=supposed_chunk_bytes,
                reader=self.reader,
                parent=self.span,
            )
        )
        self.before_wait(numbers.stop * supposed_chunk_bytes)
        return await asyncio.shield(coming)

    def _take(self, position: int) -> None:
        """Take the kept chunks from a position on, without a gap."""
        for number in self.indexes.numbers(position, position + max(self.bounds.max_bytes, 1)):
            if number not in self._pieces:
                data = self._chunks.get((self.segment.segment_id.id, number), self.reader)
                if data is None:
                    return
                self._counts.memory_hits += 1
                self._pieces[number] = view_of(data)

    async def _bring(self, needed: tuple[int, int]) -> None:
        """Wait for the first missing chunk; request the others too."""
        size = self.indexes.chunks.chunk_size_bytes
        start, end = needed
        wanted_bytes = min(self.bounds.max_bytes, self._limits.first_bytes)
        numbers = self.indexes.numbers(start, max(end, start + wanted_bytes, self._first_end))
        self._loader.ask(
            Wanted(
                segment=self.segment,
                numbers=numbers,
                chunk_bytes=size,
                reader=self.reader,
                holds_part=bool(self._pieces) and self._has_yielded,
                parent=self.span,
            )
        )
        self.before_wait(min(numbers.stop * size, self.segment.segment_size_bytes))
        self.has_waited = True
        key = (self.segment.segment_id.id, numbers.start)
        if not self._has_yielded and self._loader.is_queued(key):
            # A read that waits for a slot holds nothing; otherwise waiting reads could hold all
            # memory. Once is enough: what is evicted meanwhile is fetched again.
            self._has_yielded = True
            self._pieces.clear()
        data = await self._loader.land(key, holds_part=bool(self._pieces))
        data = self._chunks.get(key, self.reader) or data
        if data is not None:
            self._pieces[numbers.start] = view_of(data)


def _nothing(_: int) -> None:
    """Nothing is read ahead for a read without a cursor."""


def _answer(one: _OneRead, found: Cut, read_committed: bool) -> RemoteRecords:
    bounds = one.bounds
    if found.end == found.start:
        return RemoteRecords(
            records=(),
            size_bytes=0,
            next_offset=bounds.offset,
            aborted=(),
            exhausted=found.exhausted,
        )
    aborted: tuple[tuple[int, int], ...] = ()
    if read_committed:
        aborted = aborted_for_fetch(one.indexes.aborted, bounds.offset, found.next_offset)
    return RemoteRecords(
        records=one.window.slices(found.start, found.end),
        size_bytes=found.end - found.start,
        next_offset=found.next_offset,
        aborted=aborted,
        exhausted=found.exhausted,
    )
