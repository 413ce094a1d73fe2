"""A process with many cold readers at once; prints what it held and what it took from the system.

Run by test_memory in a process of its own, so that nothing else is measured.
"""

import asyncio
import json
import sys
from pathlib import Path

from kip405.process import KEPT_BY_A_SERVICE_BYTES, keep_freed_memory
from rlm.clock import SystemClock
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from tests.builders.threads import some_threads
from tests.rlm.reading.world import MadePartition, MadeStore

CHUNK = 1 << 20
FETCH = 1 << 20
BATCHES = 512
VALUE_BYTES = 32 << 10


def resident_bytes(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise LookupError(field)


async def consume(partition: MadePartition, reader: RemoteReader, held: list[int]) -> int:
    offset = size = 0
    while offset < partition.next_offset // 8:
        records, after = await partition.read(reader, offset, FETCH)
        size += sum(map(len, records))
        await asyncio.sleep(0.02)  # the answer is on its way to a slow client
        del records
        held.append(reader.memory.held_bytes)
        offset = after
    return size


async def run(memory_bytes: int, readers: int) -> dict[str, int]:
    """Read an eighth of one segment of every partition, all at the same time."""
    store = MadeStore(chunk_bytes=CHUNK, latency_ms=20)
    store.may_answer.set()
    partitions = [store.partition(at, 1, BATCHES, VALUE_BYTES) for at in range(readers)]
    held: list[int] = []
    with some_threads(10) as threads:
        async with asyncio.TaskGroup() as tasks:
            reader = RemoteReader(
                store=store,
                cluster_id="made",
                tasks=tasks,
                threads=threads,
                clock=SystemClock(),
                limits=ReadLimits(memory_bytes=memory_bytes, most_waiting=10_000),
            )
            before = resident_bytes("VmRSS")
            sizes = await asyncio.gather(*(consume(one, reader, held) for one in partitions))
    return {
        "read_bytes": sum(sizes),
        "most_held_bytes": max(held),
        "grown_bytes": resident_bytes("VmHWM") - before,
        "requests": len(store.asked),
    }


if __name__ == "__main__":
    keep_freed_memory(KEPT_BY_A_SERVICE_BYTES)
    print(json.dumps(asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))))
