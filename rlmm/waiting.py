"""Callers that wait for something that is read; `notify` and `wake` await nothing."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Changes:
    """A waiter returns at the first notify after it began to wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        if self._event.is_set():
            return
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class OffsetWaiters(Generic[K]):
    """Waiters for positions in partitions, by partition."""

    def __init__(self) -> None:
        self._waiters: dict[K, list[tuple[int, asyncio.Future[None]]]] = {}

    @property
    def partitions(self) -> tuple[K, ...]:
        """Those for which anybody waits."""
        return tuple(self._waiters)

    async def wait(self, partition: K, end: int) -> None:
        """Return once the partition was read up to `end`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(partition, []).append((end, future))
        await future

    def wake(self, partition: K, position: int) -> None:
        """The partition is read up to the position."""
        still = []
        for end, future in self._waiters.pop(partition, []):
            if future.done():
                continue
            if end <= position:
                future.set_result(None)
            else:
                still.append((end, future))
        if still:
            self._waiters[partition] = still
