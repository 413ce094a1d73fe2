"""Reads of real segments in a real local store: what comes back is what was copied."""

import asyncio
from dataclasses import replace

import pytest

from kip405.batches import batch_headers
from kip405.errors import Busy, NotFound
from kip405.indexes import AbortedTransaction
from kip405.records import records
from kip405.segments import (
    CustomMetadata,
    RemoteLogSegmentMetadata,
)
from rlm.log_dir.scanner import LogDirs
from rlm.reading.values import ReadLimits, TimestampedOffset
from rlm.tasks.segment_data import RemoteIndexEntries, prepare
from tests.builders.ledger import metadata
from tests.builders.log_dir import CLUSTER_ID, TOPIC, LogDir
from tests.builders.store import STORE_ID
from tests.kip405.batch_builder import batch
from tests.rlm.reading.local_bench import (
    ALL,
    CHUNK,
    Bench,
    bounds,
    expected,
    mixed_log,
    nothing_follows,
    plain_log,
    read,
)

ENTRIES = RemoteIndexEntries(remote_object="store/key.log", interval_bytes=1_000)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("chunk", [64, CHUNK, 1 << 20])
async def test_every_offset_and_size_gives_the_stored_batches(
    local: Bench, shared: bool, chunk: int
) -> None:
    await local.use_store(shared=shared)
    log = mixed_log()
    segment = await local.stored(log, chunk=chunk)
    reader = local.reader()
    for offset in range(90, segment.next_offset + 2):
        for max_bytes in (0, 700, 3_000, ALL):
            for upper in (offset + 1, offset + 20, segment.next_offset):
                asked = bounds(offset, max_bytes, upper)
                assert await read(reader, segment, asked) == expected(log, asked)


async def test_a_segment_as_the_copy_task_makes_it(local: Bench) -> None:
    """Bytes, indexes and checksums by tasks/segment_data, from a broker's directory."""
    disk = LogDir(local.root / "data").partition()
    log = disk.segment(0, 500)
    disk.active(500, 510)
    scan = LogDirs([str(local.root / "data")]).scan(TOPIC, 0)
    prepared = prepare(scan, scan.segments[0], scan.lineage, ENTRIES)
    custom = CustomMetadata(
        store_id=STORE_ID,
        indexes_size_bytes=len(prepared.data.indexes),
        log_crc32c=prepared.data.log_crc32c,
        indexes_crc32c=prepared.data.indexes_crc32c,
    )
    segment = replace(
        metadata(1, 0, 500, {0: 0}),
        segment_size_bytes=len(log),
        custom_metadata=custom.encode(),
    )
    await local.store.copy_log_segment_data(segment.locator(CLUSTER_ID), prepared.data)
    reader = local.reader()
    for offset in range(0, 500, 7):
        asked = bounds(offset, 1_000)
        assert await read(reader, segment, asked) == expected(log, asked)


async def test_a_segment_read_to_its_end_says_so(local: Bench) -> None:
    segment = await local.stored(mixed_log())
    reader = local.reader()
    end = await reader.read(segment, bounds(segment.next_offset), read_committed=False)
    assert (end.size_bytes, end.exhausted, end.next_offset) == (0, True, segment.next_offset)
    first = replace(bounds(0, max_bytes=1), at_least_one=False)
    none = await reader.read(segment, first, read_committed=False)
    assert (none.size_bytes, none.exhausted, none.next_offset) == (0, False, 0)


async def test_h09_read_committed_names_the_aborted_transactions_of_the_batches_given(
    local: Bench,
) -> None:
    log = b"".join(batch(base, 10) for base in range(0, 100, 10))
    aborted = (
        AbortedTransaction(7, 5, 25),
        AbortedTransaction(8, 30, 31),
        AbortedTransaction(9, 60, 400),
    )
    segment = await local.stored(log, aborted=aborted)
    reader = local.reader()
    await read(reader, segment, bounds(0))

    async def named(offset: int, upper_offset: int) -> tuple[tuple[int, int], ...]:
        asked = bounds(offset, upper_offset=upper_offset)
        found = await reader.read(segment, asked, read_committed=True)
        return found.aborted

    assert await named(0, 100) == ((7, 5), (8, 30), (9, 60))
    assert await named(20, 30) == ((7, 5),)
    assert await named(26, 40) == ((8, 30),)
    assert await named(40, 60) == ()
    assert await named(90, 100) == ((9, 60),)


