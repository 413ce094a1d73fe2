"""The disk cache: real files; damage is a miss, a broken disk turns the cache off, and no read
fails.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kip405.ids import Uuid
from rlm.reading.chunk_cache import ChunkKey
from rlm.reading.chunk_memory import Chunk, ChunkMemory
from rlm.reading.disk_cache import (
    HEADER_BYTES,
    ChunkFolder,
    DiskCache,
    chunk_of,
    file_name,
    header_of,
    key_of,
)
from tests.builders.threads import THREADS

SEGMENT = Uuid(bytes(range(16)))
SIZE = 1_000
FILE = SIZE + HEADER_BYTES
MEMORY = ChunkMemory()


def key(number: int) -> ChunkKey:
    return (SEGMENT, number)


def data(number: int) -> bytes:
    return bytes([number % 256]) * SIZE


@asynccontextmanager
async def opened(folder: Path, capacity: int = 100 * FILE) -> AsyncIterator[DiskCache]:
    disk = DiskCache(folder, capacity, threads=THREADS, read_timeout_ms=60_000)
    running = asyncio.ensure_future(disk.run())
    async with asyncio.timeout(60):
        while not disk.is_on and not running.done():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
    try:
        yield disk
    finally:
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled() or running.exception() is None


async def written(disk: DiskCache, *numbers: int) -> None:
    for number in numbers:
        disk.write(key(number), data(number))
    await settled(disk)


async def settled(disk: DiskCache) -> None:
    async with asyncio.timeout(60):
        while disk.is_on and not disk.is_idle:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)


def files_in(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.chunk"))


def path_of(folder: Path, number: int) -> Path:
    return folder / file_name(key(number))


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**29), st.binary(max_size=50))
def test_names_and_headers_come_back(raw: bytes, number: int, content: bytes) -> None:
    one = (Uuid(raw), number)
    assert key_of(file_name(one).rpartition("/")[2]) == one
    assert chunk_of(one, header_of(one, content), content) == content


@given(st.binary(min_size=1, max_size=50), st.data())
def test_any_flipped_bit_is_seen(content: bytes, draw: st.DataObject) -> None:
    whole = bytearray(header_of(key(1), content) + content)
    at = draw.draw(st.integers(0, len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << at % 8
    assert chunk_of(key(1), bytes(whole[:HEADER_BYTES]), bytes(whole[HEADER_BYTES:])) is None


@pytest.mark.parametrize("name", ["lock", "x.chunk", "0-1.chunk", "a" * 32 + "-1.chunk.tmp"])
def test_other_files_are_no_chunks(name: str) -> None:
    assert key_of(name) is None


async def test_what_was_written_is_read_also_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        await written(disk, 1, 2)
        assert disk.has(key(1)) and await disk.read(key(1), MEMORY) == data(1)
        assert disk.kept_bytes == 2 * FILE
    assert not disk.has(key(1))
    left_over = path_of(tmp_path, 3).with_suffix(".chunk.tmp")
    left_over.write_bytes(b"half")
    async with opened(tmp_path) as disk:
        assert disk.kept_bytes == 2 * FILE
        assert await disk.read(key(2), MEMORY) == data(2)
        assert await disk.read(key(9), MEMORY) is None
        assert disk.counts.damaged == 0
    assert not left_over.exists()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_records_are_for_the_user_of_the_service_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    before = os.umask(0)
    try:
        async with opened(folder) as disk:
            await written(disk, 1)
    finally:
        os.umask(before)
    part = path_of(folder, 1).parent
    assert [mode(one) for one in (folder, part, path_of(folder, 1))] == [0o700, 0o700, 0o600]
    part.chmod(0o755)
    async with opened(folder) as disk:
        assert mode(part) == 0o700
        assert await disk.read(key(1), MEMORY) == data(1)


@pytest.mark.parametrize("at", [0, 6, 22, 26, 30, HEADER_BYTES, -1])
async def test_g09_a_flipped_bit_on_disk_is_a_miss_and_the_file_is_gone(
    tmp_path: Path, at: int
) -> None:
    async with opened(tmp_path) as disk:
        await written(disk, 1, 2)
        path = path_of(tmp_path, 1)
        content = bytearray(path.read_bytes())
        content[at] ^= 0x40
        path.write_bytes(content)
        assert await disk.read(key(1), MEMORY) is None
        assert not path.exists() and not disk.has(key(1))
        assert (disk.counts.damaged, disk.is_on) == (1, True)
        assert await disk.read(key(2), MEMORY) == data(2)


async def test_a_file_cut_short_or_gone_is_a_miss(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        await written(disk, 1, 2)
        os.truncate(path_of(tmp_path, 1), HEADER_BYTES + 5)
        path_of(tmp_path, 2).unlink()
        assert await disk.read(key(1), MEMORY) is None
        assert await disk.read(key(2), MEMORY) is None
        assert disk.is_on


async def test_what_the_segment_does_not_confirm_is_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as disk:
        await written(disk, 1)
        disk.discard(key(1))
        assert not disk.has(key(1))
        await settled(disk)
        assert not path_of(tmp_path, 1).exists()


async def test_g10_it_is_bounded_also_when_it_shrinks(tmp_path: Path) -> None:
    async with opened(tmp_path, 20 * FILE) as disk:
        for number in range(50):
            await written(disk, number)
            assert disk.kept_bytes <= 20 * FILE
        assert files_in(tmp_path) == 20
    async with opened(tmp_path, 5 * FILE) as disk:
        await settled(disk)
        assert disk.kept_bytes <= 5 * FILE
        assert files_in(tmp_path) == 5


async def test_when_the_disk_lags_writes_are_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path, 16 * FILE) as disk:
        for number in range(10):  # no time to write between them
            disk.write(key(number), data(number))
        assert disk.counts.dropped_writes == 8
        await settled(disk)
        assert sum(disk.has(key(number)) for number in range(10)) == 2


async def test_two_services_never_share_a_folder(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        await written(first, 1)
        with capture_logs() as logs:
            async with opened(tmp_path) as second:
                assert not second.is_on
                second.write(key(2), data(2))
                assert await second.read(key(1), MEMORY) is None
        assert [line["event"] for line in logs] == ["disk_cache_off"]
        assert await first.read(key(1), MEMORY) == data(1)
    async with opened(tmp_path) as third:
        assert third.has(key(1))


async def test_a_folder_that_cannot_be_made_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with capture_logs() as logs:
        async with opened(tmp_path / "file" / "cache") as disk:
            assert not disk.is_on and not disk.has(key(1))
    assert [line["event"] for line in logs] == ["disk_cache_off"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
async def test_a_full_disk_turns_the_cache_off_with_one_warning(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with opened(tmp_path) as disk:
            await written(disk, 1)
            temporary = path_of(tmp_path, 2).with_suffix(".chunk.tmp")
            temporary.symlink_to("/dev/full")
            disk.write(key(2), data(2))
            async with asyncio.timeout(60):
                while disk.is_on:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.001)
            disk.write(key(3), data(3))
            assert not disk.has(key(1))
            assert await disk.read(key(1), MEMORY) is None
            assert not temporary.is_symlink()
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["disk_cache_off"]


class HangingFolder(ChunkFolder):
    """A disk that does not answer until it is let go."""

    def __init__(self, folder: Path, let_go: "asyncio.Event") -> None:
        super().__init__(folder)
        self.let_go = let_go

    def read(self, key: ChunkKey, memory: ChunkMemory) -> Chunk | None:
        deadline = time.monotonic() + 10
        while not self.let_go.is_set() and time.monotonic() < deadline:
            time.sleep(0.005)
        return None


async def test_a_disk_that_hangs_turns_the_cache_off(tmp_path: Path) -> None:
    let_go = asyncio.Event()
    disk = DiskCache(
        tmp_path,
        100 * FILE,
        threads=THREADS,
        read_timeout_ms=20,
        folder=HangingFolder(tmp_path, let_go),
    )
    running = asyncio.ensure_future(disk.run())
    while not disk.is_on:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.001)
    await written(disk, 1)
    assert await disk.read(key(1), MEMORY) is None
    let_go.set()
    await asyncio.wait_for(running, 30)  # it is off: `run` has ended
    assert not disk.has(key(1))
