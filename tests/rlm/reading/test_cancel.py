"""A read cancelled at any of its steps leaves nothing behind, and what it began to the next."""

import asyncio

import pytest

from rlm.clock import SystemClock
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from tests.builders.threads import some_threads
from tests.rlm.reading.world import MadeStore

CHUNK = 1 << 10
LIMITS = ReadLimits(memory_bytes=64 * CHUNK, range_bytes=4 * CHUNK, first_bytes=CHUNK)


@pytest.mark.parametrize("steps", range(30))
async def test_a_read_may_be_cancelled_anywhere(steps: int) -> None:
    store = MadeStore(chunk_bytes=CHUNK)
    store.may_answer.set()
    partition = store.partition(0, 2, 150, 30)
    with some_threads(1) as threads:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
            reader = RemoteReader(
                store=store,
                cluster_id="made",
                tasks=tasks,
                threads=threads,
                clock=SystemClock(),
                limits=LIMITS,
            )
            reader.suppose_chunk_bytes(CHUNK)
            reading = asyncio.ensure_future(partition.read(reader, 70, CHUNK))
            for _ in range(steps):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            del reading  # its result, or the frames of its end, hold chunks
            offset, got = 70, 0
            while offset < partition.next_offset:
                records, offset = await partition.read(reader, offset, CHUNK)
                got += sum(map(len, records))
                del records
            while reader.range_scheduler.running_count or reader.index_scheduler.running_count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            # The future that woke us up holds what it brought, and for a moment its thread does.
            while reader.chunks.pinned_bytes():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    logs = [len(store.logs[one.segment_id.id]) for one in partition.segments]
    assert got == sum(logs) - logs[0] * 70 // 150
    assert len(store.indexes_asked) == 2
    assert reader.memory.reserved_bytes == 0
    assert reader.memory.held_bytes <= LIMITS.memory_bytes
