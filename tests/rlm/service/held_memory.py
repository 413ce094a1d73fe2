"""A process with many cold readers and copies at once, wired as a service's settings say.

Run by test_h36_held_memory in a process of its own; prints what it took from the system.
"""

import asyncio
import json
import sys
from pathlib import Path

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.process import keep_freed_memory
from kip405.segments import SegmentLocator
from rlm.clock import SystemClock
from rlm.config import ServiceConfig
from rlm.log_dir.scanner import LogDirs
from rlm.service.read_path import build_reader
from rlm.tasks.copy_slots import CopyLimit, CopySlots
from rlm.tasks.segment_data import RemoteIndexEntries, prepare
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.threads import Threads
from tests.builders.log_dir import CLUSTER_ID, TOPIC, TOPIC_ID, LogDir
from tests.builders.service import broker_config
from tests.builders.threads import all_of, some_threads
from tests.rlm.reading.local_bench import IDENTITY
from tests.rlm.reading.many_readers import BATCHES, CHUNK, VALUE_BYTES, consume, resident_bytes
from tests.rlm.reading.world import MadeStore

ENTRIES = RemoteIndexEntries(remote_object="store/key.log", interval_bytes=1 << 20)
RECORDS = 40_000
VALUE = b"v" * 400


class Copies:
    """Copies of one closed segment of 16 MiB; each task overwrites its own object."""

    def __init__(self, folder: Path, config: ServiceConfig, threads: Threads) -> None:
        files = LogDir(folder / "data")
        partition = files.partition()
        self._size_bytes = len(partition.segment(0, RECORDS, fill=VALUE))
        partition.active(RECORDS, RECORDS + 10)
        (folder / "store").mkdir()
        self._store = LocalRemoteStorageManager(folder / "store")
        self._log = LogDirs([str(files.path)]).scan(TOPIC, 0)
        self._slots = CopySlots(CopyLimit(slots=config.copy_slots))
        self._threads = threads
        self.bytes = 0

    async def begin(self) -> None:
        """The store is one from now on."""
        await self._store.create_identity(IDENTITY)

    async def run(self, number: int, turns: int) -> None:
        """One task: prepare and upload, as often as asked for."""
        for _ in range(turns):
            async with self._slots.share(self._size_bytes):
                log = self._log
                made = await self._threads.run(prepare, log, log.segments[0], log.lineage, ENTRIES)
                await self._store.copy_log_segment_data(_locator(number), made.data)
                self.bytes += self._size_bytes

    async def close(self) -> None:
        await self._store.close()


def _locator(number: int) -> SegmentLocator:
    segment_id = Uuid(number.to_bytes(16, "big"))
    partition = TopicIdPartition(topic_id=TOPIC_ID, topic=TOPIC, partition=number)
    return SegmentLocator(
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=segment_id),
        cluster_id=CLUSTER_ID,
        start_offset=0,
        custom_metadata=None,
    )


async def run(config: ServiceConfig, folder: Path, readers: int, turns: int) -> dict[str, int]:
    """Readers of a segment each, and ten copy tasks, all at the same time."""
    store = MadeStore(chunk_bytes=CHUNK, latency_ms=20)
    store.may_answer.set()
    partitions = [store.partition(at, 1, BATCHES, VALUE_BYTES) for at in range(readers)]
    held: list[int] = []
    with some_threads(10) as threads:
        copies = Copies(folder, config, threads)
        await copies.begin()
        async with asyncio.TaskGroup() as tasks:
            reader = build_reader(config, store, SystemClock(), tasks, all_of(threads), None)
            before_bytes = resident_bytes("VmRSS")
            copying = [asyncio.ensure_future(copies.run(at, turns)) for at in range(10)]
            sizes = await asyncio.gather(*(consume(one, reader, held) for one in partitions))
            await asyncio.gather(*copying)
        await copies.close()
    return {
        "read_bytes": sum(sizes),
        "copied_bytes": copies.bytes,
        "before_bytes": before_bytes,
        "most_bytes": resident_bytes("VmHWM"),
        "held_bytes": max(held),
    }


def main(folder: Path, memory_bytes: int, readers: int, turns: int) -> None:
    """Print what was read, copied and held."""
    (folder / "state").mkdir()
    given = {"memory.max.bytes": memory_bytes, "remote.log.reader.max.pending.tasks": 10_000}
    config = broker_config(folder / "state", given)
    keep_freed_memory(config.kept_memory_bytes)
    found = asyncio.run(run(config, folder, readers, turns))
    parts = {
        "chunks": config.fetch_chunk_cache_bytes,
        "copies": config.copy_memory_max_bytes,
        "slots": config.copy_slots,
    }
    print(json.dumps(found | parts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