async def test_each_chunk_is_fetched_once_whoever_asks(local: Bench) -> None:
    await local.use_store(shared=False)
    log = mixed_log(200)
    segment = await local.stored(log)
    reader = local.reader()
    await read(reader, await local.stored(batch(0, 1), number=9), bounds(0))  # shows the chunk size
    local.store.ranges.clear()
    answers = await asyncio.gather(
        *(read(reader, segment, bounds(0), nothing_follows) for _ in range(20))
    )
    assert set(answers) == {(log, segment.next_offset)}
    asked = [n for start, end in local.store.ranges for n in range(start, end, CHUNK)]
    assert sorted(asked) == list(range(0, len(log), CHUNK))
    assert local.store.indexes_fetched == 2


async def test_on_a_shared_volume_the_store_need_not_be_asked_for_every_range(
    local: Bench,
) -> None:
    log = plain_log(2_000)
    segment = await local.stored(log)
    limits = ReadLimits(memory_bytes=ALL, range_bytes=2 * CHUNK, first_bytes=CHUNK)
    reader = local.reader(limits)
    assert (await read(reader, segment, bounds(0)))[0] == log
    assert len(local.store.ranges) <= 4 < len(log) // (2 * CHUNK)


async def test_h25_what_is_gone_from_the_shared_volume_is_asked_of_the_store(local: Bench) -> None:
    log = plain_log()
    segment = await local.stored(log)
    reader = local.reader(ReadLimits(memory_bytes=ALL, first_bytes=CHUNK))
    for offset in (0, 20):  # a slice that does not begin at 0 is of the object itself
        await reader.read(segment, bounds(offset, max_bytes=1), read_committed=False)
    path = local.store.object(".log")
    moved = path.rename(path.with_suffix(".away"))
    asked = len(local.store.ranges)
    with pytest.raises(NotFound):
        await read(reader, segment, bounds(199))
    assert len(local.store.ranges) == asked + 2
    moved.rename(path)
    assert (await read(reader, segment, bounds(0)))[0] == log


async def test_indexes_and_first_range_are_asked_for_together(local: Bench) -> None:
    """Two round trips at most to the first record, one where the guess is good."""
    log = plain_log(4_000)
    segment = await local.stored(log)
    limits = ReadLimits(memory_bytes=ALL, first_bytes=CHUNK)
    warm = local.reader(limits)
    await read(warm, await local.stored(batch(0, 1), number=9), bounds(0))  # shows the chunk size
    local.store.ranges.clear()
    local.store.indexes_gate.clear()
    for at, offset in enumerate((0, 3_000)):
        cold = local.reader(limits)
        cold.suppose_chunk_bytes(CHUNK)
        reading = asyncio.ensure_future(read(cold, segment, bounds(offset, max_bytes=1)))
        await local.until_fetching(at + 1)
        local.store.indexes_gate.set()
        assert (await reading) == expected(log, bounds(offset, max_bytes=1))
        assert len(local.store.ranges) == at + 1
        local.store.indexes_gate.clear()
    local.store.indexes_gate.set()


async def test_a_wrong_guess_costs_one_more_round_trip(local: Bench) -> None:
    """Half of the records are in the first hundredth of the bytes."""
    log = b"".join(batch(base, 1) for base in range(200)) + b"".join(
        batch(base, 1, value=b"v" * 2_000) for base in range(200, 400)
    )
    await local.use_store(shared=False)
    segment = await local.stored(log)
    reader = local.reader(ReadLimits(memory_bytes=ALL, first_bytes=CHUNK))
    reader.suppose_chunk_bytes(CHUNK)
    assert await read(reader, segment, bounds(100, 1)) == expected(log, bounds(100, 1))
    assert len(local.store.ranges) == 2


