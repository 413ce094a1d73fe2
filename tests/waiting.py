"""Waits for what no event announces: plain values of fakes and of other tasks, files, processes."""

import asyncio
from collections.abc import Callable

_POLL_S = 0.001


async def until(holds: Callable[[], object], timeout_s: float = 60) -> None:
    """Wait until a condition holds; TimeoutError if it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - a test that has an event waits for that
            await asyncio.sleep(_POLL_S)
