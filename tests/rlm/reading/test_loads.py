"""Loads run in fair order within one memory bound; only the caller of a load gets its failure."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kip405.errors import Busy, Corrupt, Unavailable
from kip405.ids import Uuid
from rlm.clock import SystemClock
from rlm.reading.chunk_cache import ChunkCache
from rlm.reading.load_scheduler import Load, LoadScheduler, ReadMemory
from rlm.reading.values import ReadLimits

MEMORY = 8_000  # 1,000 of it for indexes
LIMITS = ReadLimits(memory_bytes=MEMORY, ranges_at_once=2, most_waiting=3)


class Bench:
    """Loads over a memory; each load waits until it is let go and notes when it began."""

    def __init__(self, tasks: asyncio.TaskGroup, limits: ReadLimits = LIMITS) -> None:
        self.tasks = tasks
        self.chunks = ChunkCache(limits.chunk_bytes)
        self.memory = ReadMemory(limits, self.chunks, lambda: 0)
        self.loads = LoadScheduler(
            tasks,
            self.memory,
            SystemClock(),
            at_once=limits.ranges_at_once,
            most_waiting=limits.most_waiting,
        )
        self.may_end = asyncio.Event()
        self.began: list[str] = []
        self.running = self.most = 0

    def load(
        self,
        name: str = "",
        *,
        reader: int = 1,
        size: int = 10,
        is_ahead: bool = False,
        holds_part: bool = False,
        error: BaseException | None = None,
    ) -> Load[str]:
        async def run(_: Load[str]) -> str:
            self.began.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.may_end.wait()
            finally:
                self.running -= 1
            if error is not None:
                raise error
            return name

        return Load(
            reader=reader, size_bytes=size, is_ahead=is_ahead, run=run, holds_part=holds_part
        )

    def submit(self, name: str = "", **how: Any) -> asyncio.Future[str]:
        return self.loads.submit(self.load(name, **how))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as tasks:
        made = Bench(tasks)
        yield made
        made.may_end.set()


async def steps(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_g10_some_run_some_wait_and_one_more_is_busy(bench: Bench) -> None:
    futures = [bench.submit() for _ in range(5)]
    with pytest.raises(Busy, match="3 remote reads"):
        bench.submit()
    bench.submit(is_ahead=True)  # no reader waits for it
    await steps()
    assert (bench.running, bench.loads.waiting_count) == (2, 3)
    bench.may_end.set()
    await asyncio.gather(*futures)
    await steps()
    assert bench.most == 2 and bench.loads.running_count == bench.loads.waiting_count == 0
    assert bench.memory.held_bytes == 0


@pytest.mark.parametrize("error", [Corrupt("bad"), RuntimeError("a bug")])
async def test_a_failure_goes_to_its_future_and_stops_nobody_else(
    bench: Bench, error: Exception
) -> None:
    good, bad = bench.submit("good"), bench.submit(error=error)
    unwatched = bench.submit(error=error)
    bench.may_end.set()
    with pytest.raises(type(error)):
        await bad
    assert await good == "good"
    await asyncio.wait([unwatched])
    await steps()
    assert bench.loads.running_count == bench.memory.held_bytes == 0


async def test_h24_a_load_that_breaks_off_is_not_taken_for_a_cancelled_asker(
    bench: Bench,
) -> None:
    bad, good = bench.submit(error=asyncio.CancelledError()), bench.submit("good")
    bench.may_end.set()
    with pytest.raises(Unavailable):
        await bad
    assert await good == "good"


@pytest.mark.parametrize("begun", [True, False])
async def test_when_the_owner_ends_nobody_waits_for_ever(begun: bool) -> None:
    waiting: list[asyncio.Future[str]] = []

    async def owner() -> None:
        async with asyncio.TaskGroup() as tasks:
            bench = Bench(tasks)
            waiting.extend(bench.submit() for _ in range(4))
            waiting.append(bench.submit(size=MEMORY * 2))  # there will never be room
            if begun:
                await steps()
            raise RuntimeError("the service ends")

    with pytest.raises(ExceptionGroup):
        await owner()
    done, _ = await asyncio.wait(waiting, timeout=60)
    assert len(done) == 5 and all(one.cancelled() for one in waiting)


async def test_room_that_is_lacking_is_reported_until_it_is_found(bench: Bench) -> None:
    first = bench.submit("first", size=MEMORY)
    assert bench.loads.lacking_bytes == 0
    second = bench.submit("second", size=3_000)
    await steps()
    assert (bench.began, bench.loads.lacking_bytes) == (["first"], 3_000)
    ahead = bench.submit("ahead", size=1_000, is_ahead=True)  # no reader waits for it
    assert bench.loads.lacking_bytes == 3_000
    bench.may_end.set()
    await asyncio.gather(first, second, ahead)
    await steps()
    assert bench.loads.lacking_bytes == 0


async def test_who_waits_overtakes_what_is_read_ahead(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.submit(name)
    ahead = [bench.load(name, is_ahead=True) for name in ("x", "y", "z")]
    for load in ahead:
        bench.loads.submit(load)
    bench.loads.want(ahead[2], 0)
    last = bench.submit("w", reader=2)
    bench.may_end.set()
    await last
    await asyncio.gather(*(load.future for load in ahead))
    assert bench.began == ["a", "b", "z", "w", "x", "y"]


async def test_what_is_read_ahead_for_a_reader_that_is_gone_ends(bench: Bench) -> None:
    running, waiting = bench.load("x", is_ahead=True), bench.load("y", is_ahead=True)
    wanted, others = bench.load("w", is_ahead=True), bench.load("o", reader=2, is_ahead=True)
    for load in (running, wanted, waiting, others):
        bench.loads.submit(load)
    bench.loads.want(wanted)
    await steps()
    bench.loads.forget(1)
    await steps()
    assert running.future.cancelled() and waiting.future.cancelled()
    bench.may_end.set()
    assert (await wanted.future, await others.future) == ("w", "o")
    await steps()
    assert bench.memory.held_bytes == 0


async def test_g10_loads_wait_for_room_and_reading_ahead_leaves_some() -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(tasks, replace(LIMITS, ranges_at_once=100))
        ahead = [bench.submit(f"a{n}", size=1_000, is_ahead=True) for n in range(10)]
        wanted = [bench.submit(f"w{n}", size=1_000, reader=2) for n in range(4)]
        await steps()
        assert bench.began == ["a0", "a1", "a2", "a3", "a4", "w0", "w1", "w2"]
        assert bench.memory.held_bytes == MEMORY
        bench.may_end.set()
        await asyncio.gather(*ahead, *wanted)


async def test_room_is_made_by_eviction_and_by_answers_that_were_sent() -> None:
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(tasks)
        for number in range(8):
            bench.chunks.put((Uuid(bytes(16)), number), bytes(1_000), 1, is_ahead=False)
        answers = [bench.chunks.get((Uuid(bytes(16)), number), 1) for number in range(8)]
        bench.may_end.set()
        load = bench.submit("w", size=1_000)
        await steps(50)
        assert bench.began == []
        answers.pop()  # it was sent
        async with asyncio.timeout(60):
            assert await load == "w"
        assert bench.chunks.kept_bytes == 7_000


async def test_a_read_that_holds_part_of_a_batch_gets_the_rest_one_at_a_time() -> None:
    """Else reads that hold all of the memory would wait for one another for ever."""
    async with asyncio.TaskGroup() as tasks:
        bench = Bench(tasks, replace(LIMITS, ranges_at_once=100))
        held = [bytes(1_000) for _ in range(8)]
        for number, data in enumerate(held):
            bench.chunks.put((Uuid(bytes(16)), number), data, 1, is_ahead=False)
        first, second = (bench.submit(name, size=1_000, holds_part=True) for name in "ab")
        await steps()
        assert bench.began == ["a"] and bench.memory.held_bytes == MEMORY + 1_000
        bench.may_end.set()
        async with asyncio.timeout(60):
            assert [await first, await second] == ["a", "b"]
        await steps()
        assert bench.memory.held_bytes == MEMORY


async def test_what_others_wait_for_does_not_wait_for_their_room(bench: Bench) -> None:
    """Ranges in flight wait for their segment's indexes: else all would wait for ever."""
    ranges = [bench.load(name, size=MEMORY // 2) for name in "ab"]
    for load in ranges:
        bench.loads.submit(load)
    others = LoadScheduler(bench.tasks, bench.memory, SystemClock(), at_once=1, most_waiting=1)
    indexes = bench.load("indexes", size=100, is_ahead=True)
    indexes.waits_for_room = False
    others.submit(indexes)
    await steps()
    assert bench.began == ["a", "b", "indexes"]
    assert bench.memory.held_bytes == MEMORY + 100
    bench.may_end.set()
    assert await indexes.future == "indexes"


async def test_g10_answers_leave_room_for_more_answers(bench: Bench) -> None:
    limits = [bench.memory.answer_bytes()]
    answers = []
    for number in range(7):
        bench.chunks.put((Uuid(bytes(16)), number), bytes(1_000), 1, is_ahead=False)
        answers.append(bench.chunks.get((Uuid(bytes(16)), number), 1))
        limits.append(bench.memory.answer_bytes())
    assert limits[0] == LIMITS.chunk_bytes // 4
    assert limits == sorted(limits, reverse=True) and limits[-1] == limits[0] // 64
    answers.clear()
    assert bench.memory.answer_bytes() == limits[0]
