"""H24: a process that is to end serves its clients to the last answer, then stops the rest."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from structlog.testing import capture_logs

from rlm.clock import SystemClock
from rlm.service.lifetime import keep_all_running, serving, until_stopped
from rlm.workers.ending import Ending
from tests.builders.clock import ManualClock


class Service:
    """One component, `store`, which answers need."""

    def __init__(self, clock: ManualClock, group: asyncio.TaskGroup) -> None:
        self.done: list[str] = []
        self._clock = clock
        self.drains = self.fails = False

    async def run(self, ending: Ending) -> None:
        await keep_all_running(
            {"store": self._store}, self._clock, self._check, partial(ending.drain, self.drain)
        )

    async def _check(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async def _store(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.done.append("store ended")
            self._clock.advance(700)

    async def drain(self) -> None:
        await asyncio.sleep(0)
        self._clock.advance(1_300)
        self.done.append("drained")

    async def close(self) -> None:
        self.done.append("closed")


async def ended(clock: ManualClock, ending: Ending) -> Service:
    made: list[Service] = []

    def make(group: asyncio.TaskGroup) -> Service:
        made.append(Service(clock, group))
        return made[0]

    await asyncio.create_task(until_stopped(serving(make, ending), ending))
    ending.ended()
    return made[0]


async def test_h24_a_service_drains_before_anything_that_answers_need_ends() -> None:
    clock = ManualClock()
    with capture_logs() as logs:
        service = await ended(clock, Ending(clock))
    assert service.done == ["drained", "store ended", "closed"]
    said = {one.pop("event"): one for one in logs}
    assert said["drained"]["drained_ms"] == 1_300
    assert said["stopped"]["rest_ms"] == 700


async def test_h24_a_drain_that_fails_leaves_nothing_open() -> None:
    closed: list[str] = []

    class Failing(Service):
        async def drain(self) -> None:
            raise OSError("a socket")

        async def close(self) -> None:
            closed.append("closed")

    clock = ManualClock()
    ending = Ending(clock)
    with pytest.raises(ExceptionGroup):
        await asyncio.create_task(until_stopped(serving(partial(Failing, clock), ending), ending))
    assert closed == ["closed"]


async def test_a_start_that_was_refused_says_nothing_of_an_end() -> None:
    with capture_logs() as logs:
        Ending(SystemClock()).ended()
    assert logs == []


async def test_a_drain_is_done_once_and_counted_from_the_first_signal() -> None:
    clock, calls = ManualClock(), []
    ending = Ending(clock, worker=2)

    async def drain() -> None:
        calls.append(clock.monotonic_ms())

    work: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] = ending.drain
    with capture_logs() as logs:
        ending.asked()
        clock.advance(40)
        ending.asked()
        await work(drain)
        await work(drain)
    assert len(calls) == 1
    assert [(one["worker"], one["drained_ms"]) for one in logs] == [(2, 40)]
