"""Keeps the last snapshot of every partition we lead, once its lineage is published.

Tasks and the proxy's barrier both take snapshots through the cache, so that the proxy's synchronous
view is as fresh as any other. A snapshot is valid for one leader epoch: within it, the lineage is
fixed and the log only grows.

The lineage is published so that services without a broker can read the remote tier (H4), before the
leader's own tier uses the snapshot: readers then refuse or end no later than the leader does. While
the settings topic accepts no records, snapshots are delayed only by one attempt per interval,
because the leader's own clients depend on what the leader sees, not on what readers have received.
rlm.plans.history decides what is published.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, TracebackType

import structlog

from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import PartitionKey
from rlm.broker.answers import TopicDescription
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.history import is_same, known_part, lineage_to_publish, record_of
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import (
    PartitionSnapshot,
    Snapshots,
    SnapshotTaker,
    TopicSnapshot,
    is_lineage_settled,
    unknown_epoch,
)
from rlmm.coalesced import Coalesced
from rlmm.settings_records import HistoryRecord

QUIET_MS = 30_000
log = structlog.get_logger()


class LineagePublisher:
    """Publishes history records of the partitions led here, one at a time per partition."""

    def __init__(self, *, settings: Settings, ledger: Ledger, clock: Clock) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._publishing: dict[PartitionKey, asyncio.Lock] = {}
        self._quiet_until_ms: dict[PartitionKey, int] = {}

    async def publish(self, snapshot: PartitionSnapshot) -> None:
        """Return once readers can know what the snapshot has found; after a failure a later
        snapshot retries.
        """
        try:
            if self._due(snapshot) is not None:
                async with self._publishing.setdefault(snapshot.key, asyncio.Lock()):
                    await self._publish(snapshot)
        except RemoteStorageError as error:
            self._quiet_until_ms[snapshot.key] = self._clock.monotonic_ms() + QUIET_MS
            log.warning("lineage_not_published", **_labels(snapshot), error=str(error))

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._publishing.pop(key, None)
        self._quiet_until_ms.pop(key, None)

    async def _publish(self, snapshot: PartitionSnapshot) -> None:
        """Publish what is still missing after other snapshots of the partition have published."""
        record = self._due(snapshot)
        if record is None:
            return
        await self._settings.publish(record, snapshot.led.leader_epoch)
        self._quiet_until_ms.pop(snapshot.key, None)
        epochs = len(record.lineage.entries)
        log.warning("lineage_published", **_labels(snapshot), frozen=record.frozen, epochs=epochs)

    def _due(self, snapshot: PartitionSnapshot) -> HistoryRecord | None:
        if self._clock.monotonic_ms() < self._quiet_until_ms.get(snapshot.key, 0):
            return None
        published, trusted = self._settings.view.history(snapshot.key), self._ledger.problem is None
        record = lineage_to_publish(
            snapshot.ledger,
            snapshot.lineage,
            snapshot.frozen,
            leader_epoch=snapshot.led.leader_epoch,
            published=published,
            trusted=trusted,
        )
        if record is not None:
            return self._known_part(snapshot, record, published) or record
        if trusted and _may_be_cut(snapshot, published):
            record = record_of(snapshot.ledger, snapshot.lineage, None, published)
            record = self._known_part(snapshot, record, published)
            return None if record is not None and is_same(record, published) else record
        return None

    def _known_part(
        self, snapshot: PartitionSnapshot, record: HistoryRecord, published: HistoryRecord | None
    ) -> HistoryRecord | None:
        """The record without what a lost copy may contradict once it is found again (H6)."""
        unknown = unknown_epoch(snapshot, self._settings)
        if unknown is None:
            return record
        return known_part(snapshot.ledger, record, unknown, published)


def _may_be_cut(snapshot: PartitionSnapshot, published: HistoryRecord | None) -> bool:
    """Whether the broker's own retention may truncate epochs that only its epoch file knows (H8).
    Our own trims publish the lineage first (rlm.tasks.trim).
    """
    is_ours = snapshot.frozen is None and snapshot.ledger.newest_epoch <= snapshot.led.leader_epoch
    return (
        is_ours
        and snapshot.topic.retention_bounded is not None
        and not is_lineage_settled(snapshot, published, snapshot.ledger.readable_end)
    )


def _labels(snapshot: PartitionSnapshot) -> dict[str, object]:
    led = snapshot.led
    return {**led.topic_partition._asdict(), "leader_epoch": led.leader_epoch}


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
        self.on_kept: Callable[[PartitionKey], None] = _nobody
        """Called when a snapshot was kept."""

    @property
    def snapshots(self) -> Mapping[PartitionKey, PartitionSnapshot]:
        """The last snapshot of each partition that was led here when it was taken."""
        return MappingProxyType(self._snapshots)

    def of(self, led: LedPartition) -> PartitionSnapshot | None:
        """The last snapshot under this leadership, None if there is none yet."""
        snapshot = self._snapshots.get(led.key)
        if snapshot is None or snapshot.led.leader_epoch != led.leader_epoch:
            return None
        return snapshot

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """Take a snapshot and keep it; a partition that is led elsewhere is dropped.

        A snapshot that was overtaken while its lineage was published is not kept.
        """
        key = led.key
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
            self.on_kept(key)
        return snapshot

    async def topic(self, led: LedPartition) -> TopicSnapshot:
        """See `Snapshots`."""
        return await self._reader.topic(led)

    async def check_leadership(self, led: LedPartition) -> TopicDescription:
        """See `Snapshots`."""
        return await self._reader.check_leadership(led)


def _nobody(_: PartitionKey) -> None:
    return None


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
    origin: TracebackType | None
    """Of the error alone, without the frames of the callers in which it is raised."""


class CoalescedSnapshots:
    """Coalesces requests for a snapshot of one partition: each caller gets one that began after its
    call, under the newest leadership among its callers.

    Otherwise one fetch per consumer and half a second would take as many snapshots as there are
    consumers. Snapshots are taken in tasks of the owner, so that a caller that is cancelled does
    not end the snapshot that others wait for. Equal callers that wait for the next snapshot share a
    task: while a snapshot hangs, callers come and go, and leave nothing behind (G10). When the
    owner ends, waiting callers are cancelled.
    """

    def __init__(self, snapshots: SnapshotTaker, tasks: asyncio.TaskGroup) -> None:
        self._snapshots = snapshots
        self._tasks = tasks
        self._next: dict[LedPartition, asyncio.Task[PartitionSnapshot | _Failed]] = {}
        self._coalesced: Coalesced[LedPartition, PartitionSnapshot] = Coalesced(
            self._take_newest, group_of=lambda led: led.key
        )

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        """A snapshot that began after this call; errors as `SnapshotCache.take`."""
        task = self._next.get(led)
        if task is None:
            task = self._next[led] = self._tasks.create_task(self._result(led))
            task.add_done_callback(partial(self._begun, led))
        result = await asyncio.shield(task)
        if isinstance(result, _Failed):
            raise result.error.with_traceback(result.origin)
        return result

    async def _result(self, led: LedPartition) -> PartitionSnapshot | _Failed:
        try:
            return await self._coalesced.answer(led)
        except Exception as error:  # noqa: BLE001 - goes to the callers, not to the TaskGroup
            return _Failed(error, error.__traceback__)

    def _begun(
        self, led: LedPartition, task: asyncio.Task[PartitionSnapshot | _Failed] | None = None
    ) -> None:
        """Later callers need another snapshot than that of `task`, or of the task known now."""
        if task is None or self._next.get(led) is task:
            self._next.pop(led, None)

    async def _take_newest(
        self, callers: Sequence[LedPartition]
    ) -> Mapping[LedPartition, PartitionSnapshot]:
        for led in callers:
            self._begun(led)
        newest = max(callers, key=lambda led: led.leader_epoch)
        return dict.fromkeys(callers, await self._snapshots.take(newest))
