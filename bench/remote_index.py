"""`python -m bench.remote_index`: first records of unknown segments with and without index files.

In one process, over a local store whose every read is delayed, as another machine's would be. Each
first read has a reader with nothing in memory; offsets are random, and record sizes grow along a
segment, so that a position cannot be guessed from an offset alone. Memory is that of what a service
knows of segments after their first reads: parsed indexes, or the table of the files.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from kip405.contracts import IndexType, StoreIdentity
from kip405.crc import crc32c
from kip405.indexes import ChunkChecksums, build_indexes_object
from kip405.segments import ByteRange, FileSlice, RemoteLogSegmentMetadata, SegmentLocator
from rlm.clock import SystemClock
from rlm.plans.fetch import ReadBounds
from rlm.reading.reader import RemoteReader
from rlm.reading.remote_index import RemoteIndex, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from rlm.reading.values import ReadLimits
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.threads import Threads
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.remote_segment import store_segment
from tests.builders.store import STORE_ID
from tests.kip405.batch_builder import batch
from tests.rlm.reading.index_truth import new_segment

_MIB = 1 << 20
_LIMITS = RemoteIndexLimits(
    rotation=Rotation(segment_bytes=_MIB, segment_ms=1 << 40), most_bytes=1 << 34
)


class _DelayedStore(LocalRemoteStorageManager):
    """Counts requests, and answers each after a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, shared=False)
        self.delay_s = 0.0
        self.ranges = self.indexes = 0

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        self.ranges += 1
        await asyncio.sleep(self.delay_s)
        return await super().fetch_log_segment(locator, byte_range)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        self.indexes += 1
        await asyncio.sleep(self.delay_s)
        return await super().fetch_indexes(locator)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstReads:
    """First reads of one kind; times in ms, requests per read and per GiB of a whole read."""

    files: str
    delay_ms: int
    median_ms: float
    p95_ms: float
    ranges_per_read: float
    indexes_per_read: float
    whole_requests_per_gib: float
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What so many segments take in memory, traced by Python; loading the files in s."""

    files: str
    segments: int
    memory_bytes: int
    disk_bytes: int
    load_s: float


def _log(size_bytes: int) -> bytes:
    """Batches whose size grows along the segment, from 1 KiB to 32 KiB."""
    parts, offset, size = list[bytes](), 0, 0
    while size < size_bytes:
        parts.append(batch(offset, 4, value=bytes(256 + 8_000 * size // size_bytes)))
        offset, size = offset + 4, size + len(parts[-1])
    return b"".join(parts)


async def _first_reads(
    folder: Path, store: _DelayedStore, segment: RemoteLogSegmentMetadata,
    files: str, given: argparse.Namespace, delay_ms: int,
) -> FirstReads:  # fmt: skip
    rng, taken_ms, store.delay_s = random.Random(1), [], delay_ms / 1000
    threads, ranges, indexes = Threads("reads", 2), 0, 0
    whole = 0.0
    try:
        for number in range(given.reads + 1):
            kept = RemoteIndex(RemoteIndexFiles(folder, _LIMITS, lambda: 0), threads)
            await kept.load()
            async with asyncio.TaskGroup() as tasks:
                reader = RemoteReader(
                    store=store, cluster_id=CLUSTER_ID, tasks=tasks, threads=threads,
                    clock=SystemClock(), limits=ReadLimits(memory_bytes=1 << 28),
                    remote_index=kept if files == "on" else None,
                )  # fmt: skip
                before, began = (store.ranges, store.indexes), time.perf_counter()
                first = rng.randrange(segment.next_offset) if number < given.reads else 0
                offset, most = first, 1 if number < given.reads else 1 << 40
                while offset < segment.next_offset:
                    bounds = ReadBounds(
                        offset=offset, upper_offset=1 << 62, max_bytes=most, at_least_one=True
                    )
                    found = await reader.read(segment, bounds, read_committed=True)
                    offset = found.next_offset
                    if number < given.reads:
                        break
                taken = (time.perf_counter() - began) * 1000
            asked = store.ranges - before[0], store.indexes - before[1]
            if number < given.reads:
                taken_ms.append(taken)
                ranges, indexes = ranges + asked[0], indexes + asked[1]
            else:
                whole = sum(asked) * (1 << 30) / segment.segment_size_bytes
    finally:
        threads.close()
    return FirstReads(
        files=files,
        delay_ms=delay_ms,
        median_ms=round(median(taken_ms), 2),
        p95_ms=round(sorted(taken_ms)[int(len(taken_ms) * 0.95)], 2),
        ranges_per_read=round(ranges / given.reads, 2),
        indexes_per_read=round(indexes / given.reads, 2),
        whole_requests_per_gib=round(whole, 1),
        load=load_in_words(),
    )


def _held(folder: Path, segments: int) -> Held:
    """What a service that begins holds of the files of so many segments of one partition."""
    rng = random.Random(1)
    files = RemoteIndexFiles(folder, _LIMITS, lambda: 0)
    for number in range(segments):
        one = new_segment(rng, number + 1, number * 100, number * 100 + 100)
        files.keep(one.metadata, one.indexes_object)
    tracemalloc.start()
    began = time.perf_counter()
    again = RemoteIndexFiles(folder, _LIMITS, lambda: 0)
    again.load()
    taken_s, (memory_bytes, _) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(again.partition_of) == segments
    return Held(
        files="on",
        segments=segments,
        memory_bytes=memory_bytes,
        disk_bytes=again.counts.file_bytes,
        load_s=round(taken_s, 3),
    )


def _parsed_bytes(segments: int, segment_bytes: int) -> Held:
    """What the cache of parsed indexes would weigh: Kafka's indexes, an entry for 4 KiB."""
    entries = segment_bytes // 4096
    sections = {
        IndexType.OFFSET: bytes(8 * entries),
        IndexType.TIMESTAMP: bytes(12 * entries),
        IndexType.CHUNK_CHECKSUMS: ChunkChecksums(
            chunk_size_bytes=_MIB, crcs=(crc32c(b""),) * (segment_bytes // _MIB)
        ).encode(),
    }
    size = len(build_indexes_object(sections))
    return Held(
        files="off", segments=segments, memory_bytes=size * segments, disk_bytes=0, load_s=0.0
    )


async def _run(given: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    runs: list[FirstReads | Held] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "store").mkdir()
        store = _DelayedStore(folder / "store")
        identity = StoreIdentity(store_id=STORE_ID, cluster_id=CLUSTER_ID, created_ms=0)
        await store.create_identity(identity)
        log = _log(given.segment_mib * _MIB)
        segment = await store_segment(store, folder, log, index_every=1, entry_bytes=_MIB)
        threads = Threads("keep", 1)
        kept = RemoteIndex(RemoteIndexFiles(folder, _LIMITS, lambda: 0), threads)
        (indexes,) = (folder / "store").rglob("*.indexes")
        kept.keep(segment, indexes.read_bytes())
        await kept.written()
        threads.close()
        for turn in range(given.passes):
            for delay_ms in (0, 100):
                for files in ("on", "off") if turn % 2 else ("off", "on"):
                    runs.append(await _first_reads(folder, store, segment, files, given, delay_ms))
                    say(str(runs[-1]))
        await store.close()
        runs.append(_held(folder / "many", given.segments))
        runs.append(_parsed_bytes(given.segments, 64 * _MIB))
        for one in runs[-2:]:
            say(str(one))
    options = ("segment_mib", "reads", "passes", "segments")
    return [], document(given, "remote-index", options, runs)


def main() -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.remote_index", __doc__)
    made.add_argument("--segment-mib", type=int, default=64, help="MiB of the segment (64)")
    made.add_argument("--reads", type=int, default=40, help="first reads of a kind (40)")
    made.add_argument("--passes", type=int, default=2)
    made.add_argument("--segments", type=int, default=10_000, help="segments held (10000)")
    given = made.parse_args()
    if given.quick:
        given.segment_mib, given.reads, given.passes, given.segments = 4, 4, 1, 100
    return measure(given, "remote-index", lambda: asyncio.run(_run(given)))


if __name__ == "__main__":
    sys.exit(main())
