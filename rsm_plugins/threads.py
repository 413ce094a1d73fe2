"""Bounded pools of threads for work that may block: a thread that hangs is replaced.

Work that reads a disk may hang permanently (a network file system, a dying disk). A thread that has
worked on one job for longer than the pool's limit counts as hung: its waiters get an error, another
thread replaces it, and it ends when its work does. The number of replacements is bounded; beyond
it, a request to the pool fails at once instead of waiting without limit. Threads are daemons: the
end of the process does not wait for them. Only this module creates threads, and it must not know
what the work is.

`FileThreads` is such a pool for file work: a number of jobs at once, a number waiting, then Busy.
Each job opens and closes its files within its thread, so the pool bounds the descriptors however
many callers wait. Cancelling a caller asks its job to stop and waits for it a while: abandoned work
should not continue to change the store.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from kip405.errors import Busy, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

HANG_MS_DEFAULT = 60_000
MAX_PENDING_DEFAULT = 4096
_LEAST_REPLACED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HungWork:
    """Hung threads of one pool; `longest_ms` is how long the first of them has worked."""

    pool: str
    count: int
    longest_ms: int


class Job(Generic[T]):
    """One job; `future` gets its result, even if no caller waits for it any more."""

    __slots__ = ("_loop", "_work", "future", "hang_seconds", "is_hung", "started_at")

    def __init__(
        self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, hang_seconds: float
    ) -> None:
        self.hang_seconds = hang_seconds
        self._work = work
        self._loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.future.add_done_callback(_consume_exception)
        self.started_at: float | None = None
        self.is_hung = False

    def now(self) -> float:
        """Seconds of the loop's monotonic clock."""
        return self._loop.time()

    def do(self) -> None:
        """Called in a thread."""
        try:
            set_outcome = partial(self._set_result, self._work())
        except BaseException as error:  # noqa: BLE001 - passed on to the waiting caller
            set_outcome = partial(self._set_exception, error)
        try:
            self._loop.call_soon_threadsafe(set_outcome)
        except RuntimeError:
            return  # the loop is closed: no caller waits any more

    def _set_result(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _set_exception(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Threads:
    """At most `size` threads at work, at most `max_pending` jobs under way, then Busy.

    After `hang_ms` a thread counts as hung. Its creator closes the pool, without waiting.
    """

    def __init__(
        self,
        name: str,
        size: int,
        *,
        hang_ms: int = HANG_MS_DEFAULT,
        max_pending: int = MAX_PENDING_DEFAULT,
    ) -> None:
        self.name = name
        self._size = size
        self._hang_seconds = hang_ms / 1000
        self._max_pending = max_pending
        self._most_replaced = max(_LEAST_REPLACED, size)
        self._changed = threading.Condition()
        self._queue: deque[Job[Any]] = deque()
        self._running: set[Job[Any]] = set()
        self._alive = 0
        self._idle = 0
        self._is_closed = False
        self._clock: Callable[[], float] = float

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The work's result. Busy: too many jobs wait. Unavailable: the work hangs, or all threads
        do. If the caller is cancelled before the work began, it never begins; otherwise it
        continues without the caller.
        """
        job = self.begin(partial(work, *args, **kwargs))
        try:
            while not await _is_done_within(job.future, self._hang_seconds):
                self._check(job)
            return job.future.result()
        except asyncio.CancelledError:
            self.drop(job)
            raise

    def begin(self, work: Callable[[], T], *, hang_ms: int | None = None) -> Job[T]:
        """Begin work for a caller that waits in its own way; errors as `run`. `hang_ms`: the time
        after which the work counts as hung, if it differs from the pool's.
        """
        limit = self._hang_seconds if hang_ms is None else hang_ms / 1000
        loop = asyncio.get_running_loop()
        self._clock = loop.time  # monotonic, the same for every loop
        job = Job(work, loop, limit)
        with self._changed:
            self._mark_hung(job.now())
            if self._is_closed:
                raise Unavailable(f"the threads of {self.name} are closed")
            if len(self._queue) + len(self._running) >= self._max_pending:
                raise Busy(f"{self._max_pending} pieces of work wait for {self.name} already")
            self._refuse_where_all_hang()
            self._queue.append(job)
            self._engage()
        return job

    async def result(self, job: Job[T], on_cancel: Callable[[], float] = lambda: 0.0) -> T:
        """The result of work that was begun, however long it takes. If the caller is cancelled,
        work that has not begun never begins; other work is waited for as many seconds as
        `on_cancel` then says.
        """
        try:
            await asyncio.wait((job.future,))
        except asyncio.CancelledError:
            last_s = on_cancel()
            self.drop(job)
            if last_s > 0:
                await asyncio.wait((job.future,), timeout=last_s)
            raise
        return job.future.result()

    def drop(self, job: Job[T]) -> None:
        """Do not begin the job, if it has not begun."""
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
                job.future.cancel()

    def hung(self) -> HungWork | None:
        """The threads that hang now; None = none."""
        now = self._clock()
        with self._changed:
            self._mark_hung(now)
            begun = [job.started_at for job in self._running if job.is_hung and job.started_at]
        if not begun:
            return None
        longest_ms = int((now - min(begun)) * 1000)
        return HungWork(pool=self.name, count=len(begun), longest_ms=longest_ms)

    def close(self) -> None:
        """No work begins any more; threads end with their present work."""
        with self._changed:
            self._is_closed = True
            for job in self._queue:
                job.future.cancel()
            self._queue.clear()
            self._changed.notify_all()

    async def finish(self, limit_ms: int) -> None:
        """As `close`, then wait at most so long for work that has begun, because an interrupted
        change would leave a store half changed. Hung work is not waited for.
        """
        self.close()
        with self._changed:
            begun = [job.future for job in self._running if not job.is_hung]
        if begun:
            await asyncio.wait(begun, timeout=limit_ms / 1000)

    def _check(self, job: Job[T]) -> None:
        with self._changed:
            self._mark_hung(job.now())
            if job.is_hung:
                limit_ms = int(self._hang_seconds * 1000)
                raise Unavailable(f"work of {self.name} has not ended within {limit_ms} ms")
            if job in self._queue:
                try:
                    self._refuse_where_all_hang()
                except Unavailable:
                    self._queue.remove(job)
                    raise
                self._engage()

    # All of these run with the lock held.

    def _mark_hung(self, now: float) -> None:
        for job in self._running:
            if job.started_at is not None and now - job.started_at >= job.hang_seconds:
                job.is_hung = True

    def _hung_count(self) -> int:
        return sum(job.is_hung for job in self._running)

    def _refuse_where_all_hang(self) -> None:
        if self._hung_count() >= self._size + self._most_replaced:
            raise Unavailable(f"all threads of {self.name} hang")

    def _most_alive(self) -> int:
        return self._size + min(self._hung_count(), self._most_replaced)

    def _engage(self) -> None:
        """Use a thread for the waiting work: an idle one, else a new one, up to the limit."""
        if self._idle >= len(self._queue):
            self._changed.notify()
        while self._idle < len(self._queue) and self._alive < self._most_alive():
            self._alive += 1
            self._idle += 1  # until it takes its first job
            threading.Thread(target=self._serve, name=self.name, daemon=True).start()

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            job.do()
            with self._changed:
                self._running.discard(job)
                self._idle += 1
            del job

    def _next(self) -> "Job[Any] | None":
        with self._changed:
            while True:
                if self._is_closed or self._alive > self._most_alive():
                    self._alive -= 1
                    self._idle -= 1
                    return None
                if self._queue:
                    job = self._queue.popleft()
                    job.started_at = job.now()
                    self._running.add(job)
                    self._idle -= 1
                    return job
                self._changed.wait()


async def _is_done_within(future: "asyncio.Future[Any]", seconds: float) -> bool:
    """As asyncio.wait, at half of its cost; a caller that is cancelled does not cancel the future.

    Scans of thousands of partitions go through here.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    return future.done()


def _consume_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieves the failure of an abandoned future, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


THREADS_DEFAULT = 16
_STOP_WAIT_SECONDS = 5.0
FINISH_MS = 2_000
"""How long the end of a process waits for file work that has begun."""
_LONG_WORK_MS = 600_000


class StopFlag:
    """Set when the caller has given up; work checks it between steps."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Unavailable if the caller was cancelled."""
        if self._event.is_set():
            raise Unavailable("the caller gave up; nothing was published")


class FileThreads(Threads):
    """Runs synchronous file work off the event loop; its creator calls `close`."""

    def __init__(
        self,
        threads: int = THREADS_DEFAULT,
        max_pending: int = MAX_PENDING_DEFAULT,
        hang_ms: int = HANG_MS_DEFAULT,
    ) -> None:
        super().__init__("rsm-file", threads, hang_ms=hang_ms, max_pending=max_pending)

    async def run_stoppable(self, work: Callable[[StopFlag], T]) -> T:
        """As `run`, for long work that changes the store and checks a flag. Only its caller's limit
        makes it fail; after 10 minutes another thread replaces it.
        """
        flag = StopFlag()

        def give_up() -> float:
            flag.set()
            return _STOP_WAIT_SECONDS

        job = self.begin(partial(work, flag), hang_ms=_LONG_WORK_MS)
        return await self.result(job, give_up)
