"""Keeps the last snapshot of every partition we lead, for the proxy's view and for status.

Tasks and the proxy's barrier both take snapshots through this cache, so that the proxy's
synchronous view is as fresh as any other. A snapshot is valid for one leader epoch: within it, the
lineage is fixed and the log only grows.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kip405.errors import Fenced
from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.log_dir.scanner import LogDirs
from rlm.remote_log.lineage_publisher import LineagePublisher
from rlm.remote_log.ports import Broker, Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, SnapshotReader
from rsm_plugins.threads import Threads


class SnapshotCache(SnapshotReader):
    """A reader that keeps the last snapshot of each partition, once the lineage is published."""

    def __init__(
        self,
        *,
        node_id: int,
        broker: Broker,
        log_dirs: LogDirs,
        threads: Threads,
        ledger: Ledger,
        settings: Settings,
        max_orphans: int,
        barrier_deadline_ms: int,
        lineage_publisher: LineagePublisher,
    ) -> None:
        super().__init__(
            node_id=node_id,
            broker=broker,
            log_dirs=log_dirs,
            threads=threads,
            ledger=ledger,
            settings=settings,
            max_orphans=max_orphans,
            barrier_deadline_ms=barrier_deadline_ms,
        )
        self._lineage_publisher = lineage_publisher
        self._snapshots: dict[PartitionKey, PartitionSnapshot] = {}
        self._begun = 0
        self._newest: dict[PartitionKey, tuple[int, int]] = {}
        """Leader epoch and number of the snapshot that decided what is kept, or that nothing is."""

    @property
    def snapshots(self) -> Mapping[PartitionKey, PartitionSnapshot]:
        """The last snapshot of each partition that was led here when it was taken."""
        return MappingProxyType(self._snapshots)

    def of(self, led: LedPartition) -> PartitionSnapshot | None:
        """The last snapshot under this leadership, None if there is none yet."""
        snapshot = self._snapshots.get(led.topic_id_partition.key)
        if snapshot is None or snapshot.led.leader_epoch != led.leader_epoch:
            return None
        return snapshot

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """Take a snapshot and keep it; a partition that is led elsewhere is dropped.

        A snapshot that was overtaken while its lineage was published is not kept.
        """
        key = led.topic_id_partition.key
        self._begun += 1
        mine = led.leader_epoch, self._begun
        try:
            snapshot = await super().take(led)
        except Fenced:
            self._newest[key] = max(mine, self._newest.get(key, mine))
            known = self._snapshots.get(key)
            if known is not None and known.led.leader_epoch <= led.leader_epoch:
                del self._snapshots[key]
                self._lineage_publisher.forget(key)
            raise
        await self._lineage_publisher.publish(snapshot)
        if mine >= self._newest.get(key, mine):
            self._newest[key] = mine
            self._snapshots[key] = snapshot
        return snapshot


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """A snapshot that has not begun yet; `led` is the newest leadership among its callers."""

    led: LedPartition
    future: asyncio.Future[PartitionSnapshot]


class CoalescedSnapshots:
    """Coalesces requests for a snapshot of one partition: each caller gets one that began after its
    call.

    Otherwise one fetch per consumer and half a second would take as many snapshots as there are
    consumers.
    """

    def __init__(self, snapshots: SnapshotCache, tasks: asyncio.TaskGroup) -> None:
        self._snapshots = snapshots
        self._tasks = tasks
        self._running: dict[PartitionKey, asyncio.Task[None]] = {}
        self._next: dict[PartitionKey, _Waiting] = {}

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """A snapshot that began after this call; errors as `SnapshotCache.take`."""
        key = led.topic_id_partition.key
        waiting = self._next.get(key)
        if waiting is None:
            future: asyncio.Future[PartitionSnapshot] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            waiting = self._next[key] = _Waiting(led=led, future=future)
            if key not in self._running:
                self._begin(key)
        elif waiting.led.leader_epoch < led.leader_epoch:
            waiting.led = led
        return await asyncio.shield(waiting.future)

    def _begin(self, key: PartitionKey) -> None:
        waiting = self._next.pop(key)
        task = self._tasks.create_task(self._take(waiting))
        self._running[key] = task
        task.add_done_callback(lambda ended: self._ended(key, waiting, ended))

    def _ended(self, key: PartitionKey, taken: _Waiting, task: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            if key in self._next:
                self._begin(key)
            return
        # The TaskGroup ends: no further snapshot begins, and a task may be cancelled unstarted.
        follower = self._next.pop(key, None)
        for waiting in (taken, follower):
            if waiting is not None:
                waiting.future.cancel()

    async def _take(self, waiting: _Waiting) -> None:
        try:
            snapshot = await self._snapshots.take(waiting.led)
        except Exception as error:  # noqa: BLE001 - goes to those who wait, not to the TaskGroup
            if not waiting.future.done():
                waiting.future.set_exception(error)
        else:
            if not waiting.future.done():
                waiting.future.set_result(snapshot)
