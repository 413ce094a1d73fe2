"""The one place of the S3 store that lets time pass: waiting, jitter, and work that must end though
its caller is gone.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""

BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MOST_SECONDS = 5.0


async def pause(seconds: float) -> None:
    """Real time passes."""
    await asyncio.sleep(seconds)  # noqa: TID251 - this module wraps it for the package


def backoff_seconds(attempt: int) -> float:
    """Wait before try `attempt` + 1, doubling from try to try, with jitter (half to whole)."""
    whole = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(attempt - 1, 16))
    return whole * (0.5 + int.from_bytes(os.urandom(4)) / 2**33)


async def to_its_end(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of work that goes on when the caller is cancelled, at most so many seconds."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=seconds)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # nobody is left to hear of it
        raise