async def test_a_reader_that_goes_on_finds_what_it_wants_under_way(local: Bench) -> None:
    log = plain_log(4_000)
    segment = await local.stored(log)
    limits = ReadLimits(
        memory_bytes=ALL, first_bytes=CHUNK, start_window_bytes=8 * CHUNK, range_bytes=16 * CHUNK
    )
    reader = local.reader(limits)
    reader.suppose_chunk_bytes(CHUNK)

    async def one(offset: int) -> int:
        asked = bounds(offset, max_bytes=CHUNK)
        found = await reader.read(segment, asked, read_committed=False, following=nothing_follows)
        return found.next_offset

    offset = await one(0)
    await asyncio.wait_for(local.is_idle(), 60)
    segment_id = segment.segment_id.id
    assert (segment_id, 5) in reader.chunks and (segment_id, 40) not in reader.chunks
    while offset < 1_000:
        offset = await one(offset)
    await asyncio.wait_for(local.is_idle(), 60)
    misses, ranges = reader.counts.misses, len(local.store.ranges)
    while offset < 3_000:
        offset = await one(offset)
    assert reader.counts.misses == misses
    chunks_read = (3_000 - 1_000) * len(log) // 4_000 // CHUNK
    assert len(local.store.ranges) - ranges <= chunks_read / 8


async def test_what_the_cache_has_of_what_comes_next_waits_for_its_reader(local: Bench) -> None:
    """A second reader of what all but fits the memory: each chunk that lacks would evict the next
    one, and the reader would wait for nearly every chunk.
    """
    log = plain_log(4_000)
    segment = await local.stored(log)
    roomy = local.reader()
    roomy.suppose_chunk_bytes(CHUNK)
    await roomy.read(segment, bounds(0, max_bytes=1), read_committed=False)
    limits = ReadLimits(
        memory_bytes=len(log) + roomy.indexes.kept_bytes - CHUNK,
        first_bytes=CHUNK,
        start_window_bytes=8 * CHUNK,
        window_bytes=256 * CHUNK,
        range_bytes=8 * CHUNK,
    )
    reader = local.reader(limits)
    reader.suppose_chunk_bytes(CHUNK)
    misses = 0
    for _ in range(2):
        offset, misses = 0, reader.counts.misses
        while offset < segment.next_offset:
            asked = bounds(offset, max_bytes=2 * CHUNK)
            found = await reader.read(
                segment, asked, read_committed=False, following=nothing_follows
            )
            offset = found.next_offset
            del found
            await asyncio.wait_for(local.is_idle(), 60)
    assert reader.counts.misses - misses <= 2


async def test_the_window_crosses_the_border_of_the_segment(local: Bench) -> None:
    """Indexes and chunks of the next segment come before this one is read to its end."""
    first = plain_log(400)
    second = b"".join(batch(base, 1, value=b"w" * 60) for base in range(400, 800))
    one = await local.stored(first)
    two = await local.stored(second, number=2)

    def following(offset: int) -> RemoteLogSegmentMetadata | None:
        return two if offset == 400 else None

    reader = local.reader(ReadLimits(memory_bytes=ALL, start_window_bytes=4 << 20))
    reader.suppose_chunk_bytes(CHUNK)
    found = await reader.read(
        one, bounds(0, max_bytes=CHUNK), read_committed=False, following=following
    )
    assert found.next_offset < 400
    await asyncio.wait_for(local.is_idle(), 60)
    fetched = (len(local.store.ranges), local.store.indexes_fetched)
    assert (two.segment_id.id, 0) in reader.chunks
    assert await read(reader, one, bounds(found.next_offset), following) == (
        first[found.size_bytes :],
        400,
    )
    assert await read(reader, two, bounds(400), nothing_follows) == (second, 800)
    assert (len(local.store.ranges), local.store.indexes_fetched) == fetched
    assert reader.reader_count == 1


