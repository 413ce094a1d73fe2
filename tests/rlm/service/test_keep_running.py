"""What keeps a component running ends with its first cancellation, and with nothing else."""

import asyncio
from collections.abc import Awaitable, Callable

from structlog.testing import capture_logs

from kip405.errors import Unavailable
from rlm.clock import SystemClock
from rlm.service.lifetime import keep_running
from tests.waiting import pass_time, until

Life = Callable[[], Awaitable[None]]


class _Component:
    """It does `ends` once it is cancelled."""

    def __init__(self, ends: Life) -> None:
        self.cancelled = 0
        self._ends = ends

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await self._ends()


async def _returns() -> None:
    """As a task that an inner one was waited for by, which took the cancellation."""


async def _fails() -> None:
    raise Unavailable("an error of what was closed")


class _Lives:
    """Counts those that `keep_running` begins."""

    def __init__(self, life: Life) -> None:
        self.count = 0
        self._life = life

    async def run(self) -> None:
        self.count += 1
        await self._life()

    async def are_ended_by_a_cancellation(self) -> bool:
        running = asyncio.ensure_future(keep_running("one", self.run, SystemClock()))
        await until(lambda: self.count)
        await asyncio.sleep(0)
        running.cancel()
        await until(lambda: running.done() or self.count > 1)
        is_ended = running.cancelled()
        await until(lambda: not running.cancel())
        return is_ended


async def test_a_life_that_returns_when_it_is_cancelled_is_the_last_one() -> None:
    component = _Component(_returns)
    assert await _Lives(component.run).are_ended_by_a_cancellation()
    assert component.cancelled == 1


async def test_a_life_that_fails_when_it_is_cancelled_is_the_last_one() -> None:
    component = _Component(_fails)
    with capture_logs() as logs:
        assert await _Lives(component.run).are_ended_by_a_cancellation()
    assert component.cancelled == 1
    assert [one["event"] for one in logs] == ["component_failed"]


async def test_a_life_whose_group_fails_when_it_is_cancelled_is_the_last_one() -> None:
    """A TaskGroup raises its errors, and not the cancellation."""

    async def life() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_Component(_fails).run())

    assert await _Lives(life).are_ended_by_a_cancellation()


async def test_a_life_that_goes_on_is_cancelled_again() -> None:
    async def goes_on() -> None:
        if component.cancelled < 3:
            await component.run()

    component = _Component(goes_on)
    running = asyncio.ensure_future(keep_running("one", component.run, SystemClock()))
    for _ in range(3):  # it begins
        await asyncio.sleep(0)
    with capture_logs() as logs:
        running.cancel()
        for times in (1, 2, 3):
            await until(lambda times=times: component.cancelled == times)  # type: ignore[misc]
            pass_time(100)
        await asyncio.wait({running}, timeout=60)
    assert running.cancelled()
    assert [one["event"] for one in logs] == ["component_goes_on"] * 2


async def test_a_life_that_nobody_has_cancelled_begins_again() -> None:
    """A future was cancelled, as where the client is closed that a call was waiting for."""
    starts = 0

    async def life() -> None:
        nonlocal starts
        starts += 1
        if starts > 1:
            await asyncio.Event().wait()
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    with capture_logs() as logs:
        running = asyncio.ensure_future(keep_running("one", life, SystemClock()))
        await until(lambda: starts > 1 or running.done())
    assert not running.done()
    assert [one["event"] for one in logs] == ["component_broke_off"]
    running.cancel()
    await asyncio.wait({running}, timeout=60)
    assert running.cancelled()
