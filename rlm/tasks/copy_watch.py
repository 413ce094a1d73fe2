"""Skips a scheduled copy task when a recent cleanup snapshot shows nothing to copy.

If the snapshot shows something to copy, a copy task is requested at once. That task takes a
snapshot of its own, since what is copied must not depend on the snapshot of another task. So an
idle partition costs one snapshot per interval instead of one per task.

Both schedules wait for their interval with a jitter of a fifth, so two cleanup snapshots may lie
more than one interval apart. A snapshot counts for a little longer than that: otherwise copy tasks
that fall between would take a snapshot each. A partition without any new cleanup snapshot gets a
copy task within two and a half intervals.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks.copy import CopyTask
from rlm.tasks.pool import TaskPool
from rlm.tasks.schedule import submit

_COUNTS_FOR_INTERVALS = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _Idle:
    """Nothing was to be copied under this epoch; valid until then (monotonic ms)."""

    leader_epoch: int
    until_ms: int


class CopyWatch:
    """`interval_ms`: that of copy tasks; a snapshot that is a quarter older does not skip one."""

    def __init__(
        self,
        *,
        task: CopyTask,
        pool: TaskPool,
        copy: Callable[[LedPartition], Awaitable[None]],
        clock: Clock,
        interval_ms: Callable[[], int],
    ) -> None:
        self._task = task
        self._pool = pool
        self._copy = copy
        self._clock = clock
        self._interval_ms = interval_ms
        self._idle: dict[PartitionKey, _Idle] = {}

    def saw(self, snapshot: PartitionSnapshot, began_at_ms: int) -> None:
        """A snapshot was taken that began at `began_at_ms` (monotonic)."""
        if self._pool.is_running(snapshot.key):
            return  # that task has newer information
        if self._task.is_due(snapshot):
            self.request(snapshot.led)
            return
        counts_for_ms = int(_COUNTS_FOR_INTERVALS * self._interval_ms())
        self._idle[snapshot.key] = _Idle(
            leader_epoch=snapshot.led.leader_epoch, until_ms=began_at_ms + counts_for_ms
        )

    def request(self, led: LedPartition) -> None:
        """Ask for a copy task now, whatever a snapshot has shown."""
        self.forget(led.key)
        submit(self._pool, led.key, lambda: self._copy(led))

    async def scheduled(self, led: LedPartition) -> None:
        """Run a copy task that is due, but not while a snapshot with nothing to copy counts."""
        known = self._idle.get(led.key)
        if (
            known is not None
            and known.leader_epoch == led.leader_epoch
            and self._clock.monotonic_ms() < known.until_ms
        ):
            return
        await self._copy(led)

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._idle.pop(key, None)
