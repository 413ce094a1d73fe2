"""Produces items ahead of their consumer: a thread fills a bounded queue.

Fetched pieces and decoded Arrow batches are produced so. An exception of the thread is raised in
the consumer. Leaving the block stops the thread, even while it waits, and joins it. This module
must not know where the items come from.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from types import TracebackType
from typing import Generic, TypeVar

from tiered_reads.errors import ConnectorError
from tiered_reads.stopping import Stop, Stopped

MOST_ITEMS = 4
MOST_BYTES = 32 << 20
"""What one task holds beyond what it decodes; one larger item alone is let through."""

T = TypeVar("T")


class Ahead(Generic[T]):
    """`with Ahead(produce, stop, size_of) as items: for item in items: ...`"""

    def __init__(
        self,
        produce: Callable[[], Generator[T, None, None]],
        stop: Stop,
        size_of: Callable[[T], int],
        *,
        most_items: int = MOST_ITEMS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._produce = produce
        self._stop = stop
        self._size_of = size_of
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._condition = threading.Condition()
        self._items: deque[T] = deque()
        self._bytes = 0
        self._is_done = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rlm-fetch-ahead", daemon=True)

    def __enter__(self) -> Iterator[T]:
        self._thread.start()
        return self._taken()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._items.clear()

    def _taken(self) -> Iterator[T]:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._items or self._is_done)
                if not self._items:
                    break
                item = self._items.popleft()
                self._bytes -= self._size_of(item)
                self._condition.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with closing(self._produce()) as items:
                for item in items:
                    self._put(item)
        except Stopped as stopped:
            if not self._stop.is_set:  # else the end of what was fetched would pass for the end
                self._error = ConnectorError("what was fetched from was closed meanwhile")
                self._error.__cause__ = stopped
        except BaseException as error:  # noqa: BLE001 - raised again where the consumer is
            self._error = error
        finally:
            with self._condition:
                self._is_done = True
                self._condition.notify_all()

    def _put(self, item: T) -> None:
        size = self._size_of(item)
        with self._stop.running(self._wake), self._condition:
            self._condition.wait_for(lambda: self._stop.is_set or self._fits(size))
            self._stop.check()
            self._items.append(item)
            self._bytes += size
            self._condition.notify_all()

    def _fits(self, size: int) -> bool:
        if not self._items:
            return True
        return len(self._items) < self._most_items and self._bytes + size <= self._most_bytes

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
