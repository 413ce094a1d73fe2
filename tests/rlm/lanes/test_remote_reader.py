"""Reads of real segments in a real local store: what comes back is what was copied, or an error."""

import asyncio
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.batches import walk
from kip405.contracts import StoreIdentity
from kip405.errors import Busy, Corrupt, NotFound
from kip405.indexes import AbortedTransaction
from kip405.records import records
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    FileSlice,
    RemoteLogSegmentMetadata,
    SegmentLocator,
)
from rlm.lanes.fetch import RemoteReader
from rlm.lanes.reader_pool import ReaderPool
from rlm.lanes.segment_data import prepare
from rlm.log_dir.scanner import LogDirs
from rlm.plans.fetch import ReadBounds
from rlm.proxy.tier import TimestampedOffset
from rsm_plugins.local import LocalRemoteStorageManager
from tests.builders.ledger import metadata
from tests.builders.log_dir import CLUSTER_ID, TOPIC, LogDir
from tests.builders.remote_segment import store_segment
from tests.builders.store import STORE_ID
from tests.kip405.batch_builder import batch, legacy

CHUNK = 512
IDENTITY = StoreIdentity(store_id=STORE_ID, cluster_id=CLUSTER_ID, created_ms=0)
ALL = 1 << 30


class CountingStore(LocalRemoteStorageManager):
    """Counts what is fetched; `gate` holds log fetches up, `glitches` fail that many fetches."""

    def __init__(self, root: Path, *, shared: bool = True) -> None:
        super().__init__(root, shared=shared)
        self.ranges: list[tuple[int, int]] = []
        self.indexes_fetched = 0
        self.glitches = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        self.ranges.append((byte_range.start, byte_range.end))
        await self.gate.wait()
        if self.glitches:
            self.glitches -= 1
            raise NotFound("a glitch")
        return await super().fetch_log_segment(locator, byte_range)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        self.indexes_fetched += 1
        return await super().fetch_indexes(locator)

    def object(self, suffix: str) -> Path:
        (found,) = self.folder.rglob(f"*{suffix}")
        return found


