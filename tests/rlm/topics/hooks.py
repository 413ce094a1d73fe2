"""Hooks of a service in a cluster in memory: it dies, or stops, at any of its awaits."""

import asyncio


class Crash(BaseException):
    """The process dies here."""


class CrashAt:
    """Dies at the n-th await; `reached`: whether there were that many."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.reached = False

    async def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached = True
        if self._left <= 0:
            raise Crash


class PauseAt:
    """Stops at the n-th await until `resume` is set; before and after it goes on."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()

    async def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.paused.set()
            await self.resume.wait()
