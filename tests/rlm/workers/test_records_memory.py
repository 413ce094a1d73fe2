"""The bound of what a worker holds of remote records (G10, H36)."""

import asyncio
import gc
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import pytest

from rlm.proxy.begun import begin
from rlm.workers.frames import RawBytes
from rlm.workers.records_memory import RecordsMemory, Room

BOUND = 100


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_read_that_fits_does_not_wait() -> None:
    memory = RecordsMemory(BOUND)
    await asyncio.wait_for(memory.reserve(60), 60)
    await asyncio.wait_for(memory.reserve(40), 60)
    assert (memory.held_bytes, memory.lacking_bytes) == (100, 0)


async def test_h36_reads_beyond_the_bound_wait_in_the_order_of_their_calls() -> None:
    memory = RecordsMemory(BOUND)
    first = await memory.reserve(100)
    order: list[int] = []

    async def read(size_bytes: int) -> Room:
        room = await memory.reserve(size_bytes)
        order.append(size_bytes)
        return room

    tasks = [asyncio.ensure_future(read(size)) for size in (70, 20, 10, 5)]
    await turns()
    assert memory.lacking_bytes == 105
    first.release()
    await turns()
    assert order == [70, 20, 10]  # a small one behind a large one does not pass it
    assert (memory.held_bytes, memory.lacking_bytes) == (100, 5)
    (await tasks[0]).release()
    await turns()
    assert order == [70, 20, 10, 5]


async def test_a_small_read_does_not_pass_one_that_waits() -> None:
    memory = RecordsMemory(BOUND)
    await memory.reserve(60)
    large, small = (asyncio.ensure_future(memory.reserve(size)) for size in (50, 10))
    await turns()
    assert not small.done()
    large.cancel()
    await turns()
    assert small.done()


async def test_one_read_may_be_larger_than_the_bound_when_nothing_else_is_held() -> None:
    memory = RecordsMemory(BOUND)
    small = await memory.reserve(1)
    large = asyncio.ensure_future(memory.reserve(10 * BOUND))
    await turns()
    assert not large.done()
    small.release()
    (await asyncio.wait_for(large, 5)).release()
    assert memory.held_bytes == 0


async def test_h36_what_was_read_counts_until_nobody_refers_to_it() -> None:
    memory = RecordsMemory(BOUND)
    room = await memory.reserve(80)
    raw = RawBytes(30)
    room.hold(raw)
    room.release()
    assert memory.held_bytes == 30
    waiting = asyncio.ensure_future(memory.reserve(90))
    part = memoryview(raw)[10:20]
    del raw
    await turns()
    assert (memory.held_bytes, waiting.done()) == (30, False)
    del part
    gc.collect()
    await asyncio.wait_for(waiting, 60)
    assert memory.held_bytes == 90


async def test_h36_the_bound_holds_while_a_read_changes_from_reserved_to_held() -> None:
    memory = RecordsMemory(BOUND)
    room = await memory.reserve(BOUND)
    waiting = asyncio.ensure_future(memory.reserve(BOUND))
    await turns()
    raw = RawBytes(BOUND)
    room.hold(raw)
    room.release()
    await turns()
    assert (memory.held_bytes, waiting.done()) == (BOUND, False)
    del raw
    await asyncio.wait_for(waiting, 60)


async def test_a_read_that_got_less_than_it_reserved_makes_room() -> None:
    memory = RecordsMemory(BOUND)
    room = await memory.reserve(BOUND)
    waiting = asyncio.ensure_future(memory.reserve(70))
    await turns()
    raw = RawBytes(30)
    room.hold(raw)
    await asyncio.wait_for(waiting, 60)
    assert memory.held_bytes == BOUND


async def test_a_waiter_that_is_cancelled_takes_nothing_and_holds_nobody() -> None:
    memory = RecordsMemory(BOUND)
    first = await memory.reserve(BOUND)
    cancelled, other = (asyncio.ensure_future(memory.reserve(BOUND)) for _ in range(2))
    await turns()
    cancelled.cancel()
    await turns()
    assert memory.lacking_bytes == BOUND
    first.release()
    await asyncio.wait_for(other, 60)
    assert (memory.held_bytes, memory.lacking_bytes) == (BOUND, 0)


async def test_h36_a_wait_that_was_begun_and_is_dropped_takes_nothing() -> None:
    """As that of a fetch whose task is cancelled before its first step."""
    memory = RecordsMemory(BOUND)
    first = await memory.reserve(BOUND)
    begun = begin(memory.reserve(80))
    assert memory.lacking_bytes == 80
    del begun
    gc.collect()
    first.release()
    assert (memory.held_bytes, memory.lacking_bytes) == (0, 0)


@pytest.mark.parametrize("release_first", [True, False])
async def test_a_waiter_that_is_cancelled_while_its_room_comes(release_first: bool) -> None:
    memory = RecordsMemory(BOUND)
    first = await memory.reserve(BOUND)
    waiting = asyncio.ensure_future(memory.reserve(BOUND))
    await turns()
    acts: list[Callable[[], object]] = [first.release, waiting.cancel]
    for act in acts if release_first else reversed(acts):
        act()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (memory.held_bytes, memory.lacking_bytes) == (0, 0)
    await asyncio.wait_for(memory.reserve(BOUND), 60)


@pytest.mark.parametrize("seed", range(20))
async def test_h36_the_bound_holds_for_any_order_of_events(seed: int) -> None:
    chance = random.Random(seed)
    memory = RecordsMemory(BOUND)
    tasks: deque[tuple[int, asyncio.Future[Room]]] = deque()
    held: list[RawBytes] = []

    for _ in range(300):
        act = chance.randrange(5)
        if act == 0:
            size_bytes = chance.randint(1, BOUND)
            tasks.append((size_bytes, asyncio.ensure_future(memory.reserve(size_bytes))))
        elif act == 1 and tasks:
            chance.choice(tasks)[1].cancel()
        elif act == 2 and held:
            held.pop(chance.randrange(len(held)))
        elif act == 3:
            await asyncio.sleep(0)
        elif tasks and tasks[0][1].done():
            size_bytes, task = tasks.popleft()
            with suppress(asyncio.CancelledError):
                raw = RawBytes(chance.randint(0, size_bytes))
                task.result().hold(raw)
                held.append(raw)
                del raw
        assert 0 <= memory.held_bytes <= BOUND
        assert sum(map(len, held)) <= memory.held_bytes
    for _, task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            (await task).release()
    held.clear()
    assert (memory.held_bytes, memory.lacking_bytes) == (0, 0)
