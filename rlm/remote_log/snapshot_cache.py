"""Keeps the last snapshot of every partition we lead, for the proxy's view and for status.

Tasks and the proxy's barrier both take snapshots through this cache, so that the proxy's
synchronous view is as fresh as any other. A snapshot is valid for one leader epoch: within it, the
lineage is fixed and the log only grows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from kip405.errors import Fenced
from kip405.ids import PartitionKey
from rlm.broker.answers import TopicDescription
from rlm.broker.leadership import LedPartition
from rlm.remote_log.lineage_publisher import LineagePublisher
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots, TopicSnapshot
from rlmm.coalesced import Coalesced


class SnapshotCache:
    """Implements `Snapshots`; keeps the last snapshot of each partition, once the lineage is
    published.
    """

    def __init__(self, reader: Snapshots, lineage_publisher: LineagePublisher) -> None:
        self._reader = reader
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
            snapshot = await self._reader.take(led)
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

    async def topic(self, led: LedPartition) -> TopicSnapshot:
        """See `Snapshots`."""
        return await self._reader.topic(led)

    async def check_leadership(self, led: LedPartition) -> TopicDescription:
        """See `Snapshots`."""
        return await self._reader.check_leadership(led)


class SnapshotTaker(Protocol):
    """Takes snapshots (SnapshotCache, CoalescedSnapshots)."""

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """See `Snapshots`."""
        ...


class CoalescedSnapshots:
    """Coalesces requests for a snapshot of one partition: each caller gets one that began after its
    call, under the newest leadership among its callers.

    Otherwise one fetch per consumer and half a second would take as many snapshots as there are
    consumers. Snapshots are taken in tasks of the owner, so that a caller that is cancelled does
    not end the snapshot that others wait for. When the owner ends, waiting callers are cancelled.
    """

    def __init__(self, snapshots: SnapshotTaker, tasks: asyncio.TaskGroup) -> None:
        self._snapshots = snapshots
        self._tasks = tasks
        self._coalesced: Coalesced[LedPartition, PartitionSnapshot] = Coalesced(
            self._take_newest, group_of=lambda led: led.topic_id_partition.key
        )

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """A snapshot that began after this call; errors as `SnapshotCache.take`."""
        result = await asyncio.shield(self._tasks.create_task(self._result(led)))
        if isinstance(result, Exception):
            raise result
        return result

    async def _result(self, led: LedPartition) -> PartitionSnapshot | Exception:
        try:
            return await self._coalesced.answer(led)
        except Exception as error:  # noqa: BLE001 - goes to the caller, not to the TaskGroup
            return error

    async def _take_newest(
        self, callers: Sequence[LedPartition]
    ) -> Mapping[LedPartition, PartitionSnapshot]:
        newest = max(callers, key=lambda led: led.leader_epoch)
        return dict.fromkeys(callers, await self._snapshots.take(newest))
