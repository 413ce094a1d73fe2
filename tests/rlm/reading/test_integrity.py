"""G9, H25: a damaged or missing object is an error with its name, believed when asked twice."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip405.errors import Corrupt, NotFound
from kip405.segments import ByteRange, FileSlice, SegmentLocator
from rlm.reading.values import ReadLimits
from tests.kip405.batch_builder import batch
from tests.rlm.reading.local_bench import (
    ALL,
    CHUNK,
    Bench,
    CountingStore,
    bounds,
    mixed_log,
    read,
)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("shared", [True, False])
async def test_g09_a_flipped_bit_of_the_log_is_never_served(local: Bench, shared: bool) -> None:
    await local.use_store(shared=shared)
    log = b"".join(batch(base, 10) for base in range(0, 200, 10))
    segment = await local.stored(log)
    reader = local.reader()
    where = 3 * CHUNK + 77
    flip(local.store.object(".log"), where)
    with pytest.raises(Corrupt, match=f"chunk 3 of segment {segment.segment_id}"):
        await read(reader, segment, bounds(0))
    assert local.store.ranges.count((3 * CHUNK, 4 * CHUNK)) >= 2
    assert await read(reader, segment, bounds(0, max_bytes=2 * CHUNK))  # the others are good
    flip(local.store.object(".log"), where)
    assert (await read(reader, segment, bounds(0)))[0] == log


class LendingStore(CountingStore):
    """Answers ranges in a file of its own, at their own positions: a file that is lent."""

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        found = await super().fetch_log_segment(locator, byte_range)
        assert isinstance(found, FileSlice)
        return replace(found, keeper=object())


async def test_g09_a_file_that_was_lent_is_not_read_for_another_range(local: Bench) -> None:
    """What is in it by then is of somebody else's fetch."""
    await local.store.close()
    local.store = LendingStore(local.root / "store")
    log = b"".join(batch(base, 10) for base in range(0, 2_000, 10))
    segment = await local.stored(log)
    limits = ReadLimits(
        memory_bytes=ALL,
        range_bytes=CHUNK,
        window_bytes=CHUNK,
        start_window_bytes=CHUNK,
        first_bytes=CHUNK,
    )
    reader = local.reader(limits)
    got, offset = b"", 0
    while len(got) < len(log):
        part, offset = await read(reader, segment, bounds(offset, upper_offset=offset + 10))
        got += part
    assert got == log
    chunks = {start for start, end in local.store.ranges if end - start <= CHUNK}
    assert chunks == set(range(0, len(log), CHUNK))


@pytest.mark.parametrize("shared", [True, False])
async def test_g09_a_log_cut_short_is_corrupt(local: Bench, shared: bool) -> None:
    await local.use_store(shared=shared)
    segment = await local.stored(mixed_log())
    path = local.store.object(".log")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=f"of segment {segment.segment_id} has .* bytes"):
        await read(local.reader(), segment, bounds(0))


@pytest.mark.parametrize("at", [0, 5, 40, -1])
async def test_g09_a_flipped_bit_of_the_indexes_is_never_believed(local: Bench, at: int) -> None:
    segment = await local.stored(mixed_log())
    flip(local.store.object(".indexes"), at)
    reader = local.reader()
    with pytest.raises(Corrupt, match=f"indexes object of segment {segment.segment_id}"):
        await read(reader, segment, bounds(0))
    assert local.store.indexes_fetched == 2


async def test_metadata_without_checksums_is_corrupt(local: Bench) -> None:
    segment = await local.stored(mixed_log())
    for custom in (None, b"\xff" * 40):
        with pytest.raises(Corrupt, match=f"metadata of segment {segment.segment_id}"):
            await read(local.reader(), replace(segment, custom_metadata=custom), bounds(0))


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
async def test_h25_a_missing_object_is_believed_when_asked_twice(local: Bench, suffix: str) -> None:
    segment = await local.stored(batch(0, 3))
    local.store.object(suffix).unlink()
    reader = local.reader()
    reader.suppose_chunk_bytes(CHUNK)
    with pytest.raises(NotFound):
        await read(reader, segment, bounds(0))
    asked = len(local.store.ranges) if suffix == ".log" else local.store.indexes_fetched
    assert asked == 2


async def test_h25_one_wrong_answer_is_not_believed(local: Bench) -> None:
    log = batch(0, 3)
    segment = await local.stored(log)
    local.store.glitches = 1
    assert await read(local.reader(), segment, bounds(0)) == (log, 3)


@pytest.fixture
def without_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_garbage_collector")
async def test_g10_an_error_keeps_no_chunk_of_the_range_that_was_loaded(local: Bench) -> None:
    segment = await local.stored(b"".join(batch(base, 10) for base in range(0, 200, 10)))
    reader = local.reader()
    flip(local.store.object(".log"), 77)
    with pytest.raises(Corrupt, match="chunk 0") as kept:
        await read(reader, segment, bounds(0))
    assert reader.chunks.kept_bytes > 0
    async with asyncio.timeout(60):  # a thread that verified a chunk may refer to it for a moment
        while reader.chunks.kept_bytes:
            gc.collect()  # frees what only a cycle refers to, not what the error refers to
            reader.chunks.evict(reader.chunks.kept_bytes, spares_ahead=False)
            await asyncio.sleep(0.001)
    assert "chunk 0" in str(kept.value), "the error is still referred to"


class Range(bytearray):
    """Bytes of the store that a weak reference can follow."""


class LosesIndexes(CountingStore):
    """Has the log of a segment, and not its indexes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, shared=False)
        self.given: list[weakref.ref[Range]] = []

    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> Any:
        found = await super().fetch_log_segment(locator, byte_range)
        assert isinstance(found, bytes)
        given = Range(found)
        self.given.append(weakref.ref(given))
        return given

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        async with asyncio.timeout(60):
            while not self.given:  # noqa: ASYNC110 - the range arrives first
                await asyncio.sleep(0.001)
        raise NotFound("the indexes are gone")


@pytest.mark.usefixtures("without_garbage_collector")
async def test_g10_an_error_of_the_indexes_does_not_keep_the_range_that_came_first(
    local: Bench,
) -> None:
    segment = await local.stored(mixed_log())
    await local.store.close()
    local.store = store = LosesIndexes(local.root / "store")
    with pytest.raises(NotFound) as kept:
        await read(local.reader(), segment, bounds(0))
    await local.is_idle()
    assert store.given
    assert [one() for one in store.given if one() is not None] == [], f"kept by {kept.value!r}"
