"""Stops the thread that fetches for a consumer, even while that thread waits.

It may wait for a queue, a back-off or a call.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stopped(Exception):
    """The consumer has left; this exception ends the fetching thread."""


class Stop:
    """Set once; wakes every wait and runs what is registered."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Stop. A second call does nothing."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def check(self) -> None:
        """Raises Stopped if it is set."""
        if self._event.is_set():
            raise Stopped

    def wait(self, duration_ms: float) -> None:
        """Wait for the duration. Raises Stopped if it is set before or meanwhile."""
        if self._event.wait(duration_ms / 1000):
            raise Stopped

    @contextlib.contextmanager
    def running(self, callback: Callable[[], object]) -> Iterator[None]:
        """While the block runs, a stop calls `callback` (from the stopping thread)."""
        with self._lock:
            if self._event.is_set():
                raise Stopped
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)
