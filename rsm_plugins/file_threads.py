"""A bounded pool of threads for file work: so many at once, so many waiting, then Busy.

Each piece of work opens and closes its files within its thread, so descriptors are bounded by the
pool however many callers wait. Cancelling a caller asks its work to stop and waits for it a while:
what was abandoned should not go on changing the store.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from kip405.errors import Busy, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

THREADS_DEFAULT = 16
PENDING_DEFAULT = 4096
_STOP_WAIT_SECONDS = 5.0


class StopFlag:
    """Set when the caller has given up; work looks at it between steps."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Unavailable where the caller has given up."""
        if self._event.is_set():
            raise Unavailable("the caller gave up; nothing was published")


class FileThreads:
    """Runs synchronous file work off the event loop; `close` by the one who made it."""

    def __init__(self, threads: int = THREADS_DEFAULT, max_pending: int = PENDING_DEFAULT) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="rsm-file")
        self._max_pending = max_pending
        self._pending = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The work's result; Busy where the queue is full."""
        return await self._submit(partial(work, *args, **kwargs), None)

    async def run_stoppable(self, work: Callable[[StopFlag], T]) -> T:
        """The same for long work that changes the store and looks at a flag."""
        flag = StopFlag()
        return await self._submit(partial(work, flag), flag)

    async def _submit(self, work: Callable[[], T], flag: StopFlag | None) -> T:
        if self._pending >= self._max_pending:
            raise Busy(f"{self._pending} pieces of file work are waiting already; come back later")
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._done)
        if flag is None:
            return await future
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            flag.set()
            await asyncio.wait((future,), timeout=_STOP_WAIT_SECONDS)
            raise

    def _done(self, future: "asyncio.Future[T]") -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # an abandoned failure is nobody's surprise

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
