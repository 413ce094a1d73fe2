"""Slots of copies: what a segment takes, in which order, and what a cancelled copy gives back."""

import asyncio

import pytest

from rlm.tasks.copy_slots import CopyLimit, CopySlots

WHOLE = 100


@pytest.mark.parametrize(
    ("size_bytes", "quarters"), [(0, 1), (24, 1), (25, 2), (74, 3), (99, 4), (100, 4), (1000, 4)]
)
def test_a_segment_takes_by_its_size(size_bytes: int, quarters: int) -> None:
    assert CopyLimit(slots=1, whole_slot_bytes=WHOLE).quarters(size_bytes) == quarters


async def taken(slots: CopySlots, *sizes: int) -> list["asyncio.Task[None]"]:
    tasks = [asyncio.ensure_future(slots.take(size)) for size in sizes]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def done(tasks: list["asyncio.Task[None]"]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_small_segments_share_a_slot_and_large_ones_do_not() -> None:
    slots = CopySlots(CopyLimit(slots=2, whole_slot_bytes=WHOLE))
    tasks = await taken(slots, 1, 1, 1, 1, WHOLE, WHOLE)
    assert done(tasks) == [True] * 5 + [False]
    slots.give_back(WHOLE)
    await tasks[-1]


async def test_a_large_segment_is_not_overtaken_by_small_ones() -> None:
    slots = CopySlots(CopyLimit(slots=1, whole_slot_bytes=WHOLE))
    tasks = await taken(slots, 1, WHOLE, 1)
    assert done(tasks) == [True, False, False]
    slots.give_back(1)
    await tasks[1]
    assert not tasks[2].done()
    slots.give_back(WHOLE)
    await tasks[2]


async def test_g10_a_cancelled_attempt_keeps_nothing() -> None:
    slots = CopySlots(CopyLimit(slots=1, whole_slot_bytes=WHOLE))
    first, waits, last = await taken(slots, WHOLE, WHOLE, 1)
    assert first.done()
    slots.give_back(WHOLE)  # `waits` has it now
    waits.cancel()  # before it has run
    await last
    assert waits.cancelled() or not waits.done()
    slots.give_back(1)
    async with slots.share(WHOLE):
        pass
    await asyncio.wait_for(slots.take(WHOLE), 60)


async def test_who_waits_behind_a_cancelled_attempt_is_served() -> None:
    slots = CopySlots(CopyLimit(slots=1, whole_slot_bytes=WHOLE))
    _, large, small = await taken(slots, 1, WHOLE, 1)
    large.cancel()
    await asyncio.wait_for(small, 60)


async def test_more_slots_let_in_who_waits_and_fewer_wait_for_what_is_taken() -> None:
    slots = CopySlots(CopyLimit(slots=1, whole_slot_bytes=WHOLE))
    tasks = await taken(slots, WHOLE, WHOLE, WHOLE)
    assert done(tasks) == [True, False, False]
    slots.change(2)
    await tasks[1]
    assert done(tasks) == [True, True, False]
    slots.change(1)
    slots.give_back(WHOLE)
    await asyncio.sleep(0)
    assert not tasks[2].done(), "one is still taken, which is as many as there are"
    slots.give_back(WHOLE)
    await tasks[2]
