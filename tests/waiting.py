"""Waits for what no event announces: plain values of fakes and of other tasks, files, processes;
and time that passes without a wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

_POLL_S = 0.001


async def until(holds: Callable[[], object], timeout_s: float = 60) -> None:
    """Wait until a condition holds; TimeoutError if it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - a test that has an event waits for that
            await asyncio.sleep(_POLL_S)


async def succeeds_once(
    attempt: Callable[[], Awaitable[None]],
    most: int = 3,
    failures: tuple[type[Exception], ...] = (AssertionError, EOFError, ConnectionError),
) -> None:
    """For what has short limits by the real clock: a stall of the machine breaks one attempt, and a
    fault of the product all of them.
    """
    for _ in range(most - 1):
        is_broken = False
        try:
            await attempt()
        except* failures:  # a group of them, too, as a TaskGroup makes it
            is_broken = True
        if not is_broken:
            return
    await attempt()


class _Clock:
    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.passed_s = 0.0

    def __call__(self) -> float:
        return self._time() + self.passed_s


def pass_time(seconds: float) -> None:
    """The clock of the running loop is so much further from now on: timers until then are due. Who
    has kept `loop.time` before the first call does not see it.
    """
    loop: Any = asyncio.get_running_loop()
    if not isinstance(loop.time, _Clock):
        loop.time = _Clock(loop.time)
    loop.time.passed_s += seconds
