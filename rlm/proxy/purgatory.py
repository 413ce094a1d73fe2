"""Holds the remote reads of fetches until each is complete, as Kafka's RemoteFetchPurgatory does.

A remote fetch is one bounded operation. It completes by records, by a lasting error, because the
offset has ended (its segment was deleted in order, and the remote log starts above it now), or at
its deadline. A read that fails for now is repeated after an exponential back-off; one whose segment
was deleted meanwhile is looked up again at once. A fetch that is answered without it abandons it.
This module must not know the broker, frames, or why a fetch ends its wait.
"""

import asyncio
import contextlib
import enum
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from kip405.errors import OffsetOutOfRange, RemoteStorageError, Unavailable
from rlm.clock import Clock, backoff_ms
from rlm.proxy.begun import Begun, begin
from rlm.proxy.settings import ProxyMetrics
from rlm.reading.values import RemoteRecords
from rlm.remote_log.tier import ChangedMeanwhile

Outcome = RemoteRecords | RemoteStorageError
Attempt = Callable[[], Coroutine[Any, None, Outcome]]
"""Reads once and raises nothing."""

GRACE_MS = 50  # for a read that has nearly finished when the fetch ends its wait
_FIRST_BACKOFF_MS = 100
_MOST_BACKOFF_MS = 2_000


class Completion(enum.Enum):
    """How a remote fetch ended; the values are labels of its metric."""

    RECORDS = "records"
    ENDED = "ended"  # the offset is below the remote log start now
    FAILED = "failed"  # by an error that waiting does not cure
    EXPIRED = "expired"  # at its deadline
    ABANDONED = "abandoned"  # the fetch was answered without it, or its client is gone


class RemoteFetchPurgatory:
    """The remote fetches of all connections that are not complete."""

    def __init__(self, clock: Clock, metrics: ProxyMetrics) -> None:
        self.clock: Final = clock
        self._metrics = metrics
        self._size = 0

    @property
    def size(self) -> int:
        """How many there are now."""
        return self._size

    @contextlib.contextmanager
    def held(self, fetch: "RemoteFetch") -> Iterator[None]:
        """Count the remote fetch while it is not complete, and how it ended."""
        began_ms = self.clock.monotonic_ms()
        self._size += 1
        try:
            yield
        finally:
            self._size -= 1
            self.completed(fetch, self.clock.monotonic_ms() - began_ms)

    def completed(self, fetch: "RemoteFetch", duration_ms: int) -> None:
        """Count how a remote fetch ended."""
        self._metrics.remote_fetch_completed(fetch.completion.value, duration_ms)


class RemoteFetch:
    """One read of one partition for one Fetch, up to a deadline on the monotonic clock: `begin`,
    and `complete` if that gave nothing. Whoever runs `complete` in a task may cancel it. `changed`
    is set whenever an attempt has failed.
    """

    def __init__(
        self,
        purgatory: RemoteFetchPurgatory,
        attempt: Attempt,
        deadline_ms: int,
        changed: asyncio.Event,
    ) -> None:
        self._purgatory = purgatory
        self._clock = purgatory.clock
        self._attempt = attempt
        self._deadline_ms = deadline_ms
        self._changed = changed
        self._outcome: Outcome | None = None
        self._first: Outcome | Begun[Outcome] | None = None
        self.is_backing_off = False

    @property
    def completion(self) -> Completion:
        """How it ended."""
        outcome = self._outcome
        if outcome is not None and not isinstance(outcome, RemoteStorageError):
            return Completion.RECORDS
        if isinstance(outcome, OffsetOutOfRange):
            return Completion.ENDED
        if outcome is not None and not outcome.retriable:
            return Completion.FAILED
        is_over = self._clock.monotonic_ms() >= self._deadline_ms
        return Completion.EXPIRED if is_over else Completion.ABANDONED

    def begin(self) -> Outcome | None:
        """Records or a lasting error, if the first attempt need not wait; None: `complete` goes on
        with it.
        """
        first = begin(self._attempt())
        if isinstance(first, Begun) or _fails_for_now(first):
            self._first = first
            return None
        self._outcome = first
        self._purgatory.completed(self, 0)
        return first

    async def complete(self) -> Outcome:
        """Records, a lasting error, or at the deadline an error that is none for the client."""
        failures = 0
        with self._purgatory.held(self):
            while (left_ms := self._left_ms()) > 0:
                try:
                    async with asyncio.timeout(left_ms / 1000):
                        self._outcome = found = await self._next_attempt()
                except TimeoutError:
                    break
                if not _fails_for_now(found):
                    return found
                if failures or not isinstance(found, ChangedMeanwhile):
                    await self._back_off(failures)
                failures += 1
            return Unavailable("the remote tier gave nothing within the wait of the fetch")

    async def _next_attempt(self) -> Outcome:
        first, self._first = self._first, None
        if first is None:
            return await self._attempt()
        return await first if isinstance(first, Begun) else first

    def _left_ms(self) -> int:
        return self._deadline_ms + GRACE_MS - self._clock.monotonic_ms()

    async def _back_off(self, failures: int) -> None:
        wait_ms = backoff_ms(failures, first_ms=_FIRST_BACKOFF_MS, most_ms=_MOST_BACKOFF_MS)
        self.is_backing_off = True
        self._changed.set()
        await self._clock.sleep_ms(min(wait_ms, max(0, self._left_ms())))
        self.is_backing_off = False


def _fails_for_now(outcome: Outcome) -> bool:
    return isinstance(outcome, RemoteStorageError) and outcome.retriable
