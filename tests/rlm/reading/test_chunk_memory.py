"""Memory for chunks is used again, and never while anything refers to the chunk in it (G9)."""

import gc
import random
import threading
from pathlib import Path

import pytest

from kip405.crc import crc32c
from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from kip405.indexes import ChunkChecksums
from kip405.segments import FileSlice
from rlm.reading.chunk_cache import ChunkCache, ChunkKey
from rlm.reading.chunk_memory import SLOT_BYTES, SLOTS_AT_ONCE, Chunk, ChunkMemory, view_of
from rlm.reading.source import verified
from tests.kip405.batch_builder import batch
from tests.rlm.reading.local_bench import Bench, bounds

SEGMENT_ID = Uuid(bytes(range(16)))
MAPPED = SLOTS_AT_ONCE * SLOT_BYTES


def filled(memory: ChunkMemory, value: int) -> Chunk:
    chunk = memory.buffer(SLOT_BYTES)
    memoryview(chunk).cast("B")[:] = bytes([value]) * SLOT_BYTES
    return chunk


def test_a_dropped_chunk_gives_its_memory_to_the_next_one() -> None:
    memory = ChunkMemory()
    for value in range(5 * SLOTS_AT_ONCE):
        chunk = filled(memory, value % 256)
        assert view_of(chunk)[0] == view_of(chunk)[-1] == value % 256
        del chunk
    assert memory.mapped_bytes == memory.free_bytes == MAPPED


def test_chunks_that_live_at_the_same_time_share_no_byte() -> None:
    memory = ChunkMemory()
    chunks = [filled(memory, value) for value in range(2 * SLOTS_AT_ONCE)]
    for value, chunk in enumerate(chunks):
        assert bytes(view_of(chunk)) == bytes([value]) * SLOT_BYTES
    assert (memory.mapped_bytes, memory.free_bytes) == (2 * MAPPED, 0)


def test_g09_a_view_keeps_the_memory_of_its_chunk() -> None:
    memory = ChunkMemory()
    part = view_of(filled(memory, 7))[1_000:2_000]
    others = [filled(memory, 9) for _ in range(2 * SLOTS_AT_ONCE)]
    assert bytes(part) == bytes([7]) * 1_000
    free_bytes = memory.free_bytes
    del part
    assert memory.free_bytes == free_bytes + SLOT_BYTES
    assert len(others) * SLOT_BYTES + memory.free_bytes == memory.mapped_bytes


def test_nobody_writes_to_a_chunk_by_its_view() -> None:
    for chunk in (ChunkMemory().buffer(SLOT_BYTES), ChunkMemory().buffer(10)):
        with pytest.raises(TypeError):
            view_of(chunk)[0] = 1


def test_only_a_whole_chunk_takes_a_slot() -> None:
    memory = ChunkMemory()
    assert len(memory.buffer(10)) == 10
    assert len(memory.buffer(SLOT_BYTES + 1)) == SLOT_BYTES + 1
    assert memory.mapped_bytes == 0


def test_g10_the_cache_counts_whole_slots_and_evicts_none_that_is_referred_to() -> None:
    memory, cache = ChunkMemory(), ChunkCache(4 * SLOT_BYTES)
    keys: list[ChunkKey] = [(SEGMENT_ID, number) for number in range(4)]
    for number, key in enumerate(keys):
        cache.put(key, filled(memory, number), 1, is_ahead=False)
    held = cache.get(keys[0], 1)
    assert held is not None
    part = view_of(held)[5:10]
    del held
    assert cache.kept_bytes == 4 * SLOT_BYTES
    assert cache.evict(4 * SLOT_BYTES, spares_ahead=False) == 3 * SLOT_BYTES
    assert memory.mapped_bytes - memory.free_bytes == cache.kept_bytes == SLOT_BYTES
    assert bytes(part) == bytes(5)


def test_g09_threads_that_take_and_drop_chunks_at_once_share_no_byte() -> None:
    memory, wrong = ChunkMemory(), list[int]()

    def use(value: int) -> None:
        for _ in range(30):
            chunks = [filled(memory, value) for _ in range(3)]
            wrong.extend(value for one in chunks if bytes(view_of(one)).strip(bytes([value])))

    threads = [threading.Thread(target=use, args=(value,)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    gc.collect()
    assert memory.free_bytes == memory.mapped_bytes


def test_g09_a_slot_that_held_the_right_bytes_does_not_mend_a_short_file(tmp_path: Path) -> None:
    data, memory = random.Random(1).randbytes(SLOT_BYTES), ChunkMemory()
    checksums = ChunkChecksums(chunk_size_bytes=SLOT_BYTES, crcs=(crc32c(data),))
    path = tmp_path / "log"
    found = FileSlice(path=str(path), position=0, size_bytes=SLOT_BYTES)
    path.write_bytes(data)
    kept = [
        verified(found, range(1), checksums, SLOT_BYTES, "s", memory) for _ in range(SLOTS_AT_ONCE)
    ]
    assert not any(isinstance(one[0], RemoteStorageError) for one in kept)
    assert memory.free_bytes == 0
    del kept  # every slot holds these bytes now
    path.write_bytes(data[:-1])
    landed = verified(found, range(1), checksums, SLOT_BYTES, "s", memory)
    assert f"has {SLOT_BYTES - 1} bytes" in str(landed[0])
    assert memory.mapped_bytes == MAPPED


def test_g10_slots_beyond_what_is_kept_give_their_pages_back() -> None:
    memory = ChunkMemory(kept_bytes=2 * SLOT_BYTES)
    chunks = [filled(memory, value) for value in range(1, 6)]
    kept = view_of(chunks[2])
    assert memory.resident_bytes == 5 * SLOT_BYTES
    del chunks
    assert memory.resident_bytes == 3 * SLOT_BYTES
    assert memory.free_bytes == memory.mapped_bytes - SLOT_BYTES
    assert bytes(kept) == bytes([3]) * SLOT_BYTES
    again = [memory.slot() for _ in range(SLOTS_AT_ONCE - 1)]
    assert memory.mapped_bytes == memory.resident_bytes == MAPPED
    zeros = [one for one in again if not any(view_of(one)[:: SLOT_BYTES // 64])]
    assert len(zeros) == SLOTS_AT_ONCE - 3  # all but those that were kept


async def test_g09_a_file_cut_short_under_a_reader_changes_no_byte_that_was_read(
    local: Bench,
) -> None:
    """A process that has mapped the file dies by SIGBUS here."""
    log = b"".join(batch(at, 1, value=bytes([at % 251]) * 60_000) for at in range(64))
    segment = await local.stored(log, chunk=SLOT_BYTES)
    reader = local.reader()
    reader.suppose_chunk_bytes(SLOT_BYTES)
    found = await reader.read(segment, bounds(0), read_committed=False)
    assert found.size_bytes > SLOT_BYTES * 3 // 4
    local.store.object(".log").write_bytes(b"")
    assert b"".join(found.records) == log[: found.size_bytes]
    again = await reader.read(segment, bounds(0), read_committed=False)
    assert b"".join(again.records) == log[: again.size_bytes]
    assert again.size_bytes >= found.size_bytes
