"""Clients that the tasks of one process share.

A Python worker of Spark runs many short tasks in sequence. A client and what it has learnt stay
open for `IDLE_MS` after a task. Workers are forked: a child never uses the clients of its parent
and starts with none. This module must not know what is shared.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from tiered_reads import clock

_log: Final = logging.getLogger(__name__)

IDLE_MS = 60_000
"""Longer than the pause between two micro-batches, shorter than servers drop idle connections."""


class Closable(Protocol):
    """A value that can be shared."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


@dataclass(slots=True)
class _Held(Generic[T]):
    value: T
    users: int
    idle_since_ms: int = 0


class Shared(Generic[T]):
    """Shared values by key. A value is made under the lock, so other callers wait for it."""

    def __init__(self, idle_ms: int = IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._forget()
        os.register_at_fork(after_in_child=self._forget_parents)

    @contextlib.contextmanager
    def leased(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """The value of the key while the block runs."""
        value = self._take(key, make)
        try:
            yield value
        finally:
            self._give_back(key)

    def close_idle(self, older_than_ms: int = 0) -> None:
        """Close the values that have not been leased for so long."""
        now = clock.monotonic_ms()
        with self._lock:
            old = [
                key
                for key, held in self._held.items()
                if not held.users and now - held.idle_since_ms >= older_than_ms
            ]
            closing = [self._held.pop(key).value for key in old]
        for value in closing:
            try:
                value.close()
            except Exception as error:  # noqa: BLE001 - the present caller did not use this value
                _log.warning("event=close_failed error=%r", error)

    def _take(self, key: Hashable, make: Callable[[], T]) -> T:
        self.close_idle(self._idle_ms)
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held(make(), 0)
            held.users += 1
            return held.value

    def _give_back(self, key: Hashable) -> None:
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.users -= 1
                held.idle_since_ms = clock.monotonic_ms()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, _Held[T]] = {}

    def _forget_parents(self) -> None:
        # Kept, because a destructor would close what belongs to the parent too.
        self._parents = self._held
        self._forget()
