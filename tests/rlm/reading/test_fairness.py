"""Readers beside one another: a backfill of many partitions cannot starve one other reader."""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kip405.errors import NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import ByteRange
from rlm.clock import SystemClock
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from rsm_plugins.threads import Threads
from tests.builders.threads import some_threads
from tests.rlm.reading.world import MadePartition, MadeStore

CHUNK = 1 << 10
SEGMENT_BATCHES = 150  # of some 100 bytes: segments of not quite 16 chunks
LIMITS = ReadLimits(
    memory_bytes=256 * CHUNK,
    range_bytes=16 * CHUNK,
    window_bytes=64 * CHUNK,
    first_bytes=CHUNK,
    start_window_bytes=4 * CHUNK,
    index_objects_bytes=0,  # all other sizes are a thousandth of real ones
)


class Bench:
    def __init__(self, tasks: asyncio.TaskGroup, threads: Threads) -> None:
        self.tasks, self.threads = tasks, threads
        self.store = MadeStore(chunk_bytes=CHUNK)
        self.store.may_answer.set()

    def reader(self, limits: ReadLimits = LIMITS) -> RemoteReader:
        made = RemoteReader(
            store=self.store,
            cluster_id="made",
            tasks=self.tasks,
            threads=self.threads,
            clock=SystemClock(),
            limits=limits,
        )
        made.suppose_chunk_bytes(CHUNK)
        return made

    def partition(self, number: int, segments: int = 1) -> MadePartition:
        return self.store.partition(number, segments, SEGMENT_BATCHES, 30)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            made = Bench(tasks, threads)
            yield made
            made.store.may_answer.set()


async def consume(
    partition: MadePartition, reader: RemoteReader, *, max_bytes: int = CHUNK, until: int = 1 << 60
) -> int:
    """Read on to the end; answers how many reads it took."""
    offset = reads = 0
    while offset < min(partition.next_offset, until):
        records, after = await partition.read(reader, offset, max_bytes)
        assert sum(map(len, records)) > 0
        offset, reads = after, reads + 1
        del records
        await asyncio.sleep(0)
    return reads


async def idle(reader: RemoteReader) -> None:
    async with asyncio.timeout(60):
        while reader.range_scheduler.running_count:  # noqa: ASYNC110 - the loads have no event
            await asyncio.sleep(0.001)


async def test_a_backfill_of_many_partitions_does_not_hold_up_another_reader(
    bench: Bench,
) -> None:
    """50 partitions are read as fast as they can by one group, one more by another reader: for each
    of its reads the store answers at most one or two requests of each other reader.
    """
    reader = bench.reader(replace(LIMITS, ranges_at_once=4))
    bench.store.latency_ms = 1
    others = [bench.partition(number, segments=2) for number in range(50)]
    mine = bench.partition(99, segments=1)
    backfill = [asyncio.ensure_future(consume(one, reader)) for one in others]
    await asyncio.sleep(0.05)
    offset, requests_between = 0, []
    for _ in range(8):
        before = len(bench.store.asked)
        _, offset = await mine.read(reader, offset, CHUNK)
        requests_between.append(len(bench.store.asked) - before)
        await asyncio.sleep(0)
    assert not all(one.done() for one in backfill)
    assert max(requests_between) <= 2 * len(others) + 10
    await asyncio.gather(*backfill)


async def test_one_reader_of_a_slow_store_has_many_ranges_in_flight(bench: Bench) -> None:
    """At 100 ms and 16 MiB ranges, 4 in flight are 600 MB/s: the store's latency is no bound."""
    reader = bench.reader()
    bench.store.latency_ms = 20
    await consume(bench.partition(1, segments=12), reader)
    assert bench.store.most_in_flight >= 3
    assert reader.chunks.wasted_bytes == 0


