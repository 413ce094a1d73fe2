"""Task pools: bounded workers, fair between partitions (G6).

Copy and cleanup have a pool each, so that neither can starve the other. A pool runs one job per
partition at a time, in the order in which they were submitted; those of partitions that come last
get every fourth turn at least. The error of a job is kept per partition with a growing back-off, so
one failing partition does not affect the others. This is the only code of the tasks that catches
every exception. Must not know what the jobs do, nor who submits them (rlm.tasks.schedule).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import structlog

from kip405.errors import Busy, RemoteStorageError
from kip405.ids import PartitionKey
from rlm.clock import Clock, backoff_ms
from rlm.plans.copy_turns import is_turn_of_last
from rlmm.waiting import unless_broken_off

log = structlog.get_logger()
Job = Callable[[], Awaitable[None]]
Backoff = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """The last failure of a partition's job, and since when it has been failing.

    `at_ms` wall time; `since_ms` (the first failure in a row) and `retry_at_ms` monotonic.
    """

    error: Exception
    failures_in_a_row: int
    at_ms: int
    since_ms: int
    retry_at_ms: int

    @property
    def message(self) -> str:
        """Kind and message, for people."""
        return f"{type(self.error).__name__}: {self.error}"


class TaskPool:
    """`size` jobs run at once and at most `queue_limit` partitions wait; one more is Busy.

    `run` works until cancelled, in the composition root's TaskGroup; cancelling it cancels the
    jobs.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        size: int,
        queue_limit: int,
        failed: Callable[[str], None] = lambda _name: None,
        backoff: Backoff = backoff_ms,
    ) -> None:
        self.name = name
        self._clock = clock
        self._size = size
        self._queue_limit = queue_limit
        self._failed = failed
        self._backoff = backoff
        self._waiting: dict[PartitionKey, Job] = {}
        self._ready: deque[PartitionKey] = deque()
        self._ready_last: deque[PartitionKey] = deque()
        self._first_in_a_row = 0
        self.comes_last: Callable[[PartitionKey], bool] = lambda _key: False
        """Whether a job of the partition waits until others have run (rlm.plans.copy_turns)."""
        self.ended: Callable[[PartitionKey], None] = lambda _key: None
        """Called when a job of the partition has ended, well or not."""
        self._ready_count = asyncio.Semaphore(0)
        self._running: set[PartitionKey] = set()
        self._workers: asyncio.TaskGroup | None = None
        self._worker_count = 0
        self._errors: dict[PartitionKey, TaskFailure] = {}

    @property
    def size(self) -> int:
        """How many jobs run at once."""
        return self._size

    @property
    def last_errors(self) -> Mapping[PartitionKey, TaskFailure]:
        """The failure of each partition whose last job failed."""
        return MappingProxyType(self._errors)

    def last_error(self, key: PartitionKey) -> TaskFailure | None:
        """The failure of the partition's last job. Called for every partition, as `is_running`."""
        return self._errors.get(key)

    @property
    def running(self) -> frozenset[PartitionKey]:
        return frozenset(self._running)

    def is_running(self, key: PartitionKey) -> bool:
        """Whether the partition's job is running. Called for every partition, so it copies no
        set.
        """
        return key in self._running

    def is_waiting(self, key: PartitionKey) -> bool:
        """Whether a job of the partition waits."""
        return key in self._waiting

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def submit(self, key: PartitionKey, job: Job) -> bool:
        """Queue a job behind the partition's running one; Busy if too many partitions wait.

        False, and nothing queued: a job already waits, or the partition is in back-off.
        """
        if not self.takes(key):
            return False
        if len(self._waiting) >= self._queue_limit:
            raise Busy(f"{len(self._waiting)} partitions wait for the {self.name} tasks already")
        self._waiting[key] = job
        if key not in self._running:
            self._make_ready(key)
        return True

    def takes(self, key: PartitionKey) -> bool:
        """Whether a job of the partition would be queued now: none waits, and it may be tried."""
        return not (key in self._waiting or self._is_backing_off(key))

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here: its waiting job and its error are dropped."""
        self._waiting.pop(key, None)
        self._errors.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as workers:
            self._workers, self._worker_count = workers, 0
            try:
                self._add_workers()
                await asyncio.Event().wait()  # until cancelled
            finally:
                self._workers = None  # it takes no task while it ends

    def change_size(self, size: int) -> None:
        """So many jobs run at once from now on. Those that run beyond it are finished, and none
        begins before fewer of them run.
        """
        self._size = size
        self._add_workers()

    def _add_workers(self) -> None:
        while self._workers is not None and self._worker_count < self._size:
            self._worker_count += 1
            self._workers.create_task(self._work())

    async def _work(self) -> None:
        while self._workers is not None:  # else it was cancelled, and its last job ended otherwise
            await self._ready_count.acquire()
            if self._worker_count > self._size:
                self._worker_count -= 1
                self._ready_count.release()  # for another worker
                return
            key = self._next()
            if key in self._running or key not in self._waiting:
                continue  # dropped, and perhaps submitted again, since it became ready
            job = self._waiting.pop(key)
            self._running.add(key)
            try:
                await self._attempt(key, job)
            finally:
                self._running.discard(key)
                if key in self._waiting:
                    self._make_ready(key)

    def _next(self) -> PartitionKey:
        takes_last = is_turn_of_last(
            first_wait=bool(self._ready),
            last_wait=bool(self._ready_last),
            first_in_a_row=self._first_in_a_row,
        )
        self._first_in_a_row = 0 if takes_last else self._first_in_a_row + 1
        return (self._ready_last if takes_last else self._ready).popleft()

    async def _attempt(self, key: PartitionKey, job: Job) -> None:
        try:
            await unless_broken_off(job, "the task")
        except RemoteStorageError as error:
            before = self._errors.get(key)
            self._note(key, error)
            if before is None or str(before.error) != str(error):
                log.warning("task_failed", task=self.name, partition=str(key), error=str(error))
        except Exception as error:
            self._note(key, error)
            log.exception("task_crashed", task=self.name, partition=str(key))
        else:
            self._errors.pop(key, None)
        self._say_ended(key)

    def _say_ended(self, key: PartitionKey) -> None:
        try:
            self.ended(key)
        except Exception:  # what listens must not end the pool, and with it every job
            log.exception("task_end_not_noted", task=self.name, partition=str(key))

    def _note(self, key: PartitionKey, error: Exception) -> None:
        self._failed(self.name)
        before = self._errors.get(key)
        failures = before.failures_in_a_row + 1 if before else 1
        now_ms = self._clock.monotonic_ms()
        self._errors[key] = TaskFailure(
            error=error,
            failures_in_a_row=failures,
            at_ms=self._clock.now_ms(),
            since_ms=before.since_ms if before else now_ms,
            retry_at_ms=now_ms + int(self._backoff(failures - 1)),
        )

    def _is_backing_off(self, key: PartitionKey) -> bool:
        error = self._errors.get(key)
        return error is not None and self._clock.monotonic_ms() < error.retry_at_ms

    def _make_ready(self, key: PartitionKey) -> None:
        (self._ready_last if self.comes_last(key) else self._ready).append(key)
        self._ready_count.release()