async def test_g10_memory_is_bounded_whatever_is_asked(local: Bench) -> None:
    log = mixed_log(400)
    segment = await local.stored(log, index_every=40)
    bound = 40 * CHUNK
    reader = local.reader(ReadLimits(memory_bytes=bound, first_bytes=CHUNK))
    reader.suppose_chunk_bytes(CHUNK)
    got, offset, most = b"", segment.start_offset, 0
    while offset < segment.next_offset:
        asked = bounds(offset)
        found = await reader.read(segment, asked, read_committed=False, following=nothing_follows)
        data, offset = b"".join(found.records), found.next_offset
        assert len(data) <= bound // 4 or len(list(batch_headers(data))) == 1
        most = max(most, reader.memory.held_bytes)
        got += data
    assert got == log
    assert most <= bound


async def test_g10_a_batch_larger_than_the_memory_is_read_all_the_same(local: Bench) -> None:
    log = batch(0, 1, value=b"v" * 100 * CHUNK) + batch(1, 1)
    segment = await local.stored(log)
    reader = local.reader(ReadLimits(memory_bytes=20 * CHUNK, range_bytes=2 * CHUNK))
    reader.suppose_chunk_bytes(CHUNK)
    async with asyncio.timeout(60):
        assert await read(reader, segment, bounds(0)) == expected(log, bounds(0, 1))
        assert (await read(reader, segment, bounds(1)))[1] == 2


async def test_g10_more_reads_than_may_wait_are_busy(local: Bench) -> None:
    segments = [await local.stored(batch(0, 3), number=number) for number in range(1, 5)]
    limits = ReadLimits(memory_bytes=ALL, ranges_at_once=1, most_waiting=2)
    reader = local.reader(limits)
    reader.suppose_chunk_bytes(CHUNK)
    local.store.gate.clear()
    reading = [asyncio.ensure_future(read(reader, one, bounds(0))) for one in segments]
    done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    assert [type(one.exception()) for one in done] == [Busy]
    local.store.gate.set()
    results = await asyncio.gather(*reading, return_exceptions=True)
    assert results.count((batch(0, 3), 3)) == 3


async def test_a_reader_that_gives_up_leaves_the_chunk_to_the_next(local: Bench) -> None:
    log = batch(0, 3)
    segment = await local.stored(log)
    reader = local.reader()
    reader.suppose_chunk_bytes(CHUNK)
    local.store.gate.clear()
    leaving = asyncio.ensure_future(read(reader, segment, bounds(0)))
    await local.until_fetching(1)
    leaving.cancel()
    await asyncio.wait([leaving])
    local.store.gate.set()
    assert await read(reader, segment, bounds(0)) == (log, 3)
    assert len(local.store.ranges) == 1


def first_at(log: bytes, timestamp_ms: int, lower_offset: int) -> TimestampedOffset | None:
    """The first record at or after both, decoding everything."""
    for at, header in batch_headers(log):
        found = (
            [(header.base_offset, header.max_timestamp_ms)]
            if header.magic < 2
            else [(record.offset, record.timestamp_ms) for record in records(log, at)]
        )
        for offset, record_ms in found:
            if record_ms >= timestamp_ms and offset >= lower_offset:
                return TimestampedOffset(
                    offset=offset, timestamp_ms=record_ms, leader_epoch=header.leader_epoch
                )
    return None


@pytest.mark.parametrize("seed", range(4))
async def test_timestamps_find_what_decoding_everything_finds(local: Bench, seed: int) -> None:
    log = mixed_log(30, seed)
    segment = await local.stored(log)
    reader = local.reader()
    for timestamp_ms in (0, *range(990, 3_020, 45), 10**12):
        for lower in (0, 117, segment.end_offset):
            found = await reader.find_timestamp(segment, timestamp_ms, lower)
            assert found == first_at(log, timestamp_ms, lower), (timestamp_ms, lower)