@pytest.mark.parametrize("partitions", [1, 8])
async def test_two_requests_a_segment_are_enough(bench: Bench, partitions: int) -> None:
    """<= 200 GET per GiB at 16 MiB segments = 3.1 a segment, with everything."""
    reader = bench.reader()
    bench.store.latency_ms = 5
    read = [bench.partition(number, segments=8) for number in range(partitions)]
    await asyncio.gather(*(consume(one, reader) for one in read))
    segments = 8 * partitions
    requests = len(bench.store.asked) + len(bench.store.indexes_asked)
    assert len(bench.store.indexes_asked) == segments
    assert requests <= 3.1 * segments
    asked_bytes = sum(end - start for _, start, end in bench.store.asked)
    assert asked_bytes <= 1.02 * sum(
        len(bench.store.logs[s.segment_id.id]) for p in read for s in p.segments
    )


async def test_a_reader_that_jumps_leaves_nothing_in_flight(bench: Bench) -> None:
    reader = bench.reader(replace(LIMITS, readers_per_partition=1))
    partition = bench.partition(1, segments=8)
    await consume(partition, reader, until=SEGMENT_BATCHES)
    await idle(reader)
    bench.store.may_answer.clear()
    jump = asyncio.ensure_future(partition.read(reader, 6 * SEGMENT_BATCHES + 5, CHUNK))
    await asyncio.sleep(0.01)
    assert reader.range_scheduler.running_count <= 2  # what it waits for, no more
    bench.store.may_answer.set()
    await jump
    assert reader.chunks.ahead_bytes <= 8 * CHUNK


async def test_a_second_reader_of_the_same_data_costs_the_store_nothing(bench: Bench) -> None:
    reader = bench.reader()
    partition = bench.partition(1, segments=4)
    await consume(partition, reader)
    await idle(reader)
    asked = len(bench.store.asked)
    await consume(partition, reader)
    assert len(bench.store.asked) == asked


async def test_a_backfill_leaves_what_hot_readers_read_again(bench: Bench) -> None:
    reader = bench.reader()
    hot = bench.partition(0, segments=4)
    for _ in range(3):
        await consume(hot, reader)
    await consume(bench.partition(1, segments=16 * 10), reader)  # ten times the memory
    await idle(reader)
    hot_ids = {one.segment_id.id for one in hot.segments}
    before = sum(segment in hot_ids for segment, _, _ in bench.store.asked)
    await consume(hot, reader)
    again = sum(segment in hot_ids for segment, _, _ in bench.store.asked) - before
    assert again == 0


async def test_what_fails_ahead_is_reported_to_the_reader_that_gets_there_and_asked_again(
    bench: Bench,
) -> None:
    """Unavailable: try again. It is never remembered."""
    reader = bench.reader()
    partition = bench.partition(1, segments=3)
    last = partition.segments[2].segment_id.id

    def fails(segment: Uuid, _: ByteRange) -> RemoteStorageError | None:
        return Unavailable("down") if segment == last else None

    bench.store.fails = fails
    await consume(partition, reader, until=2 * SEGMENT_BATCHES)
    with pytest.raises(Unavailable):
        await partition.read(reader, 2 * SEGMENT_BATCHES, CHUNK)
    bench.store.fails = lambda *_: None
    await consume(partition, reader)


async def test_h25_a_segment_gone_is_reported_with_its_name_when_it_is_reached(
    bench: Bench,
) -> None:
    reader = bench.reader()
    partition = bench.partition(1, segments=3)
    last = partition.segments[2].segment_id.id
    bench.store.fails = lambda segment, _: NotFound(f"{segment}") if segment == last else None
    await consume(partition, reader, until=2 * SEGMENT_BATCHES)
    asked = len(bench.store.asked)
    with pytest.raises(NotFound):
        await partition.read(reader, 2 * SEGMENT_BATCHES, CHUNK)
    assert len(bench.store.asked) >= asked + 2


async def jump_about(partition: MadePartition, reader: RemoteReader, *, times: int = 12) -> None:
    """Until nothing is read ahead for new readers."""
    for number in range(times):
        await partition.read(reader, partition.next_offset - 20 - number, 1)
        await idle(reader)


