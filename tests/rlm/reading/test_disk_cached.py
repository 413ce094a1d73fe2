"""Reads with a disk cache: served from it after a restart, right whatever happens to the disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rlm.clock import SystemClock
from rlm.reading.disk_cache import DiskCache
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from rlm.service.read_path import read_gauges
from tests.builders.threads import THREADS, some_threads
from tests.rlm.reading.world import MadePartition, MadeStore

CHUNK = 1 << 10
LIMITS = ReadLimits(memory_bytes=4 << 20, first_bytes=CHUNK)


@asynccontextmanager
async def started(store: MadeStore, folder: Path) -> AsyncIterator[tuple[RemoteReader, DiskCache]]:
    """A service's reader and disk cache, from start to stop."""
    disk = DiskCache(folder, 4 << 20, threads=THREADS, read_timeout_ms=60_000)
    running = asyncio.ensure_future(disk.run())
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
            while not disk.is_on:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)
            reader = RemoteReader(
                store=store,
                cluster_id="made",
                tasks=tasks,
                threads=threads,
                clock=SystemClock(),
                limits=LIMITS,
                disk=disk,
            )
            reader.suppose_chunk_bytes(CHUNK)
            yield reader, disk
            while running_and_busy(disk):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait([running])


def running_and_busy(disk: DiskCache) -> bool:
    return disk.is_on and not disk.is_idle


async def everything(partition: MadePartition, reader: RemoteReader) -> bytes:
    got, offset = b"", 0
    while offset < partition.next_offset:
        records, offset = await partition.read(reader, offset, 4 * CHUNK)
        got += b"".join(records)
    return got


@pytest.fixture
def store() -> MadeStore:
    made = MadeStore(chunk_bytes=CHUNK)
    made.may_answer.set()
    return made


def whole(store: MadeStore, partition: MadePartition) -> bytes:
    return b"".join(store.logs[one.segment_id.id] for one in partition.segments)


async def test_after_a_restart_the_store_is_asked_for_indexes_only(
    store: MadeStore, tmp_path: Path
) -> None:
    partition = store.partition(0, 2, 150, 30)
    async with started(store, tmp_path) as (reader, _):
        assert await everything(partition, reader) == whole(store, partition)
    store.asked.clear()
    async with started(store, tmp_path) as (reader, disk):
        assert await everything(partition, reader) == whole(store, partition)
        assert store.asked == []
        assert reader.counts.disk_hits == 32
        shown = read_gauges(reader, disk)
        assert shown["rlm_read_chunks_total"][("disk",)] == reader.counts.disk_hits
        assert shown["rlm_read_disk_cache_on"][()] == 1


async def test_g09_a_damaged_file_is_read_from_the_store_instead(
    store: MadeStore, tmp_path: Path
) -> None:
    partition = store.partition(0, 1, 150, 30)
    async with started(store, tmp_path) as (reader, _):
        await everything(partition, reader)
    damage_all(tmp_path)
    async with started(store, tmp_path) as (reader, disk):
        assert await everything(partition, reader) == whole(store, partition)
        assert disk.counts.damaged >= 10 and disk.is_on


def damage_all(folder: Path) -> None:
    for path in folder.rglob("*.chunk"):
        content = bytearray(path.read_bytes())
        content[-7] ^= 1
        path.write_bytes(content)


async def test_g09_a_chunk_of_another_log_under_the_right_name_is_not_believed(
    store: MadeStore, tmp_path: Path
) -> None:
    """The file is whole by its own checksum; the segment's checksums have the last word."""
    partition = store.partition(0, 1, 150, 30)
    async with started(store, tmp_path) as (reader, disk):
        for number in range(16):
            disk.write((partition.segments[0].segment_id.id, number), b"z" * CHUNK)
            while not disk.is_idle:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)
        assert await everything(partition, reader) == whole(store, partition)
        assert disk.counts.damaged >= 10


async def test_a_disk_that_fails_is_no_readers_business(store: MadeStore, tmp_path: Path) -> None:
    partition = store.partition(0, 2, 150, 30)
    folder = tmp_path / "cache"
    async with started(store, folder) as (reader, disk):
        for part in range(256):  # where a folder is to be made, there is a file
            (folder / f"{part:02x}").touch()
        assert await everything(partition, reader) == whole(store, partition)
        while disk.is_on:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        assert await everything(partition, reader) == whole(store, partition)
        assert read_gauges(reader, disk)["rlm_read_disk_cache_on"][()] == 0
