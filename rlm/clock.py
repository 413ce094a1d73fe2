"""The one module that makes time, sleep, randomness and fresh ids; all others take them as
arguments.

Tests and the simulation give their own Clock. `monotonic_ms` measures durations, `now_ms` stamps
metadata.
"""

import asyncio
import random
import time
import uuid
from typing import Protocol

from kip405.ids import Uuid


class Clock(Protocol):
    """Time in milliseconds and the only way to wait."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    async def sleep_ms(self, duration_ms: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(duration_ms / 1000)


async def next_turn() -> None:
    """Let others have their turn of the event loop. What follows runs in the task that waits for
    it, also where the proxy has begun it in another one (`rlm.proxy.begun`).
    """
    await asyncio.sleep(0)


def processor_ms() -> float:
    """Time of the processor that this process took since it began, all its threads together."""
    return time.process_time_ns() / 1_000_000


def new_uuid() -> Uuid:
    """A fresh random Uuid that does not start with '-' (Kafka avoids that in Uuid.randomUuid)."""
    while True:
        candidate = Uuid(uuid.uuid4().bytes)
        if not str(candidate).startswith("-"):
            return candidate


def jittered_ms(duration_ms: float) -> float:
    """The duration +-20 %, so that many services do not wake in step."""
    return duration_ms * random.uniform(0.8, 1.2)  # noqa: S311 - spreading load, not secrets


def backoff_ms(attempt: int, *, first_ms: int = 100, most_ms: int = 5_000) -> float:
    """Exponential back-off with jitter for the attempt-th failure in a row (0 = first)."""
    return jittered_ms(min(most_ms, first_ms * 2 ** min(attempt, 20)))