async def wait_for_the_store(
    bench: Bench, partition: MadePartition, reader: RemoteReader
) -> "asyncio.Future[tuple[tuple[bytes | memoryview, ...], int]]":
    """Reads on from the start until a read waits for the store, which holds its answers."""
    _, offset = await partition.read(reader, 0, CHUNK)
    _, offset = await partition.read(reader, offset, CHUNK)
    await idle(reader)
    bench.store.may_answer.clear()
    while True:
        asked = asyncio.ensure_future(partition.read(reader, offset, 64 * CHUNK))
        for _ in range(10):  # one wait may be over, on a busy machine, before anything has run
            await asyncio.wait([asked], timeout=0.01)
        if not asked.done():
            return asked
        _, offset = asked.result()


@pytest.mark.parametrize("gives_up", [False, True])
async def test_g10_nothing_is_kept_for_a_reader_forgotten_while_it_read(
    bench: Bench, gives_up: bool
) -> None:
    """Else what is read ahead for it counts for ever, and in the end nothing is read ahead."""
    reader = bench.reader(replace(LIMITS, readers_per_partition=1))
    partition = bench.partition(0, segments=40)
    asked = await wait_for_the_store(bench, partition, reader)
    if gives_up:
        asked.cancel()
        await asyncio.wait([asked])
    other = asyncio.ensure_future(partition.read(reader, partition.next_offset - 1, 1))
    await asyncio.sleep(0)
    bench.store.may_answer.set()
    await asyncio.wait([asked, other])
    await idle(reader)
    await jump_about(partition, reader)
    assert reader.chunks.ahead_bytes == 0


async def test_small_segments_are_not_read_ahead_by_the_thousand(bench: Bench) -> None:
    """A window of bytes alone would hold any number of them, asked for at once."""
    reader = bench.reader()
    partition = bench.store.partition(0, 2_000, 1, 1)
    _, offset = await partition.read(reader, 0, CHUNK)
    for _ in range(20):
        _, offset = await partition.read(reader, offset, CHUNK)
    await idle(reader)
    ahead = LIMITS.window_bytes // CHUNK
    assert offset < len(set(bench.store.asked)) <= offset + ahead
    assert len(set(bench.store.indexes_asked)) <= offset + ahead + 1


async def test_g10_a_read_that_failed_holds_no_memory_though_its_error_is_kept(
    bench: Bench,
) -> None:
    """An error that waits to be reported refers to the read; else enough of them would
    hold all the memory that the others wait for.
    """
    reader = bench.reader()
    partition = bench.store.partition(0, 1, 2, 3 * CHUNK)
    bench.store.fails = lambda _, wanted: Unavailable("down") if wanted.start else None
    with pytest.raises(Unavailable) as kept:
        await partition.read(reader, 0, 1)
    assert len(reader.chunks) == 1
    async with asyncio.timeout(60):  # the thread that has read it may let go of it a moment later
        while reader.chunks.pinned_bytes():  # noqa: ASYNC110 - nothing says when
            await asyncio.sleep(0.001)
    assert "down" in str(kept.value)


async def test_indexes_that_fail_for_a_reader_that_is_gone_trouble_nobody(bench: Bench) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    limits = replace(LIMITS, readers_per_partition=1, start_window_bytes=LIMITS.window_bytes)
    reader = bench.reader(limits)
    partition = bench.partition(0, segments=3)
    bench.store.indexes[partition.segments[1].segment_id.id] = b"damaged"
    await partition.read(reader, 0, CHUNK)
    bench.store.may_answer.clear()
    await asyncio.sleep(0)  # the next segment is asked for
    assert partition.segments[1].segment_id.id in bench.store.indexes_asked
    other = asyncio.ensure_future(partition.read(reader, partition.next_offset - 1, 1))
    await asyncio.sleep(0)
    bench.store.may_answer.set()
    await other
    await idle(reader)
    gc.collect()
    assert reported == []
