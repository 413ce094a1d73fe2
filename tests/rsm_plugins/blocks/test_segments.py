"""Copies and reads in blocks over a store of a few operations: requests, proofs, what is kept."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.errors import Corrupt, Fenced, Invalid, NotFound
from kip405.ids import Uuid
from kip405.segments import ByteRange, CustomMetadata, Layout, LogSegmentData, SegmentLocator
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.segments import BlockSegments
from rsm_plugins.blocks.source import data_pieces
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.threads import FileThreads
from tests.rsm_plugins.blocks.logs import INDEXES, LOCATOR, log_of, source_of

BLOCK = 1_000
SIZES = [100, 26, 700, 30, 860, 26, 27, 500, 41]
ENVELOPE = CustomMetadata(store_id=Uuid(bytes(16)), layout=Layout.BLOCKS)
WHERE = replace(LOCATOR, custom_metadata=ENVELOPE.encode())
DATA, INDEX = (object_name(WHERE, kind) for kind in (ObjectKind.BLOCKS, ObjectKind.BLOCKS_INDEX))


def with_answer(answer: bytes) -> SegmentLocator:
    """The locator of the finished copy, which has the copy's answer."""
    return replace(WHERE, custom_metadata=replace(ENVELOPE, plugin=answer).encode())


class MemoryObjects:
    """BlockObjects in memory, which notes what it is asked; two writes take turns."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []

    async def write_blocks(
        self, locator: SegmentLocator, data: LogSegmentData, plan: BlocksPlan, index: bytes
    ) -> None:
        self.objects[object_name(locator, ObjectKind.BLOCKS_INDEX)] = index
        await asyncio.sleep(0)
        content = b"".join(data_pieces(plan, data))
        self.objects[object_name(locator, ObjectKind.BLOCKS)] = content

    async def read_object(self, name: str) -> bytes:
        self.asked.append(name)
        await asyncio.sleep(0)
        return self._found(name)

    async def read_range(self, name: str, byte_range: ByteRange) -> bytes:
        self.asked.append(f"{byte_range.start}-{byte_range.end}")
        await asyncio.sleep(0)
        return self._found(name)[byte_range.start : byte_range.end]

    def _found(self, name: str) -> bytes:
        if name not in self.objects:
            raise NotFound(name)
        return self.objects[name]


@pytest.fixture
async def threads() -> AsyncIterator[FileThreads]:
    pool = FileThreads(threads=2)
    yield pool
    pool.close()


@pytest.fixture
def store() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def blocks(store: MemoryObjects, threads: FileThreads) -> BlockSegments:
    return BlockSegments(store, threads, block_size_bytes=BLOCK)


@pytest.fixture
def source(tmp_path: Path) -> LogSegmentData:
    return source_of(log_of(SIZES), tmp_path / "source")


def whole() -> ByteRange:
    return ByteRange(start=0, end=2**40)


async def test_what_was_copied_comes_back(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    finished = with_answer(await blocks.copy(WHERE, source))
    assert sorted(store.objects) == [DATA, INDEX]
    for locator in (finished, WHERE):
        assert await blocks.fetch_log(locator, whole()) == log_of(SIZES)
        assert await blocks.fetch_indexes(locator) == INDEXES


async def test_the_index_is_fetched_once_for_readers_at_once(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    finished = with_answer(await blocks.copy(WHERE, source))
    ranges = [ByteRange(start=start, end=start + 100) for start in range(0, 900, 100)]
    found = await asyncio.gather(*(blocks.fetch_log(finished, one) for one in ranges))
    assert b"".join(found) == log_of(SIZES)[:900]
    assert store.asked.count(INDEX) == 1


async def test_indexes_that_were_fetched_serve_reads_too(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    finished = with_answer(await blocks.copy(WHERE, source))
    await blocks.fetch_indexes(finished)
    await blocks.fetch_log(finished, ByteRange(start=0, end=100))
    # The header, the first entry, and 12 bytes for each entry that may begin before the end.
    assert store.asked == [INDEX, "0-264"]


async def test_an_index_of_another_content_than_the_copy_stored_is_corrupt(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData, tmp_path: Path
) -> None:
    """Also where a good index of the same name was kept."""
    other = source_of(log_of(SIZES[1:]), tmp_path / "other")
    first = with_answer(await blocks.copy(WHERE, source))
    second = with_answer(await blocks.copy(WHERE, other))
    assert await blocks.fetch_log(second, whole()) == log_of(SIZES[1:])
    with pytest.raises(Corrupt, match="the copy stored"):
        await blocks.fetch_log(first, whole())
    with pytest.raises(Corrupt, match="the copy stored"):
        await blocks.fetch_indexes(first)


async def test_an_index_of_another_segment_is_corrupt(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    await blocks.copy(WHERE, source)
    other = replace(WHERE, segment_id=replace(WHERE.segment_id, id=Uuid(bytes(16))))
    for kind in (ObjectKind.BLOCKS, ObjectKind.BLOCKS_INDEX):
        store.objects[object_name(other, kind)] = store.objects[object_name(WHERE, kind)]
    with pytest.raises(Corrupt, match="the index of segment"):
        await blocks.fetch_log(other, whole())


async def test_damage_names_the_object_and_the_location(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    await blocks.copy(WHERE, source)
    store.objects[DATA] = store.objects[DATA][:200]
    with pytest.raises(Corrupt, match=rf"{DATA}: the data object has 200 of"):
        await blocks.fetch_log(WHERE, whole())
    store.objects[INDEX] = store.objects[INDEX][:-1]
    with pytest.raises(Corrupt, match=f"{INDEX}: index object of"):
        await blocks.fetch_indexes(WHERE)


async def test_a_missing_object_is_not_found_also_for_empty_ranges(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    await blocks.copy(WHERE, source)
    empty = ByteRange(start=2**30, end=2**31)
    assert await blocks.fetch_log(WHERE, empty) == b""
    del store.objects[DATA]
    for wanted in (whole(), empty):
        with pytest.raises(NotFound):
            await blocks.fetch_log(WHERE, wanted)


async def test_copies_at_once_leave_one_whole(
    blocks: BlockSegments, source: LogSegmentData, tmp_path: Path
) -> None:
    """Never the index of one and the data of another."""
    other = source_of(log_of(SIZES[1:]), tmp_path / "other")
    await asyncio.gather(*(blocks.copy(WHERE, one) for one in (source, other, source, other)))
    assert await blocks.fetch_log(WHERE, whole()) in (log_of(SIZES), log_of(SIZES[1:]))


async def test_what_is_not_as_said_is_not_stored(
    blocks: BlockSegments, store: MemoryObjects, source: LogSegmentData
) -> None:
    wrong = {
        Corrupt: replace(source, log_crc32c=source.log_crc32c ^ 1),
        Fenced: replace(source, log=replace(source.log, path=f"{source.log.path}.gone")),
    }
    for kind, data in wrong.items():
        with pytest.raises(kind):
            await blocks.copy(WHERE, data)
    with pytest.raises(Corrupt, match="indexes object"):
        await blocks.copy(WHERE, replace(source, indexes_crc32c=1))
    assert store.objects == {}


async def test_bytes_of_the_plugin_that_say_nothing_are_invalid(
    blocks: BlockSegments, source: LogSegmentData
) -> None:
    await blocks.copy(WHERE, source)
    with pytest.raises(Invalid, match="version 9"):
        await blocks.fetch_log(with_answer(b"\x09" * 26), whole())
