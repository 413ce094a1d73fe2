"""A second request where the first one is late: a store answers a few reads ten times as slowly as
all others, and whoever reads on from there waits for the slowest.

A read that takes longer than almost all reads of its size of late is asked for once more, and
whichever answer comes first counts; the other request is given up ("hedged requests": Dean and
Barroso, The Tail at Scale, 2013). Both read the same immutable object, and what is read is verified
by its checksums afterwards, so nothing depends on which one answers.

At most a small share of the reads is asked for twice, and none for a while after either request
was answered with an error: a store with too much to do must not get more. The reader gets an error
only when both requests have ended with one: the first request's.

Whoever bounds the memory of reads counts each range once, so second requests are bounded here
(H36).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kip405.errors import Corrupt, NotFound, RemoteStorageError
from rlm.clock import Clock

T = TypeVar("T")
_SAMPLES = 200
_FEWEST_SAMPLES = 50
_LEAST_DELAY_MS = 20
_MOST_SAVED = 10.0
_PAUSE_MS = 30_000
MOST_BYTES = 32 << 20
"""What the second requests to one store that are under way ask for together; a single one may ask
for more.
"""


@dataclass(slots=True, kw_only=True)
class HedgeCounts:
    """Totals since the start."""

    asked_twice: int = 0
    second_was_first: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    """How a request ended that has no answer."""

    error: Exception


async def _outcome(ask: Callable[[], Awaitable[T]]) -> T | _Failure:
    try:
        return await ask()
    except Exception as error:  # noqa: BLE001 - raised again by whoever needs it
        return _Failure(error)


class _Durations:
    """How long the last reads of about one size took."""

    def __init__(self) -> None:
        self._taken_ms: deque[int] = deque(maxlen=_SAMPLES)

    def add(self, taken_ms: int) -> None:
        self._taken_ms.append(taken_ms)

    def longer_than_most_ms(self, percent: float) -> int | None:
        """What all but so many percent took at most; None while too little is known."""
        count = len(self._taken_ms)
        if count < _FEWEST_SAMPLES:
            return None
        at = min(int(count * (100 - percent) / 100), count - 1)
        return max(sorted(self._taken_ms)[at], _LEAST_DELAY_MS)


class HedgedReads:
    """The reads of one store. `most_percent` of them may be asked for twice; 0: none ever is."""

    def __init__(self, clock: Clock, counts: HedgeCounts, most_percent: float) -> None:
        self._clock = clock
        self._counts = counts
        self._most_percent = most_percent
        self._durations: dict[int, _Durations] = {}
        self._saved = 0.0
        self._second_bytes = 0
        self._paused_until_ms = clock.monotonic_ms()

    async def read(self, size_bytes: int, ask: Callable[[], Awaitable[T]]) -> T:
        """The first answer of `ask`; size 0 where it is not known before."""
        if self._most_percent <= 0:
            return await ask()
        durations = self._durations.setdefault(size_bytes.bit_length(), _Durations())
        delay_ms = durations.longer_than_most_ms(self._most_percent)
        self._saved = min(_MOST_SAVED, self._saved + self._most_percent / 100)
        began_ms = self._clock.monotonic_ms()
        if delay_ms is None:
            found = await self._noted(ask)
        else:
            found = await self._race(partial(self._noted, ask), delay_ms, size_bytes)
        durations.add(self._clock.monotonic_ms() - began_ms)
        return found

    async def _noted(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await ask()
        except RemoteStorageError as error:
            self._note(error)
            raise

    async def _race(self, ask: Callable[[], Awaitable[T]], delay_ms: int, size_bytes: int) -> T:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_outcome(ask))
            late = group.create_task(self._clock.sleep_ms(delay_ms))
            asked = [first]
            try:
                await asyncio.wait((first, late), return_when=asyncio.FIRST_COMPLETED)
                if not first.done() and self._may_ask_again(size_bytes):
                    asked.append(group.create_task(_outcome(ask)))
                    asked[-1].add_done_callback(partial(self._ended, size_bytes))
                found = await self._first_success(asked)
            finally:
                for task in (late, *asked):
                    task.cancel()
        if isinstance(found, _Failure):
            raise found.error
        return found

    def _may_ask_again(self, size_bytes: int) -> bool:
        if self._saved < 1 or self._clock.monotonic_ms() < self._paused_until_ms:
            return False
        if self._second_bytes and self._second_bytes + size_bytes > MOST_BYTES:
            return False
        self._saved -= 1
        self._second_bytes += size_bytes
        self._counts.asked_twice += 1
        return True

    def _ended(self, size_bytes: int, _second: "asyncio.Task[object]") -> None:
        self._second_bytes -= size_bytes

    async def _first_success(self, asked: Sequence[asyncio.Task[T | _Failure]]) -> T | _Failure:
        running = set(asked)
        while running:
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in asked:
                if task.done() and not task.cancelled():
                    found = task.result()
                    if not isinstance(found, _Failure):
                        self._counts.second_was_first += task is not asked[0]
                        return found
        return asked[0].result()

    def _note(self, error: RemoteStorageError) -> None:
        """Missing and damaged objects say nothing about how much the store has to do."""
        if not isinstance(error, NotFound | Corrupt):
            self._paused_until_ms = self._clock.monotonic_ms() + _PAUSE_MS
