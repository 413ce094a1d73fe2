"""Cancels what goes on for ever, at each of its awaits once: it must end as cancelled, and soon."""

import asyncio
from collections.abc import Awaitable, Callable

_ENDS_WITHIN_S = 60


async def ends_at_each_turn(
    life: Callable[[], Awaitable[object]],
    most_turns: int,
    begun: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Let it run so many turns of the event loop, from none on, and cancel it once. The turns are
    counted from the moment when `begun` returns.
    """

    async def lived() -> None:
        await life()

    for turns in range(most_turns):
        task = asyncio.ensure_future(lived())
        if begun is not None:
            await begun()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not task.done(), f"it has ended by itself: {task}"
        task.cancel()
        await asyncio.wait({task}, timeout=_ENDS_WITHIN_S)
        assert task.cancelled(), f"cancelled after {turns} turns: {task}"
