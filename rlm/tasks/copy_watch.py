"""What the cleanup's snapshots say of copying: a snapshot of a partition is as good for either.

Nothing to copy: the copy task's next round, with a snapshot of its own, is left out. Something to
copy: a round is asked for at once, and takes its own snapshot, since what is copied stands on that.
So a borrowed snapshot never copies anything; a partition at rest costs one snapshot, not one a
task.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from kip405.errors import Busy
from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.copy import CopyTask
from rlm.tasks.pool import TaskPool

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Idle:
    """Nothing was to be copied under this epoch; good until then (monotonic ms)."""

    leader_epoch: int
    until_ms: int


class CopyWatch:
    """`interval_ms`: that of the copy rounds; a snapshot that began longer ago saves none."""

    def __init__(
        self,
        *,
        task: CopyTask,
        pool: TaskPool,
        copy: Callable[[LedPartition], Awaitable[None]],
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._task = task
        self._pool = pool
        self._copy = copy
        self._clock = clock
        self._interval_ms = interval_ms
        self._idle: dict[PartitionKey, _Idle] = {}

    def saw(self, snapshot: PartitionSnapshot, began_at_ms: int) -> None:
        """A snapshot was taken that began at `began_at_ms` (monotonic)."""
        if snapshot.key in self._pool.running:
            return  # that round knows better
        if self._task.is_due(snapshot):
            self.forget(snapshot.key)
            self._ask_for(snapshot.led)
            return
        self._idle[snapshot.key] = _Idle(
            leader_epoch=snapshot.led.leader_epoch, until_ms=began_at_ms + self._interval_ms
        )

    def _ask_for(self, led: LedPartition) -> None:
        try:
            self._pool.submit(led.topic_id_partition.key, lambda: self._copy(led))
        except Busy as error:
            log.warning("task_queue_full", task=self._pool.name, error=str(error))

    async def scheduled(self, led: LedPartition) -> None:
        """A round whose time has come; left out once for every snapshot that found nothing to
        copy.
        """
        known = self._idle.pop(led.topic_id_partition.key, None)
        if (
            known is not None
            and known.leader_epoch == led.leader_epoch
            and self._clock.monotonic_ms() < known.until_ms
        ):
            return
        await self._copy(led)

    def forget(self, key: PartitionKey) -> None:
        """The partition is led elsewhere now."""
        self._idle.pop(key, None)
