"""Many readers that read on, jump, give up and meet failures: every byte is right, and no reader
hangs.
"""

import asyncio
import random

import pytest

from kip405.errors import NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from kip405.segments import ByteRange
from rlm.clock import SystemClock
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from tests.builders.threads import some_threads
from tests.rlm.reading.world import MadePartition, MadeStore

CHUNK = 1 << 10
BATCHES = 150


async def one_reader(
    rng: random.Random, partition: MadePartition, reader: RemoteReader, whole: bytes
) -> int:
    """Some reads from random offsets; returns how many gave bytes."""
    size, good, offset = len(whole) // partition.next_offset, 0, 0
    for _ in range(40):
        if rng.random() < 0.1:
            offset = rng.randrange(partition.next_offset)
        asked = asyncio.ensure_future(
            partition.read(reader, offset, rng.choice((1, CHUNK, 5 * CHUNK, 40 * CHUNK)))
        )
        if rng.random() < 0.1:
            await asyncio.sleep(rng.random() / 500)
            asked.cancel()
        await asyncio.wait([asked])
        if asked.cancelled() or isinstance(asked.exception(), RemoteStorageError):
            continue
        records, after = asked.result()
        del asked
        assert b"".join(records) == whole[offset * size : after * size]
        assert after > offset
        good += 1
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() / 500)  # a slow client holds its answer
        del records
        offset = after if after < partition.next_offset else 0
    return good


@pytest.mark.parametrize("memory_chunks", [8, 40, 400])
@pytest.mark.parametrize("seed", range(4))
async def test_every_byte_is_right_and_nobody_is_stuck(seed: int, memory_chunks: int) -> None:
    rng = random.Random(seed)
    store = MadeStore(chunk_bytes=CHUNK, latency_ms=1)
    store.may_answer.set()

    def fails(_: Uuid, __: ByteRange) -> RemoteStorageError | None:
        chance = rng.random()
        return Unavailable("down") if chance < 0.03 else NotFound("?") if chance < 0.06 else None

    store.fails = fails
    partitions = [store.partition(number, 4, BATCHES, 30) for number in range(6)]
    whole = b"".join(store.logs[one.segment_id.id] for one in partitions[0].segments)
    limits = ReadLimits(
        memory_bytes=memory_chunks * CHUNK,
        range_bytes=16 * CHUNK,
        window_bytes=64 * CHUNK,
        first_bytes=CHUNK,
        start_window_bytes=4 * CHUNK,
        ranges_at_once=4,
        most_readers=12,
        readers_per_partition=4,
    )
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(120):
            reader = RemoteReader(
                store=store,
                cluster_id="made",
                tasks=tasks,
                threads=threads,
                clock=SystemClock(),
                limits=limits,
            )
            good = await asyncio.gather(
                *(one_reader(rng, rng.choice(partitions), reader, whole) for _ in range(24))
            )
            while reader.range_scheduler.running_count:  # noqa: ASYNC110 - the loads have no event
                await asyncio.sleep(0.001)
    assert sum(good) > 24 * 20
    assert reader.memory.reserved_bytes == 0
    assert reader.reader_count <= 12
