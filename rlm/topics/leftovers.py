"""Removes what no settings record of a topic accounts for (H7, H10).

- Partition-delete records of a deletion that was revoked, or that was over when an interruption
  came; or that arrived when the topic had been forgotten.
- Everything else of a topic that has no settings record of its own: a record that arrived late, or
  that was written when the topic was deleted while it was being enabled. It goes when the topic was
  unknown to every broker for so long that its end would be over (rlm/topics/ends.py). A segment
  that can be read is never removed here: nobody has decided that, so the topic is kept from then on
  and `rlm purge` shows it.
"""

from collections.abc import Callable
from typing import Protocol

import structlog

from kip405.contracts import Presence
from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.tasks.evidence import FoundManifest
from rlm.tasks.partition_end import EndPermit, Ledger, PartitionEnd
from rlm.topics.ports import Settings
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import KEPT_LEFTOVERS, TopicRecord

log = structlog.get_logger(__name__)
_COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_REVOKED_IN = ("enabled", "kept")
"""States of a topic in which partition-delete records are removed. Nobody deletes by them: before
each step the settings are read to a barrier. They were revoked, or arrived when the deletion was
over and the topic was enabled again. What `rlm partition discard` has of a topic that is disabled
meanwhile goes too; its task continues when the topic is enabled.
"""
IsChosen = Callable[[Uuid], bool]
"""Whether this service acts for a topic."""


class Evidence(Protocol):
    """What the stores have of a segment now (rlm.tasks.evidence)."""

    async def manifest(self, metadata: RemoteLogSegmentMetadata) -> FoundManifest: ...

    async def presence(self, metadata: RemoteLogSegmentMetadata) -> Presence: ...

    async def is_readable(self, metadata: RemoteLogSegmentMetadata) -> bool: ...


class StillReadable(Fenced):
    """A segment of a topic without a settings record can be read; `topic` was its name."""

    def __init__(self, metadata: RemoteLogSegmentMetadata) -> None:
        super().__init__(
            f"{metadata.segment_id} can be read, and no settings record of its topic says that it "
            "may be deleted"
        )
        self.topic = metadata.topic_id_partition.topic


def kept_record(topic_id: Uuid, name: str) -> TopicRecord:
    """The settings record of a topic of which nothing else is known: its remote data is kept. It
    says what keeps it, because another topic may have the name, and this record is the newer one.
    """
    return TopicRecord(
        topic_id=topic_id,
        name=name,
        mode="copy",
        state="kept",
        trim=False,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-1,
        local_retention_bytes=-1,
        deletion_cause=KEPT_LEFTOVERS,
    )


class Leftovers:
    """Its owner proves that a topic is gone, and says which service acts."""

    def __init__(
        self,
        *,
        settings: Settings,
        ledger: Ledger,
        partition_end: PartitionEnd,
        evidence: Evidence,
        barrier_deadline_ms: int,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._partition_end = partition_end
        self._evidence = evidence
        self._barrier_deadline_ms = barrier_deadline_ms

    def topic_ids(self) -> frozenset[Uuid]:
        """Topics without a settings record of their own, of which there is anything else."""
        view, ledger = self._settings.view, self._ledger
        listed = {key.topic_id for key in ledger.partitions() if not ledger.ledger(key).is_empty}
        known = {record.topic_id for record in view.topics()}
        return frozenset(view.topic_ids() | listed) - known

    async def remove_records(self, is_chosen: IsChosen) -> None:
        """Remove partition-delete records that nothing needs, one by one."""
        topics = {record.topic_id: record for record in self._settings.view.topics()}
        for key in self._ledger.partitions():
            record, found = topics.get(key.topic_id), self._ledger.ledger(key)
            if not self._is_needless(key, record, found) or not is_chosen(key.topic_id):
                continue
            try:
                await self._remove_record(key, record)
            except RemoteStorageError as error:
                log.warning("topic_end_failed", partition=str(key), error=str(error))

    def _is_needless(
        self, key: PartitionKey, record: TopicRecord | None, found: PartitionLedger
    ) -> bool:
        state = found.deletion_state
        if record is None:  # what arrives when all is deleted is swept once the topic is enabled
            return state is not None and (not found.entries or found.is_deleted)
        is_discarded = record.state == "enabled" and self._settings.view.discard(key) is not None
        return state is not None and record.state in _REVOKED_IN and not is_discarded

    async def _remove_record(self, key: PartitionKey, record: TopicRecord | None) -> None:
        await self._settings.barrier(self._barrier_deadline_ms)
        await self._ledger.barrier(key, self._barrier_deadline_ms)
        now = self._settings.view.topic(key.topic_id)
        if now != record or not self._is_needless(key, now, self._ledger.ledger(key)):
            return
        if record is None and not self._ledger.ledger(key).entries:
            await self._partition_end.forget(key.topic_id, (key,))
        else:
            await self._partition_end.unmark(key)

    async def remove(self, topic_id: Uuid, permit: EndPermit) -> None:
        """Remove everything of a topic that is gone; `permit` is asked before every step.

        Fenced: not permitted. StillReadable: some of it can be read. Call again after any error.
        """
        await permit.check()
        keys = tuple(key for key in self._ledger.partitions() if key.topic_id == topic_id)
        for key in keys:
            await self._ledger.barrier(key, self._barrier_deadline_ms)
            await self._refuse_copies(key)
        for key in keys:
            await self._delete(key, permit)
        await permit.check()
        await self._partition_end.forget(topic_id, keys)
        log.warning("topic_leftovers_removed", topic_id=str(topic_id))

    async def _delete(self, key: PartitionKey, permit: EndPermit) -> None:
        entries = self._ledger.ledger(key).entries.values()
        names = {entry.metadata.topic_id_partition.topic for entry in entries}
        if not names:
            return
        if self._ledger.ledger(key).is_deleted:
            await self._partition_end.unmark(key)
        partition = TopicIdPartition(
            topic_id=key.topic_id, topic=min(names), partition=key.partition
        )
        await self._partition_end.mark(partition)
        await self._partition_end.begin(partition, permit)
        await self._partition_end.delete(partition, permit)

    async def _refuse_copies(self, key: PartitionKey) -> None:
        for entry in self._ledger.ledger(key).entries.values():
            if await self._is_copy(entry.metadata):
                raise StillReadable(entry.metadata)

    async def _is_copy(self, metadata: RemoteLogSegmentMetadata) -> bool:
        if metadata.state is _COPIED and await self._evidence.is_readable(metadata):
            return True
        found = await self._evidence.manifest(metadata)
        if found.metadata is None:
            return bool(found.unreadable)
        return await self._evidence.presence(found.metadata) is Presence.COMPLETE
