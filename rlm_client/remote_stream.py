"""Takes items of a blocking generator one after the other, one ahead of the event loop.

Threads of a bounded pool advance the generator, never two at a time. While the loop uses an item,
the next one is fetched; that is all that a stream holds. This module must not know what is read.
"""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from typing import Any, Final, Generic, TypeVar

from tiered_reads.stopping import Stop, Stopped

T = TypeVar("T")


class RemoteStream(Generic[T]):
    """`open_items` is called in the pool; the Stop that it is handed ends its waits and calls."""

    def __init__(
        self, open_items: Callable[[Stop], Generator[T, None, None]], pool: Executor
    ) -> None:
        self._stop: Final = Stop()
        self._items = open_items(self._stop)
        self._pool = pool
        self._ahead: Future[T | None] = pool.submit(self._advance)

    @property
    def is_closed(self) -> bool:
        return self._stop.is_set

    async def next(self) -> T | None:
        """The next item, None after the last. What the generator raises; then it has ended."""
        ahead = self._ahead
        if not ahead.done():
            waiting = asyncio.wrap_future(ahead)
            # Waited for and not awaited: a cancelled caller must not cancel the reading, because
            # another one may come for the item.
            waiting.add_done_callback(_retrieve)
            await asyncio.wait((waiting,))
        item = ahead.result()
        if item is not None and not self._stop.is_set:
            self._ahead = self._pool.submit(self._advance)
        return item

    def close(self) -> None:
        """End waits and calls; the generator is closed by the thread that has it now, or by one
        that the pool has next.
        """
        if self._stop.is_set:
            return
        self._stop.set()
        self._ahead.add_done_callback(lambda _: self._items.close())

    def _advance(self) -> T | None:
        try:
            self._stop.check()
            return next(self._items, None)
        except Stopped:
            return None


def _retrieve(done: "asyncio.Future[Any]") -> None:
    """So that asyncio does not report the error of a read that nobody waits for any more."""
    if not done.cancelled():
        done.exception()
