"""Cancels a streaming call when no message arrives in time. gRPC has deadlines for whole calls.

A stream is watched only while its consumer waits for a message, so a slow consumer never counts as
a stalled service. Each watchdog has one thread, which starts with the first stream.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlm_spark import clock


@dataclass(slots=True, eq=False)
class Watched:
    """One stream. `was_stalled`: the watchdog has cancelled it."""

    cancel: Callable[[], object]
    limit_ms: int
    since_ms: int | None = None
    was_stalled: bool = False

    def waits(self) -> None:
        """The consumer waits for the next message from now on."""
        self.since_ms = clock.monotonic_ms()

    def rests(self) -> None:
        """The consumer does not wait."""
        self.since_ms = None


class StallWatchdog:
    """Cancels a stream that waits longer than its limit, at most a quarter of the limit late."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def watching(self, cancel: Callable[[], object], limit_ms: int) -> Iterator[Watched]:
        """Watch a stream while the block runs."""
        watched = Watched(cancel=cancel, limit_ms=limit_ms)
        with self._condition:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="rlm-stall-watchdog", daemon=True
                )
                self._thread.start()
            self._condition.notify()
        try:
            yield watched
        finally:
            with self._condition:
                self._watched.discard(watched)

    def close(self) -> None:
        """End the thread; streams are no longer watched."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._closed:
                    return
                limits = [watched.limit_ms for watched in self._watched]
                self._condition.wait(min(limits) / 4000 if limits else None)
                watched = list(self._watched)
            now = clock.monotonic_ms()
            for one in watched:
                since = one.since_ms
                if since is not None and now - since >= one.limit_ms and not one.was_stalled:
                    one.was_stalled = True
                    one.cancel()