class Bench:
    """A reader over a store; `pool` and `store` are there to look at."""

    def __init__(self, root: Path, tasks: asyncio.TaskGroup, threads: ThreadPoolExecutor) -> None:
        self.root = root
        self.tasks = tasks
        self.threads = threads
        (root / "store").mkdir()
        self.store = CountingStore(root / "store")

    async def use_store(self, *, shared: bool) -> None:
        """The same store, over a shared volume or not."""
        await self.store.close()
        self.store = CountingStore(self.root / "store", shared=shared)

    def reader(
        self, *, cache_bytes: int = ALL, readers: int = 4, pending: int = 100
    ) -> RemoteReader:
        self.pool = ReaderPool(self.tasks, threads=readers, max_pending_tasks=pending)
        return RemoteReader(
            store=self.store,
            cluster_id=CLUSTER_ID,
            pool=self.pool,
            threads=self.threads,
            chunk_cache_bytes=cache_bytes,
            index_cache_bytes=ALL,
        )

    async def until_fetching(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.store.ranges) < count:  # noqa: ASYNC110 - the store has no event
                await asyncio.sleep(0.001)

    async def pool_is_idle(self) -> None:
        while self.pool.pending_tasks:  # noqa: ASYNC110 - the pool has no event
            await asyncio.sleep(0.001)

    async def stored(
        self, log: bytes, *, chunk: int = CHUNK, aborted: tuple[AbortedTransaction, ...] = ()
    ) -> RemoteLogSegmentMetadata:
        return await store_segment(
            self.store, self.root, log, chunk_size_bytes=chunk, aborted=aborted
        )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with ThreadPoolExecutor(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            made = Bench(tmp_path, tasks, threads)
            await made.store.create_identity(IDENTITY)
            yield made
        await made.store.close()


def mixed_log(batches: int = 40, seed: int = 1) -> bytes:
    """Plain, compressed and old batches with gaps and timestamps that go to and fro."""
    rng, data, offset = random.Random(seed), b"", 100
    for _ in range(batches):
        offset += rng.choice((0, 0, 0, 2))
        first_ms = rng.randrange(1_000, 3_000)
        count = rng.choice((1, 2, 5))
        if rng.random() < 0.15:
            data += legacy(offset, magic=1, timestamp_ms=first_ms)
            offset += 1
            continue
        data += batch(
            offset,
            count,
            first_ms=first_ms,
            value=rng.randbytes(rng.choice((0, 20, 300, 900))),
            compression=rng.choice((0, 0, 1, 2, 3, 4)),
        )
        offset += count
    return data


def bounds(offset: int, max_bytes: int = ALL, upper_offset: int = 2**62) -> ReadBounds:
    return ReadBounds(
        offset=offset, upper_offset=upper_offset, max_bytes=max_bytes, at_least_one=True
    )


def expected(log: bytes, asked: ReadBounds) -> tuple[bytes, int]:
    """Bytes and next offset, from the whole log."""
    taken, next_offset = b"", asked.offset
    for at, header in walk(log):
        if header.last_offset < asked.offset:
            continue
        too_much = len(taken) + header.size_bytes > asked.max_bytes
        if header.last_offset >= asked.upper_offset or (taken and too_much):
            break
        taken += log[at : at + header.size_bytes]
        next_offset = header.last_offset + 1
    return taken, next_offset


async def read(
    reader: RemoteReader, segment: RemoteLogSegmentMetadata, asked: ReadBounds
) -> tuple[bytes, int]:
    found = await reader.read(segment, asked, read_committed=False)
    data = b"".join(found.records)
    assert len(data) == found.size_bytes and found.aborted == ()
    return data, found.next_offset


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("chunk", [64, CHUNK, 1 << 20])
async def test_every_offset_and_size_gives_the_stored_batches(
    bench: Bench, shared: bool, chunk: int
) -> None:
    await bench.use_store(shared=shared)
    log = mixed_log()
    segment = await bench.stored(log, chunk=chunk)
    reader = bench.reader()
    for offset in range(90, segment.next_offset + 2):
        for max_bytes in (0, 700, 3_000, ALL):
            for upper in (offset + 1, offset + 20, segment.next_offset):
                asked = bounds(offset, max_bytes, upper)
                assert await read(reader, segment, asked) == expected(log, asked)


async def test_a_segment_as_the_copy_lane_makes_it(bench: Bench) -> None:
    """Bytes, indexes and checksums by lanes/segment_data, from a broker's directory."""
    disk = LogDir(bench.root / "data").partition()
    log = disk.segment(0, 500)
    disk.active(500, 510)
    scan = LogDirs([str(bench.root / "data")]).scan(TOPIC, 0)
    prepared = prepare(scan, scan.segments[0], scan.lineage)
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
    await bench.store.copy_log_segment_data(segment.locator(CLUSTER_ID), prepared.data)
    reader = bench.reader()
    for offset in range(0, 500, 7):
        asked = bounds(offset, 1_000)
        assert await read(reader, segment, asked) == expected(log, asked)


async def test_a_segment_read_to_its_end_says_so(bench: Bench) -> None:
    segment = await bench.stored(mixed_log())
    reader = bench.reader()
    end = await reader.read(segment, bounds(segment.next_offset), read_committed=False)
    assert (end.size_bytes, end.exhausted, end.next_offset) == (0, True, segment.next_offset)
    first = replace(bounds(0, max_bytes=1), at_least_one=False)
    none = await reader.read(segment, first, read_committed=False)
    assert (none.size_bytes, none.exhausted, none.next_offset) == (0, False, 0)


async def test_h09_read_committed_names_the_aborted_transactions_of_the_batches_given(
    bench: Bench,
) -> None:
    log = b"".join(batch(base, 10) for base in range(0, 100, 10))
    aborted = (
        AbortedTransaction(7, 5, 25),
        AbortedTransaction(8, 30, 31),
        AbortedTransaction(9, 60, 400),
    )
    segment = await bench.stored(log, aborted=aborted)
    reader = bench.reader()

    async def named(offset: int, upper_offset: int) -> tuple[tuple[int, int], ...]:
        asked = bounds(offset, upper_offset=upper_offset)
        found = await reader.read(segment, asked, read_committed=True)
        return found.aborted

    assert await named(0, 100) == ((7, 5), (8, 30), (9, 60))
    assert await named(20, 30) == ((7, 5),)
    assert await named(26, 40) == ((8, 30),)
    assert await named(40, 60) == ()
    assert await named(90, 100) == ((9, 60),)


async def test_each_chunk_is_fetched_once_whoever_asks(bench: Bench) -> None:
    await bench.use_store(shared=False)
    log = mixed_log(200)
    segment = await bench.stored(log)
    reader = bench.reader()
    answers = await asyncio.gather(*(read(reader, segment, bounds(0)) for _ in range(20)))
    assert set(answers) == {(log, segment.next_offset)}
    starts = [start for start, _ in bench.store.ranges]
    assert sorted(starts) == list(range(0, len(log), CHUNK))
    assert bench.store.indexes_fetched == 1


async def test_on_a_shared_volume_the_store_need_not_be_asked_for_every_chunk(
    bench: Bench,
) -> None:
    log = mixed_log(200)
    segment = await bench.stored(log)
    reader = bench.reader()
    assert (await read(reader, segment, bounds(0)))[0] == log
    assert len(bench.store.ranges) < len(log) // CHUNK
    assert reader.chunks.misses == -(-len(log) // CHUNK)


async def test_h25_what_is_gone_from_the_shared_volume_is_asked_of_the_store(bench: Bench) -> None:
    log = b"".join(batch(base, 1, value=b"v" * 100) for base in range(200))
    segment = await bench.stored(log)
    reader = bench.reader()
    await read(reader, segment, bounds(0, max_bytes=4 * CHUNK))
    await asyncio.wait_for(bench.pool_is_idle(), 5)
    path = bench.store.object(".log")
    moved = path.rename(path.with_suffix(".away"))
    asked = len(bench.store.ranges)
    with pytest.raises(NotFound):
        await read(reader, segment, bounds(199))
    assert len(bench.store.ranges) == asked + 2
    moved.rename(path)
    assert (await read(reader, segment, bounds(0)))[0] == log


async def test_a_reader_that_goes_on_finds_its_next_chunks_under_way(bench: Bench) -> None:
    log = b"".join(batch(base, 1, value=b"v" * 100) for base in range(200))
    segment = await bench.stored(log)
    reader = bench.reader()
    found = await reader.read(segment, bounds(0, max_bytes=4 * CHUNK), read_committed=False)
    for number in range(found.size_bytes // CHUNK, 2 * found.size_bytes // CHUNK):
        assert reader.chunks.knows((segment.segment_id.id, number))
    assert not reader.chunks.knows((segment.segment_id.id, 9))


async def test_g10_one_read_of_everything_leaves_room_for_others(bench: Bench) -> None:
    log = b"".join(batch(base, 1, value=b"v" * 100) for base in range(300))
    segment = await bench.stored(log)
    reader = bench.reader(readers=1, pending=19)
    bench.store.gate.clear()
    reading = asyncio.ensure_future(read(reader, segment, bounds(0)))
    await bench.until_fetching(1)
    assert bench.pool.pending_tasks == 8
    bench.store.gate.set()
    assert (await reading)[0] == log


async def test_more_chunks_than_the_pool_takes_come_one_after_the_other(bench: Bench) -> None:
    log = b"".join(batch(base, 1, value=b"v" * 100) for base in range(200))
    segment = await bench.stored(log)
    reader = bench.reader(readers=1, pending=0)
    assert await read(reader, segment, bounds(0)) == (log, 200)


async def test_a_full_pool_is_busy_unless_there_is_something_to_give(bench: Bench) -> None:
    log = b"".join(batch(base, 1, value=b"v" * 100) for base in range(200))
    segment = await bench.stored(log)
    reader = bench.reader(readers=1, pending=0)
    await read(reader, segment, bounds(0, max_bytes=2 * CHUNK))
    await asyncio.wait_for(bench.pool_is_idle(), 5)
    fetched = len(bench.store.ranges)
    bench.store.gate.clear()
    hog = bench.pool.submit(bench.store.gate.wait)
    found = await reader.read(segment, bounds(0), read_committed=False)
    assert 0 < found.size_bytes < len(log) and not found.exhausted
    assert log.startswith(b"".join(found.records))
    with pytest.raises(Busy):
        await read(reader, segment, bounds(199))
    bench.store.gate.set()
    await hog
    assert len(bench.store.ranges) == fetched


async def test_g10_memory_is_bounded_by_the_cache_whatever_is_asked(bench: Bench) -> None:
    log = mixed_log(400)
    segment = await bench.stored(log)
    reader = bench.reader(cache_bytes=16 * CHUNK)
    got, offset = b"", segment.start_offset
    while offset < segment.next_offset:
        data, offset = await read(reader, segment, bounds(offset))
        assert len(data) <= 4 * CHUNK or len(list(walk(data))) == 1
        assert reader.chunks.kept_bytes <= 16 * CHUNK
        got += data
    assert got == log


async def test_a_reader_that_gives_up_leaves_the_chunk_to_the_next(bench: Bench) -> None:
    log = batch(0, 3)
    segment = await bench.stored(log)
    reader = bench.reader()
    bench.store.gate.clear()
    leaving = asyncio.ensure_future(read(reader, segment, bounds(0)))
    await bench.until_fetching(1)
    leaving.cancel()
    await asyncio.wait([leaving])
    bench.store.gate.set()
    assert await read(reader, segment, bounds(0)) == (log, 3)
    assert len(bench.store.ranges) == 1


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("shared", [True, False])
async def test_g09_a_flipped_bit_of_the_log_is_never_served(bench: Bench, shared: bool) -> None:
    await bench.use_store(shared=shared)
    log = b"".join(batch(base, 10) for base in range(0, 200, 10))
    segment = await bench.stored(log)
    reader = bench.reader()
    where = 3 * CHUNK + 77
    flip(bench.store.object(".log"), where)
    with pytest.raises(Corrupt, match=f"chunk 3 of segment {segment.segment_id}"):
        await read(reader, segment, bounds(0))
    assert bench.store.ranges.count((3 * CHUNK, 4 * CHUNK)) == 2
    assert (await read(reader, segment, bounds(0, max_bytes=CHUNK)))[0]
    flip(bench.store.object(".log"), where)
    assert (await read(reader, segment, bounds(0)))[0] == log


@pytest.mark.parametrize("shared", [True, False])
async def test_g09_a_log_cut_short_is_corrupt(bench: Bench, shared: bool) -> None:
    await bench.use_store(shared=shared)
    segment = await bench.stored(mixed_log())
    path = bench.store.object(".log")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=f"of segment {segment.segment_id} has .* bytes"):
        await read(bench.reader(), segment, bounds(0))


@pytest.mark.parametrize("at", [0, 5, 40, -1])
async def test_g09_a_flipped_bit_of_the_indexes_is_never_believed(bench: Bench, at: int) -> None:
    segment = await bench.stored(mixed_log())
    flip(bench.store.object(".indexes"), at)
    reader = bench.reader()
    with pytest.raises(Corrupt, match=f"indexes object of segment {segment.segment_id}"):
        await read(reader, segment, bounds(0))
    assert bench.store.indexes_fetched == 2
    assert bench.store.ranges == []


async def test_metadata_without_checksums_is_corrupt(bench: Bench) -> None:
    segment = await bench.stored(mixed_log())
    for custom in (None, b"\xff" * 40):
        with pytest.raises(Corrupt, match=f"metadata of segment {segment.segment_id}"):
            await read(bench.reader(), replace(segment, custom_metadata=custom), bounds(0))


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
async def test_h25_a_missing_object_is_believed_when_asked_twice(bench: Bench, suffix: str) -> None:
    segment = await bench.stored(batch(0, 3))
    bench.store.object(suffix).unlink()
    with pytest.raises(NotFound):
        await read(bench.reader(), segment, bounds(0))
    asked = len(bench.store.ranges) if suffix == ".log" else bench.store.indexes_fetched
    assert asked == 2


async def test_h25_one_wrong_answer_is_not_believed(bench: Bench) -> None:
    log = batch(0, 3)
    segment = await bench.stored(log)
    bench.store.glitches = 1
    assert await read(bench.reader(), segment, bounds(0)) == (log, 3)


def first_at(log: bytes, timestamp_ms: int, lower_offset: int) -> TimestampedOffset | None:
    """The first record at or after both, decoding everything."""
    for at, header in walk(log):
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
async def test_timestamps_find_what_decoding_everything_finds(bench: Bench, seed: int) -> None:
    log = mixed_log(30, seed)
    segment = await bench.stored(log)
    reader = bench.reader()
    for timestamp_ms in (0, *range(990, 3_020, 45), 10**12):
        for lower in (0, 117, segment.end_offset):
            found = await reader.find_timestamp(segment, timestamp_ms, lower)
            assert found == first_at(log, timestamp_ms, lower), (timestamp_ms, lower)
