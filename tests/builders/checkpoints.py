"""Cancels a task at the n-th step of it or of the tasks that it began.

A step is before and after each call of a collaborator.
"""

import asyncio
import inspect
from typing import Any


class Checkpoints:
    """Shared by all proxies of one run; `count` is the number of steps so far."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.cancel_at = cancel_at
        self.count = 0
        self.task: asyncio.Task[None] | None = None

    async def step(self) -> None:
        self.count += 1
        if self.count == self.cancel_at:
            assert self.task is not None
            self.task.cancel()
        await asyncio.sleep(0)

    def around(self, collaborator: Any) -> Any:
        return _Proxy(collaborator, self)


class _Proxy:
    def __init__(self, inner: Any, checkpoints: Checkpoints) -> None:
        self._inner = inner
        self._checkpoints = checkpoints

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def called(*args: Any, **kwargs: Any) -> Any:
            await self._checkpoints.step()
            result = await found(*args, **kwargs)
            await self._checkpoints.step()
            return result

        return called
