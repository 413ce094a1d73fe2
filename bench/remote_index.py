"""`python -m bench.remote_index`: first records of unknown segments with and without index files.

In one process, over a local store whose every read is delayed, as another machine's would be. Each
first read has a reader with nothing in memory; offsets are random, and record sizes grow along a
segment, so that a position cannot be guessed from an offset alone. Passes with and without
alternate, and every value is kept. Memory is the RSS that a process of its own gains when it reads
the indexes of so many segments of 64 MiB through the cache of a service (32 MiB), by the files or
by indexes objects.
"""

import argparse
import asyncio
import dataclasses
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from kip405.contracts import IndexType, StoreIdentity
from kip405.crc import crc32c
from kip405.ids import Uuid
from kip405.indexes import ChunkChecksums, build_indexes_object, encode_aborted
from kip405.remote_index import RemoteLogIndexEntry, rdi_of
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    FileSlice,
    RemoteLogSegmentMetadata,
    SegmentLocator,
)
from rlm.clock import SystemClock
from rlm.plans.fetch import ReadBounds
from rlm.reading.chunk_cache import SingleFlightCache
from rlm.reading.reader import RemoteReader
from rlm.reading.remote_index import RemoteIndex, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from rlm.reading.segment_indexes import SegmentIndexes
from rlm.reading.values import ReadLimits
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.threads import Threads
from tests.builders.ledger import metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.remote_segment import store_segment
from tests.builders.store import STORE_ID
from tests.kip405.batch_builder import batch

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
    raw_ms: list[float]
    ranges_per_read: float
    indexes_per_read: float
    whole_requests_per_gib: float
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What so many segments take: RSS gained, of it before any read, and bytes of the files; `load`
    of the files in s.
    """

    files: str
    segments: int
    gained_rss_bytes: int
    gained_before_reads_bytes: int
    file_bytes: int
    load_s: float


def _log(size_bytes: int) -> bytes:
    """Batches whose size grows along the segment, from 1 KiB to 32 KiB."""
    parts, offset, size = list[bytes](), 0, 0
    while size < size_bytes:
        parts.append(batch(offset, 4, value=bytes(256 + 8_000 * size // size_bytes)))
        offset, size = offset + 4, size + len(parts[-1])
    return b"".join(parts)


def _nothing_follows(_: int) -> None:
    """The segment is the last one; it is read ahead to its end."""


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
                    found = await reader.read(
                        segment, bounds, read_committed=True,
                        following=_nothing_follows if number == given.reads else None,
                    )  # fmt: skip
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
        raw_ms=[round(one, 2) for one in taken_ms],
        p95_ms=round(sorted(taken_ms)[int(len(taken_ms) * 0.95)], 2),
        ranges_per_read=round(ranges / given.reads, 2),
        indexes_per_read=round(indexes / given.reads, 2),
        whole_requests_per_gib=round(whole, 1),
        load=load_in_words(),
    )


def _segment(number: int) -> tuple[RemoteLogSegmentMetadata, bytes]:
    """A segment of 64 MiB with Kafka's indexes, an entry for 4 KiB, and one of ours for a MiB."""
    count, start = 64, number * 64_000
    name = f"store/{CLUSTER_ID}/topic/0/{start:020d}-{number:022d}.log"
    entries = b"".join(
        RemoteLogIndexEntry(
            first_offset=start + at * 1_000, last_offset=start + at * 1_000 + 999,
            first_timestamp_ms=start + at, last_timestamp_ms=start + at,
            data_size_bytes=_MIB, rdi=rdi_of(name, at * _MIB),
        ).encode()
        for at in range(count)
    )  # fmt: skip
    indexes = build_indexes_object(
        {
            IndexType.OFFSET: bytes(8 * 256 * count),
            IndexType.TIMESTAMP: bytes(12 * 256 * count),
            IndexType.ABORTED_TRANSACTIONS: encode_aborted(()),
            IndexType.CHUNK_CHECKSUMS: ChunkChecksums(
                chunk_size_bytes=_MIB, crcs=(0,) * count
            ).encode(),
            IndexType.REMOTE_LOG_INDEX: entries,
        }
    )
    custom = CustomMetadata(
        store_id=STORE_ID, indexes_size_bytes=len(indexes), indexes_crc32c=crc32c(indexes)
    )
    made = metadata(number + 1, start, start + 64_000, {0: start})
    return (
        replace(made, segment_size_bytes=count * _MIB, custom_metadata=custom.encode()),
        indexes,
    )


def _held(folder: Path, files: str, segments: int) -> Held:
    """In a process of its own; the files are there."""
    limits = ReadLimits(memory_bytes=1 << 28)
    cache: SingleFlightCache[Uuid, SegmentIndexes] = SingleFlightCache(
        capacity_bytes=limits.index_bytes,
        weigh=lambda one: one.size_bytes + limits.index_objects_bytes,
    )
    _segment(0)
    gc.collect()
    before = psutil.Process().memory_info().rss
    began, kept = time.perf_counter(), RemoteIndexFiles(folder, _LIMITS, lambda: 0)
    if files == "on":
        kept.load()
    load_s = time.perf_counter() - began
    loaded = psutil.Process().memory_info().rss
    for number in range(segments):
        segment, data = _segment(number)
        found = kept.indexes(segment) if files == "on" else SegmentIndexes.parse(data, segment)
        assert found is not None
        cache.put(segment.segment_id.id, found, 1)
    gc.collect()
    return Held(
        files=files,
        segments=segments,
        gained_rss_bytes=psutil.Process().memory_info().rss - before,
        gained_before_reads_bytes=loaded - before,
        file_bytes=kept.counts.file_bytes,
        load_s=round(load_s, 3),
    )


def _held_by_processes(folder: Path, segments: int) -> list[Held]:
    files = RemoteIndexFiles(folder, _LIMITS, lambda: 0)
    for number in range(segments):
        files.keep(*_segment(number))
    found = []
    for chosen in ("off", "on"):
        command = [sys.executable, "-m", "bench.remote_index", "--held", chosen]
        command += ["--folder", str(folder), "--segments", str(segments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(Held(**json.loads(done.stdout)))
    return found


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
        runs += await asyncio.to_thread(_held_by_processes, folder / "many", given.segments)
        for one in runs[-2:]:
            say(str(one))
    options = ("segment_mib", "reads", "passes", "segments")
    return [], document(given, "remote-index", options, runs)


def main() -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.remote_index", __doc__)
    made.add_argument("--segment-mib", type=int, default=64, help="MiB of the segment (64)")
    made.add_argument("--reads", type=int, default=15, help="first reads of a kind (15)")
    made.add_argument("--passes", type=int, default=6, help="pairs with and without (6)")
    made.add_argument("--held", choices=("on", "off"), help=argparse.SUPPRESS)
    made.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    made.add_argument("--segments", type=int, default=10_000, help="segments held (10000)")
    given = made.parse_args()
    if given.quick:
        given.segment_mib, given.reads, given.passes, given.segments = 4, 4, 1, 100
    if given.held:
        held = _held(given.folder, given.held, given.segments)
        print(json.dumps(dataclasses.asdict(held)))
        return 0
    return measure(given, "remote-index", lambda: asyncio.run(_run(given)))


if __name__ == "__main__":
    sys.exit(main())
