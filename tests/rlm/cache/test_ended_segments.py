"""No cache keeps chunks of a segment whose deletion is over (docs/erasure.md)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kip405.ids import Uuid
from rlm.reading.chunk_cache import ChunkCache, ChunkKey
from rlm.reading.disk_cache import DiskCache
from rlm.reading.ended_segments import CHECK_EVERY_MS, CachedChunks, EndedSegments
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.records import NO_PREVIOUS
from tests.builders.clock import ManualClock
from tests.builders.metadata_log import FakeMetadataLog, FakeTopics
from tests.rlm.cache.test_disk import opened, settled
from tests.rlmm.builders import DELETED, DELETING, FINISHED, STARTED, segment, uuid

CHUNKS = 3
EPOCH = 5


class Service:
    """The ledger of one process, and what it caches in memory."""

    def __init__(self, topics: FakeTopics) -> None:
        self.log = FakeMetadataLog(topics)
        self.manager = TopicBasedRemoteLogMetadataManager(
            log=self.log, writer=uuid(9), publish_timeout_ms=1_000
        )
        self.log.go_live(0)
        self.memory = ChunkCache(1 << 20)
        self.clock = ManualClock()
        self.is_ready = asyncio.Event()

    async def copied(self, *numbers: int) -> None:
        for number in numbers:
            await self.manager.publish(segment(number, STARTED), EPOCH, NO_PREVIOUS)
            await self.manager.publish(segment(number, FINISHED), EPOCH, int(STARTED))

    async def deleted(self, number: int) -> None:
        await self.manager.publish(segment(number, DELETING), EPOCH, int(FINISHED))
        await self.manager.publish(segment(number, DELETED), EPOCH, int(DELETING))

    def read(self, number: int, disk: DiskCache, *, is_ahead: bool = False) -> None:
        """What a read leaves in the caches."""
        for chunk in range(CHUNKS):
            key = (uuid(number), chunk)
            self.memory.put(key, content(key), 1, is_ahead=is_ahead)
            disk.write(key, content(key))

    def ended(self, *caches: CachedChunks) -> EndedSegments:
        return EndedSegments(
            caches,
            wait_ready=self.is_ready.wait,
            finished_ids=self.manager.finished_ids,
            clock=self.clock,
        )


def content(key: ChunkKey) -> bytes:
    return b"segment %d, " % int.from_bytes(key[0].raw, "big") * 100


def on_disk(folder: Path, number: int) -> bool:
    """Whether any file has bytes of the segment, whatever its name."""
    found = [one.read_bytes() for one in folder.rglob("*") if one.is_file()]
    return any(b"segment %d, " % number in data for data in found)


def ids(keys: Sequence[ChunkKey]) -> set[Uuid]:
    return {segment_id for segment_id, _ in keys}


@asynccontextmanager
async def cached(folder: Path, *numbers: int) -> AsyncIterator[tuple[Service, DiskCache]]:
    """These segments are in the store and in both caches."""
    service = Service(FakeTopics())
    await service.copied(*numbers)
    async with opened(folder, 1 << 20) as disk:
        for number in numbers:
            service.read(number, disk, is_ahead=number % 2 == 0)
        await settled(disk)
        assert all(on_disk(folder, number) for number in numbers)
        yield service, disk


async def test_after_a_deletion_no_cache_has_bytes_of_the_segment(tmp_path: Path) -> None:
    async with cached(tmp_path, 1, 2, 3) as (service, disk):
        ended = service.ended(service.memory, disk)
        await ended.check()
        await settled(disk)
        assert all(on_disk(tmp_path, number) for number in (1, 2, 3)), "nothing has ended"
        for number in (1, 2):
            await service.deleted(number)
        await ended.check()
        await settled(disk)
        assert [on_disk(tmp_path, number) for number in (1, 2, 3)] == [False, False, True]
        assert ids(service.memory.keys()) == ids(disk.keys()) == {uuid(3)}
        assert service.memory.kept_bytes == CHUNKS * len(content((uuid(3), 0)))
        assert service.memory.ahead_bytes == 0


async def test_what_ended_while_no_service_ran_goes_as_well(tmp_path: Path) -> None:
    """The ledger has no record of it any more."""
    async with cached(tmp_path, 1, 2):
        pass
    following = Service(FakeTopics())
    await following.copied(2)
    async with opened(tmp_path, 1 << 20) as disk:
        await following.ended(following.memory, disk).check()
        await settled(disk)
        assert [on_disk(tmp_path, number) for number in (1, 2)] == [False, True]


async def test_what_is_being_sent_goes_at_the_next_check(tmp_path: Path) -> None:
    async with cached(tmp_path, 1) as (service, disk):
        ended = service.ended(service.memory, disk)
        sent = memoryview(service.memory.get((uuid(1), 0), 1) or b"")
        await service.deleted(1)
        await ended.check()
        assert service.memory.keys() == ((uuid(1), 0),)
        sent.release()
        await ended.check()
        assert (service.memory.keys(), service.memory.kept_bytes) == ((), 0)


async def test_it_checks_each_minute_once_the_ledger_was_read(tmp_path: Path) -> None:
    """Before, every segment would seem to be gone. What a late read brings back goes again."""

    class Pauses(ManualClock):
        def __init__(self) -> None:
            super().__init__()
            self.pauses: asyncio.Queue[float] = asyncio.Queue()
            self.goes_on = asyncio.Semaphore(0)

        async def sleep_ms(self, duration_ms: float) -> None:
            if duration_ms:
                self.pauses.put_nowait(duration_ms)
                await self.goes_on.acquire()

    async with cached(tmp_path, 1) as (service, disk):
        service.clock = clock = Pauses()
        await service.deleted(1)
        running = asyncio.ensure_future(service.ended(service.memory, disk).run())
        for _ in range(10):
            await asyncio.sleep(0)
        assert service.memory.keys()
        service.is_ready.set()
        async with asyncio.timeout(60):
            for _ in range(2):
                assert await clock.pauses.get() == CHECK_EVERY_MS
                await settled(disk)
                assert not on_disk(tmp_path, 1)
                assert not service.memory.keys()
                service.read(1, disk)
                await settled(disk)
                clock.goes_on.release()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_large_ledger_is_compared_in_slices() -> None:
    class Turns(ManualClock):
        turns = 0

        async def sleep_ms(self, duration_ms: float) -> None:
            self.turns += 1

    clock, memory = Turns(), ChunkCache(1 << 20)
    memory.put((uuid(1), 0), bytes(100), 1, is_ahead=False)
    parts = [{uuid(number * 100 + one).raw for one in range(2, 102)} for number in range(1_000)]
    ended = EndedSegments(
        [memory],
        wait_ready=asyncio.Event().wait,
        finished_ids=lambda: iter(parts),
        clock=clock,
    )
    await ended.check()
    assert memory.keys() == ()
    assert clock.turns >= 100_000 / 10_000
