"""Work that need not wait ends at once; other work goes on in its awaiter, as in a task."""

import asyncio
import gc

import pytest

from rlm.proxy.begun import Begun, begin


async def ready(value: int) -> int:
    return value


async def failing() -> int:
    raise ValueError("at once")


async def test_work_that_need_not_wait_ends_at_once() -> None:
    assert begin(ready(5)) == 5
    with pytest.raises(ValueError, match="at once"):
        begin(failing())


async def test_work_goes_on_where_it_waited() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    steps = []

    async def work() -> int:
        steps.append("begun")
        found = await first
        await asyncio.sleep(0)
        steps.append("gone on")
        return found + await ready(1)

    begun = begin(work())
    assert isinstance(begun, Begun) and steps == ["begun"]
    waiting = asyncio.ensure_future(wait_for(begun))
    await asyncio.sleep(0)
    assert steps == ["begun"]
    first.set_result(6)
    assert await waiting == 7 and steps == ["begun", "gone on"]


async def wait_for(begun: Begun[int]) -> int:
    return await begun


async def test_work_that_waited_for_what_was_ready_meanwhile_goes_on() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await first

    begun = begin(work())
    first.set_result(3)
    assert isinstance(begun, Begun)
    assert await begun == 3


@pytest.mark.parametrize("first_waits", [True, False])
async def test_cancelling_the_awaiter_cancels_the_work(*, first_waits: bool) -> None:
    seen = []

    async def work() -> int:
        try:
            await asyncio.sleep(0 if not first_waits else 60)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return 1

    begun = begin(work())
    assert isinstance(begun, Begun)
    task = asyncio.ensure_future(wait_for(begun))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_work_may_answer_a_cancellation() -> None:
    async def work() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 9
        return 1

    begun = begin(work())
    assert isinstance(begun, Begun)
    task = asyncio.ensure_future(wait_for(begun))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 9


async def test_an_error_after_the_first_step_is_the_awaiters() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        raise ValueError("later")

    begun = begin(work())
    assert isinstance(begun, Begun)
    with pytest.raises(ValueError, match="later"):
        await begun


async def test_work_that_nobody_awaits_is_closed() -> None:
    seen = []

    async def work() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("closed")
        return 1

    begun = begin(work())
    assert isinstance(begun, Begun) and not seen
    del begun
    gc.collect()
    assert seen == ["closed"]
