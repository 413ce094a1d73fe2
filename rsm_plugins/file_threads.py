"""Threads for file work: so many at once, so many waiting, then Busy; what hangs is replaced.

Each piece of work opens and closes its files within its thread, so descriptors are bounded by the
pool however many callers wait. Cancelling a caller asks its work to stop and waits for it a while:
what was abandoned should not go on changing the store.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from kip405.errors import Unavailable
from rsm_plugins.threads import HANG_MS_DEFAULT, MAX_PENDING_DEFAULT, Threads

P = ParamSpec("P")
T = TypeVar("T")

THREADS_DEFAULT = 16
_STOP_WAIT_SECONDS = 5.0
FINISH_MS = 2_000
"""How long the end of a process waits for file work that has begun."""
_LONG_WORK_MS = 600_000


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


class FileThreads(Threads):
    """Runs synchronous file work off the event loop; `close` by the one who made it."""

    def __init__(
        self,
        threads: int = THREADS_DEFAULT,
        max_pending: int = MAX_PENDING_DEFAULT,
        hang_ms: int = HANG_MS_DEFAULT,
    ) -> None:
        super().__init__("rsm-file", threads, hang_ms=hang_ms, max_pending=max_pending)

    async def run_stoppable(self, work: Callable[[StopFlag], T]) -> T:
        """As `run`, for long work that changes the store and looks at a flag.

        Only its caller's limit makes it fail; after 10 minutes another thread has its place.
        """
        flag = StopFlag()
        job = self.begin(partial(work, flag), hang_ms=_LONG_WORK_MS)
        try:
            await asyncio.wait((job.future,))
        except asyncio.CancelledError:
            flag.set()
            self.drop(job)
            await asyncio.wait((job.future,), timeout=_STOP_WAIT_SECONDS)
            raise
        return job.future.result()
