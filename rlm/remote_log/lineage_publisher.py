"""Publishes the leader's lineage, so that services without a broker can read the remote tier (H4).

It publishes before the leader's own tier uses a snapshot, so that readers refuse or end no later
than the leader does. While the settings topic accepts no records, snapshots are delayed only by one
attempt per interval: the leader's own clients depend on what the leader sees, not on what readers
have received. plans/history decides what is published.
"""

import asyncio

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.plans.history import is_settled, lineage_to_publish, record_of
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot
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
            log.warning("lineage_not_published", **_place(snapshot), error=str(error))

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
        log.warning("lineage_published", **_place(snapshot), frozen=record.frozen, epochs=epochs)

    def _due(self, snapshot: PartitionSnapshot) -> HistoryRecord | None:
        if self._clock.monotonic_ms() < self._quiet_until_ms.get(snapshot.key, 0):
            return None
        told, trusted = self._settings.view.history(snapshot.key), self._ledger.problem is None
        record = lineage_to_publish(
            snapshot.ledger,
            snapshot.lineage,
            snapshot.frozen,
            leader_epoch=snapshot.led.leader_epoch,
            told=told,
            trusted=trusted,
        )
        if record is None and trusted and _may_be_cut(snapshot, told):
            return record_of(snapshot.ledger, snapshot.lineage, None, told)
        return record


def _may_be_cut(snapshot: PartitionSnapshot, told: HistoryRecord | None) -> bool:
    """Whether the broker's own retention may truncate epochs that only its epoch file knows (H8).
    Our own trims publish the lineage first (rlm.tasks.trim).
    """
    is_ours = snapshot.frozen is None and snapshot.ledger.newest_epoch <= snapshot.led.leader_epoch
    return (
        is_ours
        and snapshot.topic.retention_bounded is not None
        and not is_settled(
            snapshot.ledger,
            snapshot.lineage,
            told=told,
            local=snapshot.log.lineage,
            bound=snapshot.ledger.readable_end,
        )
    )


def _place(snapshot: PartitionSnapshot) -> dict[str, object]:
    place = snapshot.led.topic_id_partition
    return {
        "topic": place.topic,
        "partition": place.partition,
        "leader_epoch": snapshot.led.leader_epoch,
    }
