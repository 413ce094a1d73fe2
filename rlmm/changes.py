"""Tells waiters that something has changed, once per wait."""

import asyncio


class Changes:
    """`notify` awaits nothing; a waiter returns at the first notify after it began to wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        if self._event.is_set():
            return
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()
