"""The fetch lanes: a bounded number of remote reads at once and a bounded queue behind them
(KIP-405's reader pool).

Apart from copy and cleanup, so that none can starve another (G6).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kip405.errors import Busy

V = TypeVar("V")


class ReaderPool:
    """`threads` reads run, `max_pending_tasks` wait, one more is Busy. Jobs live in the owner's
    TaskGroup.
    """

    def __init__(self, tasks: asyncio.TaskGroup, *, threads: int, max_pending_tasks: int) -> None:
        self._tasks = tasks
        self._running = asyncio.Semaphore(threads)
        self._limit = threads + max_pending_tasks
        self.pending_tasks = 0

    def submit(self, job: Callable[[], Awaitable[V]]) -> asyncio.Future[V]:
        """Queue a job; its failure goes to the future alone, never to the TaskGroup."""
        if self.pending_tasks >= self._limit:
            raise Busy(f"{self.pending_tasks} remote reads wait already")
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        # A load outlives its asker: mark a failure nobody waits for as seen.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.pending_tasks += 1
        task = self._tasks.create_task(self._run(job, future))
        task.add_done_callback(lambda _: self._ended(future))
        return future

    def _ended(self, future: asyncio.Future[V]) -> None:
        """The task is over, perhaps cancelled before its first step: nobody may wait on."""
        self.pending_tasks -= 1
        future.cancel()

    async def _run(self, job: Callable[[], Awaitable[V]], future: asyncio.Future[V]) -> None:
        try:
            async with self._running:
                result = await job()
        except Exception as error:  # noqa: BLE001 - a lane runner: the failure belongs to who asked
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
