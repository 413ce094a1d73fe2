"""The schedules that feed the task pools: a job for every led partition, once per interval.

A schedule submits the partitions of enabled topics that its node leads; the pool bounds, orders and
isolates the jobs. Most partitions have nothing to do, and what a job needs to find that out is a
snapshot. So `run_in_groups` takes the snapshots of many partitions at a time, before their jobs are
submitted: what all of them ask the broker, the settings and the ledger is then coalesced
(`rlmm/coalesced.py`) into one request for each question, instead of one for each partition. A
partition whose snapshot takes long or fails delays no other one: its own job takes another one, and
reports what is wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

import structlog

from kip405.errors import Busy
from kip405.ids import PartitionKey
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock, jittered_ms
from rlm.remote_log.ports import Settings
from rlm.tasks.pool import Job, TaskPool
from rlmm.records import ledger_partition

log = structlog.get_logger()
GROUP_SIZE = 100
"""Partitions whose snapshots are taken together. More of them would keep the event loop, which
serves clients too, busy for longer at a time than requests take.
"""
NEXT_GROUP_AFTER_MS = 1_000
"""The next group waits at most so long for the jobs of the one before."""
_POLL_MS = 100

TaskRun = Callable[[LedPartition], Awaitable[None]]
S = TypeVar("S")
See = Callable[[LedPartition], Awaitable[S]]
SeenRun = Callable[[LedPartition, S | None], Awaitable[None]]


def led_rows(leadership: Leadership, settings: Settings, node_id: int) -> tuple[LedPartition, ...]:
    """The partitions that the node leads of topics on record, in any state."""
    return leadership.led_of(node_id, (record.topic_id for record in settings.view.topics()))


class Schedule:
    """Submits one kind of task for the partitions of a node, as far as it `takes` them. What it
    does not take is not forgotten while the node leads it: the files that are held open for its
    records may be the last of them (rlm.tasks.segment_holds).
    """

    def __init__(
        self,
        *,
        pool: TaskPool,
        leadership: Leadership,
        settings: Settings,
        node_id: int,
        clock: Clock,
        interval_ms: Callable[[], int],
        forget: Callable[[PartitionKey], None],
        takes: Callable[[LedPartition], bool] = lambda _led: True,
    ) -> None:
        self._takes = takes
        self._pool = pool
        self._leadership = leadership
        self._settings = settings
        self._node_id = node_id
        self._clock = clock
        self._interval_ms = interval_ms
        self._forget = forget
        self._known: set[PartitionKey] = set()
        self._ending: set[PartitionKey] = set()

    async def run(self, task: TaskRun) -> None:
        """Submit until cancelled; partitions that are led elsewhere now are dropped."""
        while True:
            for row in self._led():
                submit(self._pool, row.key, partial(task, row))
            await self._clock.sleep_ms(jittered_ms(self._interval_ms()))

    async def run_in_groups(self, see: See[S], task: SeenRun[S]) -> None:
        """The same with what `see` has found of the partition right before, None where it could
        not.
        """
        async with asyncio.TaskGroup() as tasks:
            groups = Groups(
                pool=self._pool,
                see=see,
                task=task,
                is_led=lambda key: key in self._known,
                tasks=tasks,
                clock=self._clock,
            )
            while True:
                ends_ms = self._clock.monotonic_ms() + jittered_ms(self._interval_ms())
                await groups.submit(self._led(), until_ms=ends_ms)
                await self._clock.sleep_ms(max(0, ends_ms - self._clock.monotonic_ms()))

    def _led(self) -> tuple[LedPartition, ...]:
        led = led_rows(self._leadership, self._settings, self._node_id)
        self._forget_others(row.key for row in led)
        return tuple(filter(self._takes, led))

    def _forget_others(self, keys: Iterable[PartitionKey]) -> None:
        """A run that ends after its partition was forgotten leaves something again: that goes in
        the next round.
        """
        now = set(keys)
        gone = (self._known | self._ending) - now
        self._ending = set(filter(self._pool.is_running, gone))
        for key in gone:
            self._pool.forget(key)
            self._forget(key)
        self._known = now


class Groups(Generic[S]):
    """`see` is called for the partitions of a group at a time, `task` is the job. What `see` has
    found may be old when the job begins; the job must look at its age.

    Nothing is submitted for a partition that is not led (`is_led`) when `see` has ended. At most
    one `see` of a partition runs: one that hangs is no reason to begin another one (G10).
    """

    def __init__(
        self,
        *,
        pool: TaskPool,
        see: See[S],
        task: SeenRun[S],
        is_led: Callable[[PartitionKey], bool],
        tasks: asyncio.TaskGroup,
        clock: Clock,
        next_after_ms: int = NEXT_GROUP_AFTER_MS,
    ) -> None:
        self._pool = pool
        self._see = see
        self._task = task
        self._is_led = is_led
        self._tasks = tasks
        self._clock = clock
        self._next_after_ms = next_after_ms
        self._seeing: set[PartitionKey] = set()

    async def submit(self, rows: Sequence[LedPartition], *, until_ms: float) -> None:
        """Submit all of them, group by group, each when few jobs wait: otherwise what is seen would
        be old when its job begins; and when few `see` hang: they may all go on at once. What is
        left at `until_ms` (monotonic) is submitted unseen.
        """
        left = sorted(
            (row for row in rows if row.key not in self._seeing and self._pool.takes(row.key)),
            key=lambda row: (ledger_partition(row.key), row.key.partition),
        )  # those of one partition of the ledger need one barrier
        while left:
            if self._clock.monotonic_ms() >= until_ms:
                for row in left:
                    submit(self._pool, row.key, partial(self._task, row, None))
                return
            if self._pool.waiting_count >= GROUP_SIZE or len(self._seeing) >= GROUP_SIZE:
                await self._clock.sleep_ms(_POLL_MS)
                continue
            group, left = left[:GROUP_SIZE], left[GROUP_SIZE:]
            await self._submit_seen(group)

    async def _submit_seen(self, rows: Sequence[LedPartition]) -> None:
        left = _Left({row.key for row in rows})
        self._seeing.update(left.keys)
        for row in rows:
            self._tasks.create_task(self._see_and_submit(row, left))
        with suppress(TimeoutError):
            async with asyncio.timeout(self._next_after_ms / 1000):
                await left.is_empty.wait()

    async def _see_and_submit(self, row: LedPartition, left: "_Left") -> None:
        seen: S | None = None
        try:
            seen = await self._see(row)
        except Exception as error:  # noqa: BLE001 - the job meets it again, and it is noted there
            log.debug("seen_by_its_job", partition=str(row), error=str(error))
        finally:
            self._seeing.discard(row.key)
        if self._pool.is_running(row.key):
            seen = None  # what runs now may change what was seen
        if not self._is_led(row.key) or not submit(
            self._pool, row.key, partial(self._run, row, seen, left)
        ):
            left.discard(row.key)

    async def _run(self, row: LedPartition, seen: S | None, left: "_Left") -> None:
        try:
            await self._task(row, seen)
        finally:
            left.discard(row.key)


class _Left:
    """The partitions of a group whose jobs have not ended."""

    def __init__(self, keys: set[PartitionKey]) -> None:
        self.keys = keys
        self.is_empty = asyncio.Event()

    def discard(self, key: PartitionKey) -> None:
        self.keys.discard(key)
        if not self.keys:
            self.is_empty.set()


def submit(pool: TaskPool, key: PartitionKey, job: Job) -> bool:
    """Queue a job; whether that was done. Where too many wait, the next interval tries again."""
    try:
        return pool.submit(key, job)
    except Busy as error:
        log.warning("task_queue_full", task=pool.name, error=str(error))
        return False
