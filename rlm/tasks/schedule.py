"""The schedules that feed the task pools: a job for every led partition, once per interval.

A schedule submits the partitions of enabled topics that its node leads; the pool bounds, orders and
isolates the jobs.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from kip405.errors import Busy
from kip405.ids import PartitionKey
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock, jittered_ms
from rlm.remote_log.ports import Settings
from rlm.tasks.pool import Job, TaskPool

log = structlog.get_logger()

TaskRun = Callable[[LedPartition], Awaitable[None]]


def led_rows(leadership: Leadership, settings: Settings, node_id: int) -> tuple[LedPartition, ...]:
    """The partitions that the node leads of topics on record, in any state."""
    return leadership.led_of(node_id, (record.topic_id for record in settings.view.topics()))


class Schedule:
    """Submits one kind of task for the partitions of a node."""

    def __init__(
        self,
        *,
        pool: TaskPool,
        leadership: Leadership,
        settings: Settings,
        node_id: int,
        clock: Clock,
        interval_ms: int,
        forget: Callable[[PartitionKey], None],
    ) -> None:
        self._pool = pool
        self._leadership = leadership
        self._settings = settings
        self._node_id = node_id
        self._clock = clock
        self._interval_ms = interval_ms
        self._forget = forget
        self._known: set[PartitionKey] = set()

    async def run(self, task: TaskRun) -> None:
        """Submit until cancelled; partitions that are led elsewhere now are dropped."""
        while True:
            for row in self._led():
                submit(self._pool, row.key, partial(task, row))
            await self._clock.sleep_ms(jittered_ms(self._interval_ms))

    def _led(self) -> tuple[LedPartition, ...]:
        led = led_rows(self._leadership, self._settings, self._node_id)
        self._forget_others(row.key for row in led)
        return led

    def _forget_others(self, keys: Iterable[PartitionKey]) -> None:
        now = set(keys)
        for key in self._known - now:
            self._pool.forget(key)
            self._forget(key)
        self._known = now


def submit(pool: TaskPool, key: PartitionKey, job: Job) -> bool:
    """Queue a job; whether that was done. Where too many wait, the next interval tries again."""
    try:
        return pool.submit(key, job)
    except Busy as error:
        log.warning("task_queue_full", task=pool.name, error=str(error))
        return False
