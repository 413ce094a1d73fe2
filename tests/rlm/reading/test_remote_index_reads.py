"""Reads by the remote index files: one range and no indexes object, and never a wrong record."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from kip405.batches import batch_headers
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import NotFound
from kip405.indexes import AbortedTransaction, IndexesObject, build_indexes_object
from kip405.remote_index import RemoteLogIndexEntry, decode_entries
from kip405.segments import RemoteLogSegmentMetadata
from rlm.proxy.begun import Begun, begin
from rlm.reading.ended_segments import EndedSegments
from rlm.reading.remote_index import FOLDER, RemoteIndex, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from rlm.service.read_path import read_gauges
from tests.builders.clock import ManualClock
from tests.builders.threads import some_threads
from tests.kip405.batch_builder import batch
from tests.rlm.reading.local_bench import ALL, CHUNK, Bench, bounds, expected, mixed_log, read

T = TypeVar("T")
ENTRY_BYTES = 700
LIMITS = RemoteIndexLimits(
    rotation=Rotation(segment_bytes=1 << 20, segment_ms=1 << 40), most_bytes=1 << 20
)


def files_of(local: Bench, limits: RemoteIndexLimits = LIMITS) -> RemoteIndex:
    """As a process that begins now has them."""
    return RemoteIndex(RemoteIndexFiles(local.root, limits, lambda: 0), local.threads)


async def kept(local: Bench, segment: RemoteLogSegmentMetadata) -> None:
    """The files have the segment, as after a read of an earlier process."""
    files = files_of(local)
    files.keep(segment, local.store.object(".indexes").read_bytes())
    await files.written()
    assert files.counts.kept == 1 and files.counts.failed == 0


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("entry_bytes", [1, ENTRY_BYTES, 1 << 20])
async def test_every_offset_and_size_gives_the_stored_batches(
    local: Bench, shared: bool, entry_bytes: int
) -> None:
    await local.use_store(shared=shared)
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=entry_bytes)
    await kept(local, segment)
    for offset in range(90, segment.next_offset + 2, 7):
        for max_bytes in (0, 700, ALL):
            reader = local.reader(remote_index=files_of(local))
            reader.suppose_chunk_bytes(CHUNK)
            asked = bounds(offset, max_bytes, segment.next_offset)
            assert await read(reader, segment, asked) == expected(log, asked)
    assert local.store.indexes_fetched == 0


async def test_a_cold_read_needs_one_range_alone(local: Bench) -> None:
    segment = await local.stored(mixed_log(), chunk=1 << 16, entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    reader = local.reader(remote_index=files_of(local))
    await reader.read(segment, bounds(150, 1_000), read_committed=True)
    assert (len(local.store.ranges), local.store.indexes_fetched) == (1, 0)
    local.store.ranges.clear()
    small = await local.stored(mixed_log(), number=2, entry_bytes=4_000)
    files = files_of(local)
    (indexes,) = (local.root / "store").rglob(f"*{small.segment_id.id}.indexes")
    files.keep(small, indexes.read_bytes())
    await files.written()
    for offset in range(100, small.next_offset, 11):
        fresh = local.reader(remote_index=files_of(local))
        fresh.suppose_chunk_bytes(CHUNK)
        await fresh.read(small, bounds(offset, 1), read_committed=True)
        assert (len(local.store.ranges), local.store.indexes_fetched) == (1, 0), offset
        local.store.ranges.clear()
    found = read_gauges(reader, None)["rlm_remote_index_reads_total"]
    assert found == {("found",): 1, ("absent",): 0}


async def test_what_a_read_brings_from_the_store_is_kept_for_the_next_process(
    local: Bench,
) -> None:
    segment = await local.stored(mixed_log(), entry_bytes=ENTRY_BYTES)
    files = files_of(local)
    await local.reader(remote_index=files).read(segment, bounds(150), read_committed=False)
    await files.written()
    assert local.store.indexes_fetched == 1
    assert (files.counts.found, files.counts.absent) == (0, 1)  # they are asked once
    again = local.reader(remote_index=files_of(local))
    await again.read(segment, bounds(150), read_committed=False)
    assert local.store.indexes_fetched == 1


async def test_a_segment_without_entries_is_read_as_before(local: Bench) -> None:
    log = mixed_log()
    segment = await local.stored(log)
    files = files_of(local)
    reader = local.reader(remote_index=files)
    assert await read(reader, segment, bounds(100)) == expected(log, bounds(100))
    await files.written()
    assert local.store.indexes_fetched == 1 and not files.keys()


async def test_aborted_transactions_and_timestamps_are_those_of_the_indexes_object(
    local: Bench,
) -> None:
    aborted = (AbortedTransaction(9, 110, 140),)
    segment = await local.stored(mixed_log(), aborted=aborted, entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    by_store, by_files = local.reader(), local.reader(remote_index=files_of(local))
    assert await by_files.aborted_list(segment) == aborted
    for timestamp_ms in range(990, 3_050, 51):
        for offset in (100, 131, segment.end_offset):
            found = await by_files.find_timestamp(segment, timestamp_ms, offset)
            assert found == await by_store.find_timestamp(segment, timestamp_ms, offset)
    assert local.store.indexes_fetched == 1


async def test_g09_the_largest_timestamp_of_all_fails_no_read(local: Bench) -> None:
    """A producer may give any timestamp where the topic permits that."""
    largest = 2**63 - 1
    log = b"".join(
        batch(100 + number, 1, first_ms=first_ms, value=b"v" * 300)
        for number, first_ms in enumerate((1_000, 1_010, largest, 1_020, largest))
    )
    segment = await local.stored(log, entry_bytes=1)
    await kept(local, segment)
    by_store, by_files = local.reader(), local.reader(remote_index=files_of(local))
    assert await read(by_files, segment, bounds(103)) == expected(log, bounds(103))
    for timestamp_ms in (1_005, 1_011, largest - 1, largest):
        found = await by_files.find_timestamp(segment, timestamp_ms, 100)
        assert found == await by_store.find_timestamp(segment, timestamp_ms, 100)
        assert found is not None and found.offset == (101 if timestamp_ms == 1_005 else 102)
    assert local.store.indexes_fetched == 1


Change = Callable[[list[RemoteLogIndexEntry]], list[RemoteLogIndexEntry]]


def later_offsets(entries: list[RemoteLogIndexEntry]) -> list[RemoteLogIndexEntry]:
    """Entries claim to begin one record earlier than they do, where the one before has two."""
    first, *others = entries
    changed = [
        replace(one, first_offset=one.first_offset - (before.last_offset > before.first_offset))
        for before, one in zip(entries, others, strict=False)
    ]
    ends = [one.first_offset - 1 for one in changed] + [entries[-1].last_offset]
    whole = [first, *changed]
    return [replace(one, last_offset=end) for one, end in zip(whole, ends, strict=True)]


def moved_borders(entries: list[RemoteLogIndexEntry]) -> list[RemoteLogIndexEntry]:
    """Positions that are no borders of batches."""
    changed, at = [], 0
    for number, one in enumerate(entries):
        size = one.data_size_bytes + (5 if number == 0 else 0)
        size -= 5 if number == len(entries) - 1 else 0
        rdi = one.rdi.partition("?")[0]
        changed.append(replace(one, data_size_bytes=size, rdi=f"{rdi}?{at}"))
        at += size
    return changed


@pytest.mark.parametrize("change", [later_offsets, moved_borders])
async def test_g09_a_wrong_entry_costs_time_and_never_a_record(
    local: Bench, change: Change
) -> None:
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    data = local.store.object(".indexes").read_bytes()
    parsed = IndexesObject.parse(data)
    sections = {one: bytes(parsed.section(one) or b"") for one in parsed.types}
    entries = [entry for _, entry in decode_entries(sections[IndexType.REMOTE_LOG_INDEX])]
    wrong = b"".join(one.encode() for one in change(entries))
    files = files_of(local)
    files.keep(segment, build_indexes_object({**sections, IndexType.REMOTE_LOG_INDEX: wrong}))
    await files.written()
    assert len(files.keys()) == 1
    for offset in range(100, segment.next_offset):
        fresh = files_of(local)
        asked = bounds(offset, 500)
        reader = local.reader(remote_index=fresh)
        assert await read(reader, segment, asked) == expected(log, asked)
        await fresh.written()
        if fresh.counts.damaged:
            break
    else:
        pytest.fail("no read met a wrong entry")
    mended = local.reader(remote_index=files_of(local))
    before = local.store.indexes_fetched
    assert await read(mended, segment, bounds(offset)) == expected(log, bounds(offset))
    assert local.store.indexes_fetched == before


async def test_g09_wrong_checksums_in_the_files_make_no_segment_lost(local: Bench) -> None:
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    parsed = IndexesObject.parse(local.store.object(".indexes").read_bytes())
    sections = {one: bytes(parsed.section(one) or b"") for one in parsed.types}
    checksums = bytearray(sections[IndexType.CHUNK_CHECKSUMS])
    checksums[5] ^= 1
    files = files_of(local)
    files.keep(segment, build_indexes_object({**sections, IndexType.CHUNK_CHECKSUMS: checksums}))
    await files.written()
    reader = local.reader(remote_index=files)
    assert await read(reader, segment, bounds(100)) == expected(log, bounds(100))


async def test_g09_files_of_other_objects_are_not_used(local: Bench) -> None:
    """The same segment id with another indexes object, as after a restore of a store."""
    segment = await local.stored(mixed_log(), entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    data = local.store.object(".indexes").read_bytes()
    other = replace(segment.custom(), indexes_crc32c=crc32c(data) ^ 1)
    files = files_of(local)
    assert await files.indexes(replace(segment, custom_metadata=other.encode())) is None
    assert files.counts.damaged == 1


async def test_any_damaged_file_leads_to_the_store(local: Bench) -> None:
    log, rng = mixed_log(), random.Random(3)
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    folder = local.root / FOLDER
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    next_log = batch(segment.next_offset, 2, value=b"next")
    next_segment = await local.stored(next_log, number=2, entry_bytes=ENTRY_BYTES)
    (next_object,) = (local.root / "store").rglob(f"*{next_segment.segment_id.id}.indexes")
    for path, data in whole.items():
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 16
        path.write_bytes(damaged)
        files = files_of(local)
        reader = local.reader(remote_index=files)
        asked = bounds(rng.randrange(100, segment.next_offset))
        assert await read(reader, segment, asked) == expected(log, asked)
        files.keep(next_segment, next_object.read_bytes())  # checks all of the file before
        await files.written()
        assert len(files.keys()) == 2
        await files.discard(next_segment)
        assert {one: one.read_bytes() for one in whole} == whole, path


async def test_files_hide_no_loss(local: Bench) -> None:
    segment = await local.stored(mixed_log(), entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    local.store.object(".log").unlink()
    with pytest.raises(NotFound):
        await local.reader(remote_index=files_of(local)).read(
            segment, bounds(150), read_committed=False
        )


async def test_h02_segments_that_ended_leave_the_files(local: Bench) -> None:
    segment = await local.stored(mixed_log(), entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    files, living = files_of(local), {segment.segment_id.id.raw}
    await files.load()

    async def at_once() -> None:
        """The ledger was read."""

    ended = EndedSegments(
        [files],
        wait_ready=at_once,
        finished_ids=lambda: iter([frozenset(living)]),
        clock=ManualClock(),
    )
    await ended.check()
    assert len(files.keys()) == 1
    living.clear()
    await ended.check()
    await files.written()
    assert not files.keys() and files.counts.file_bytes == 0
    assert not [path for path in (local.root / FOLDER).rglob("*") if path.is_file()]


async def test_the_files_are_bounded(local: Bench) -> None:
    limits = replace(LIMITS, most_bytes=100)
    segment = await local.stored(mixed_log(), entry_bytes=ENTRY_BYTES)
    files = files_of(local, limits)
    await local.reader(remote_index=files).read(segment, bounds(150), read_committed=False)
    await files.written()
    assert files.counts.refused == 1 and not files.keys()


async def test_a_disk_that_fails_fails_no_read(local: Bench) -> None:
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    (local.root / FOLDER).write_bytes(b"not a folder")
    files = files_of(local)
    reader = local.reader(remote_index=files)
    assert await read(reader, segment, bounds(100)) == expected(log, bounds(100))
    await files.written()
    assert files.counts.failed


async def test_a_folder_that_cannot_be_read_costs_no_other_partition(local: Bench) -> None:
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    (local.root / FOLDER / "another-0" / f"{0:020d}.remotesegmentindex").mkdir(parents=True)
    files = files_of(local)
    reader = local.reader(remote_index=files)
    assert await read(reader, segment, bounds(100)) == expected(log, bounds(100))
    assert local.store.indexes_fetched == 0 and files.counts.failed == 1


async def test_g06_a_disk_that_hangs_holds_up_no_read(
    local: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.reading.remote_index._MOST_WAIT_MS", 10)
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    answers = threading.Event()
    with some_threads(1) as threads:
        files = RemoteIndexFiles(local.root, LIMITS, lambda: 0)
        monkeypatch.setattr(files, "indexes", lambda _: answers.wait())
        reader = local.reader(remote_index=RemoteIndex(files, threads))
        try:
            async with asyncio.timeout(30):
                assert await read(reader, segment, bounds(100)) == expected(log, bounds(100))
        finally:
            answers.set()


@pytest.mark.parametrize("is_wrong", [False, True])
async def test_a_read_by_the_files_begins_outside_of_a_task(local: Bench, is_wrong: bool) -> None:
    """As the proxy begins them (`rlm.proxy.begun`)."""
    log = mixed_log()
    segment = await local.stored(log, entry_bytes=ENTRY_BYTES)
    await kept(local, segment)
    files = files_of(local)
    await files.load()
    loop = asyncio.get_running_loop()

    async def outside(work: Coroutine[Any, None, T]) -> T:
        first_step: asyncio.Future[T | Begun[T]] = loop.create_future()

        def step() -> None:
            try:
                first_step.set_result(begin(work))
            except Exception as error:  # noqa: BLE001 - it is the awaiter's
                first_step.set_exception(error)

        loop.call_soon(step)
        found = await first_step
        return await found if isinstance(found, Begun) else found

    if is_wrong:
        await outside(files.discard(segment))
    reader = local.reader(remote_index=files)
    read_once = reader.read(segment, bounds(150, 500), read_committed=False)
    found = await outside(read_once)
    assert b"".join(found.records) == expected(log, bounds(150, 500))[0][: found.size_bytes]
    assert found.size_bytes and local.store.indexes_fetched == int(is_wrong)


async def test_readers_of_many_segments_at_once(local: Bench) -> None:
    """What two processes keep of the same segments, in any order, answers alike."""
    logs = {number: mixed_log(seed=number) for number in range(1, 4)}
    segments = {
        number: await local.stored(log, number=number, entry_bytes=ENTRY_BYTES)
        for number, log in logs.items()
    }
    files = files_of(local)
    reader = local.reader(remote_index=files)

    async def one(number: int, offset: int) -> None:
        asked = bounds(offset, 2_000)
        found = await read(reader, segments[number], asked)
        assert found == expected(logs[number], asked)

    async with asyncio.TaskGroup() as tasks:
        for number in segments:
            for _, header in list(batch_headers(logs[number]))[::7]:
                tasks.create_task(one(number, header.base_offset))
    await files.written()
    assert len(files.keys()) == 1  # they overlap: the last one that was read is kept
