"""A reader over real segments in a real local store, and what a client does with it."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

from kip405.batches import batch_headers
from kip405.contracts import StoreIdentity
from kip405.errors import NotFound
from kip405.indexes import AbortedTransaction
from kip405.segments import (
    ByteRange,
    FileSlice,
    RemoteLogSegmentMetadata,
    SegmentLocator,
)
from rlm.clock import SystemClock
from rlm.plans.fetch import ReadBounds
from rlm.reading.cursors import Following
from rlm.reading.reader import RemoteReader
from rlm.reading.remote_index import RemoteIndex
from rlm.reading.values import ReadLimits
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.threads import Threads
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.remote_segment import store_segment
from tests.builders.store import STORE_ID
from tests.kip405.batch_builder import batch, legacy

CHUNK = 512
IDENTITY = StoreIdentity(store_id=STORE_ID, cluster_id=CLUSTER_ID, created_ms=0)
ALL = 1 << 30


class CountingStore(LocalRemoteStorageManager):
    """Counts what is fetched; `gate` holds log fetches up, `glitches` fail that many fetches."""

    def __init__(self, root: Path, *, shared: bool = True) -> None:
        super().__init__(root, shared=shared)
        self.ranges: list[tuple[int, int]] = []
        self.indexes_fetched = 0
        self.glitches = 0
        self.gate, self.indexes_gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.indexes_gate.set()

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        self.ranges.append((byte_range.start, byte_range.end))
        await self.gate.wait()
        if self.glitches:
            self.glitches -= 1
            raise NotFound("a glitch")
        return await super().fetch_log_segment(locator, byte_range)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        self.indexes_fetched += 1
        await self.indexes_gate.wait()
        return await super().fetch_indexes(locator)

    def object(self, suffix: str) -> Path:
        (found,) = self.folder.rglob(f"*{suffix}")
        return found


class Bench:
    """A reader over a store; `pool` and `store` are there to look at."""

    def __init__(self, root: Path, tasks: asyncio.TaskGroup, threads: Threads) -> None:
        self.root = root
        self.tasks = tasks
        self.threads = threads
        (root / "store").mkdir()
        self.store = CountingStore(root / "store")

    async def use_store(self, *, shared: bool) -> None:
        """The same store, over a shared volume or not."""
        await self.store.close()
        self.store = CountingStore(self.root / "store", shared=shared)

    def reader(
        self, limits: ReadLimits | None = None, remote_index: RemoteIndex | None = None
    ) -> RemoteReader:
        self.made = RemoteReader(
            store=self.store,
            cluster_id=CLUSTER_ID,
            tasks=self.tasks,
            threads=self.threads,
            clock=SystemClock(),
            limits=limits or ReadLimits(memory_bytes=ALL),
            remote_index=remote_index,
        )
        return self.made

    async def until_fetching(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.store.ranges) < count:  # noqa: ASYNC110 - the store has no event
                await asyncio.sleep(0.001)

    async def is_idle(self) -> None:
        async with asyncio.timeout(60):
            while self.made.range_scheduler.running_count:  # noqa: ASYNC110 - the loads have no event
                await asyncio.sleep(0.001)

    async def stored(
        self,
        log: bytes,
        *,
        chunk: int = CHUNK,
        aborted: tuple[AbortedTransaction, ...] = (),
        number: int = 1,
        index_every: int = 3,
        entry_bytes: int | None = None,
    ) -> RemoteLogSegmentMetadata:
        return await store_segment(
            self.store,
            self.root,
            log,
            chunk_size_bytes=chunk,
            aborted=aborted,
            number=number,
            index_every=index_every,
            entry_bytes=entry_bytes,
        )


def mixed_log(batches: int = 40, seed: int = 1) -> bytes:
    """Plain, compressed and old batches with gaps and timestamps that go to and fro."""
    rng, data, offset = random.Random(seed), b"", 100
    for _ in range(batches):
        offset += rng.choice((0, 0, 0, 2))
        first_ms = rng.randrange(1_000, 3_000)
        count = rng.choice((1, 2, 5))
        if rng.random() < 0.15:
            data += legacy(offset, magic=1, timestamp_ms=first_ms)
            offset += 1
            continue
        data += batch(
            offset,
            count,
            first_ms=first_ms,
            value=rng.randbytes(rng.choice((0, 20, 300, 900))),
            compression=rng.choice((0, 0, 1, 2, 3, 4)),
        )
        offset += count
    return data


def bounds(offset: int, max_bytes: int = ALL, upper_offset: int = 2**62) -> ReadBounds:
    return ReadBounds(
        offset=offset, upper_offset=upper_offset, max_bytes=max_bytes, at_least_one=True
    )


def expected(log: bytes, asked: ReadBounds) -> tuple[bytes, int]:
    """Bytes and next offset, from the whole log."""
    taken, next_offset = b"", asked.offset
    for at, header in batch_headers(log):
        if header.last_offset < asked.offset:
            continue
        too_much = len(taken) + header.size_bytes > asked.max_bytes
        if header.last_offset >= asked.upper_offset or (taken and too_much):
            break
        taken += log[at : at + header.size_bytes]
        next_offset = header.last_offset + 1
    return taken, next_offset


async def read(
    reader: RemoteReader,
    segment: RemoteLogSegmentMetadata,
    asked: ReadBounds,
    following: Following | None = None,
) -> tuple[bytes, int]:
    """Read on until there is no more for these bounds, as a client does."""
    got, next_offset = b"", asked.offset
    while True:
        rest = replace(
            asked,
            offset=next_offset,
            max_bytes=asked.max_bytes - len(got),
            at_least_one=asked.at_least_one and not got,
        )
        found = await reader.read(segment, rest, read_committed=False, following=following)
        data = b"".join(found.records)
        assert len(data) == found.size_bytes and found.aborted == ()
        if not data:
            return got, next_offset
        got, next_offset = got + data, found.next_offset


def nothing_follows(_: int) -> None:
    """The segment is the last one."""


def plain_log(batches: int = 200) -> bytes:
    """Batches of one size, some four to a chunk."""
    return b"".join(batch(base, 1, value=b"v" * 60) for base in range(batches))
