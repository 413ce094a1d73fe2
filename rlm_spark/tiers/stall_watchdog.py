"""Ends calls whose next message stays away too long: gRPC knows deadlines for whole calls only.

While a consumer is slow nobody waits, so a long pause of its own never counts as silence. One
thread per guard, started with the first wait.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlm_spark import clock


@dataclass(slots=True, eq=False)
class Watched:
    """One stream. `was_silent`: the guard has cancelled it."""

    cancel: Callable[[], object]
    limit_ms: int
    since_ms: int | None = None
    was_silent: bool = False

    def waits(self) -> None:
        """The next message is awaited from now on."""
        self.since_ms = clock.monotonic_ms()

    def rests(self) -> None:
        """Nobody waits."""
        self.since_ms = None


class SilenceGuard:
    """Cancels what waits for longer than its limit, at most a quarter of the limit late."""

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
                    target=self._run, name="rlm-silence-guard", daemon=True
                )
                self._thread.start()
            self._condition.notify()
        try:
            yield watched
        finally:
            with self._condition:
                self._watched.discard(watched)

    def close(self) -> None:
        """End the thread; streams are not watched any more."""
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
                if since is not None and now - since >= one.limit_ms and not one.was_silent:
                    one.was_silent = True
                    one.cancel()
