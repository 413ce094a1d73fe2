"""Cancels the running task at the n-th step: one before, one after each collaborator's call."""

import asyncio
import inspect
from typing import Any


class Checkpoints:
    """Shared by all proxies of one run; `count` is the number of steps so far."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.cancel_at = cancel_at
        self.count = 0

    async def step(self) -> None:
        self.count += 1
        if self.count == self.cancel_at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
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
