"""The only module of reads from both tiers that reads clocks, waits, or uses randomness.

Callers are threads of executors, so waiting blocks. `monotonic_ms` measures durations.
"""

import asyncio
import random
import time


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes backwards."""
    return time.monotonic_ns() // 1_000_000


def sleep_ms(duration_ms: float) -> None:
    """Block this thread."""
    time.sleep(duration_ms / 1000)


async def pause_ms(duration_ms: float) -> None:
    """Suspend the coroutine for so long, on the event loop of the Kafka client."""
    await asyncio.sleep(duration_ms / 1000)


def jittered_ms(duration_ms: float) -> float:
    """The duration +-20 %, so that many tasks do not wake in step."""
    return duration_ms * random.uniform(0.8, 1.2)  # noqa: S311 - spreading load, not secrets


def backoff_ms(attempt: int, *, first_ms: int = 100, most_ms: int = 5_000) -> float:
    """Exponential back-off with jitter for the attempt-th failure in a row (0 = first)."""
    return jittered_ms(min(most_ms, first_ms * 2 ** min(attempt, 20)))
