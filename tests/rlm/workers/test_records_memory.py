"""The bound of what a worker holds of remote records (G10, H36)."""

import asyncio
import gc
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import pytest

from rlm.proxy.begun import begin
from rlm.workers.records_memory import RecordsMemory, Room
from tests.rlm.workers.wires import Received, written

BOUND = 100
MIB = 1 << 20


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
    (await asyncio.wait_for(large, 60)).release()
    assert memory.held_bytes == 0


async def test_h36_what_was_read_counts_until_nobody_refers_to_it() -> None:
    memory = RecordsMemory(BOUND)
    room = await memory.reserve(80)
    raw = memory.take(30)
    assert memory.held_bytes == 110  # it may come whole, and be of another size
    room.release()
    assert memory.held_bytes == 30
    waiting = asyncio.ensure_future(memory.reserve(90))
    part = raw[0][10:20]
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
    raw = memory.take(BOUND)
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
    raw = memory.take(30)
    room.release()
    await asyncio.wait_for(waiting, 60)
    assert memory.held_bytes == BOUND
    assert raw


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
    held: list[list[memoryview]] = []

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
                room = task.result()
                held.append(memory.take(chance.randint(0, size_bytes)))
                room.release()
        assert 0 <= memory.held_bytes <= BOUND
        assert sum(len(view) for raw in held for view in raw) <= memory.held_bytes
    for _, task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            (await task).release()
    held.clear()
    assert (memory.held_bytes, memory.lacking_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("size_bytes", "pieces", "held_bytes"),
    [
        (0, [], 0),
        (1, [1], 1),
        (MIB * 3 // 4 - 1, [MIB * 3 // 4 - 1], MIB * 3 // 4 - 1),
        (MIB * 3 // 4, [MIB * 3 // 4], MIB),
        (MIB - 1, [MIB - 1], MIB),
        (MIB, [MIB], MIB),
        (MIB + 1, [MIB, 1], MIB + 1),
        (3 * MIB + 900_000, [MIB, MIB, MIB, 900_000], 4 * MIB),
    ],
)
async def test_h36_a_slot_counts_whole_and_less_than_one_as_it_is(
    size_bytes: int, pieces: list[int], held_bytes: int
) -> None:
    memory = RecordsMemory(64 * MIB)
    raw = memory.take(size_bytes)
    assert [len(piece) for piece in raw] == pieces
    assert memory.held_bytes == held_bytes
    in_slots = memory.slots.mapped_bytes - memory.slots.free_bytes
    assert 0 <= held_bytes - in_slots < MIB * 3 // 4
    room = await memory.reserve(size_bytes)  # as much as it may take
    del raw
    assert memory.held_bytes == held_bytes
    room.release()
    assert memory.held_bytes == 0


def test_h36_each_piece_is_given_back_by_itself() -> None:
    memory = RecordsMemory(64 * MIB)
    raw = memory.take(3 * MIB)
    del raw[0]
    assert memory.held_bytes == 2 * MIB
    del raw[0], raw[0]
    assert memory.held_bytes == 0


def test_h36_an_answer_of_any_size_leaves_no_more_memory_than_is_kept_for_others() -> None:
    memory = RecordsMemory(64 * MIB)
    raw = memory.take(200 * MIB)
    assert memory.slots.resident_bytes == 200 * MIB
    del raw
    assert memory.slots.resident_bytes == 32 * MIB
    assert memory.held_bytes == 0


@pytest.mark.parametrize("seed", range(10))
async def test_h36_nothing_is_held_once_all_is_gone_whatever_the_order(seed: int) -> None:
    """Answers that come in pieces, are kept in parts, or break off with their connection."""
    chance = random.Random(seed)
    memory, kept = RecordsMemory(64 * MIB), list[memoryview]()
    for _ in range(4):
        one = Received(memory.take)
        sizes = [chance.choice((0, 9, 70_000, MIB - 9, MIB, 3 * MIB)) for _ in range(6)]
        frames = [(b"m" * chance.randint(0, 90), chance.randbytes(size)) for size in sizes]
        data = written(*frames)
        one.feed(data[: chance.randint(0, len(data))], [chance.randint(1, 400_000)] * 99)
        assert one.frames == frames[: len(one.frames)]
        kept += [
            view[len(view) // 3 :] for raw in one.raws for view in raw if chance.random() < 0.4
        ]
        one.raws.clear()
        chance.shuffle(kept)
        del kept[len(kept) // 2 :]
        if chance.random() < 0.5:
            one.link.close()
        else:
            one.link.connection_lost(None)
        assert memory.held_bytes >= sum(map(len, kept))
    kept.clear()
    assert memory.held_bytes == 0
    assert memory.slots.free_bytes == memory.slots.mapped_bytes
