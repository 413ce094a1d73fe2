"""Callers that wait for something that is read; `notify` and `wake` await nothing. And tasks that
wait for what may break off.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kip405.errors import Unavailable

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


async def unless_broken_off(work: Callable[[], Awaitable[T]], what: str) -> T:
    """Unavailable where `work` ends as cancelled, and nobody has cancelled this task: a TaskGroup
    takes no notice of such an end, and goes on without it.
    """
    try:
        return await work()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unavailable(f"{what} broke off: what it waited for was cancelled") from error


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
