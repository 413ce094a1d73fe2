"""Deletes all that is remote of one partition, once it was decided to (G4, H4, H7).

    MARKED -> STARTED -> all segments (rlm/tasks/segment_deletion.py) -> FINISHED
    -> settings records removed -> tombstone

The states are Kafka's RemotePartitionDeleteMetadataRecord in the ledger, each read back. Every step
may be repeated, by another service too: the partition of a topic that ends may have no leader, so
its records are written under the newest epoch that is known of it, and who is overtaken stops and
begins again. This module must not know why it is deleted; whether it still is to be is asked before
every step.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from kip405.errors import Fenced
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlm.clock import Clock
from rlm.remote_log import ports
from rlm.tasks.audit_log import Audit
from rlm.tasks.segment_deletion import DeletionPermit, SegmentDeleter

log = structlog.get_logger(__name__)
_MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Ledger(ports.Ledger, Protocol):
    """The ledger, and whose records are in it (rlmm's manager)."""

    def partitions(self) -> tuple[PartitionKey, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPermit:
    """What must hold while the remote data of a partition is deleted.

    `refusal`: why nothing may be deleted now, as by a freeze; None = it may. Awaits nothing.
    `check_right`: Fenced where it is not to be deleted (any more), by what is known now.
    `cause`: for the audit log. `leader_epoch`: of the leader that deletes, None = any service does.
    """

    refusal: Callable[[], str | None]
    check_right: Callable[[], Awaitable[None]]
    cause: str
    leader_epoch: int | None = None

    async def check(self) -> None:
        """Fenced unless the next step may be taken now."""
        why = self.refusal()
        if why is not None:
            raise Fenced(why)
        await self.check_right()


class PartitionEnd:
    """Takes the steps for one partition; its owner decides which is due (plans/topic_end)."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        settings: ports.Settings,
        deleter: SegmentDeleter,
        audit: Audit,
        clock: Clock,
        node_id: int,
        barrier_deadline_ms: int,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._deleter = deleter
        self._audit = audit
        self._clock = clock
        self._node_id = node_id
        self._barrier_deadline_ms = barrier_deadline_ms

    async def mark(self, partition: TopicIdPartition) -> None:
        """Record that the partition will be deleted; nothing is deleted yet."""
        await self._ledger.barrier(partition.key, self._barrier_deadline_ms)
        if self._ledger.ledger(partition.key).deletion_state is None:
            await self._publish(partition, _MARKED)

    async def unmark(self, key: PartitionKey) -> None:
        """Remove the partition-delete record: nothing was deleted, or nothing is left."""
        await self._ledger.barrier(key, self._barrier_deadline_ms)
        if self._ledger.ledger(key).deletion_state is not None:
            await self._ledger.tombstone_partition_delete(key, self._epoch(key))

    async def begin(self, partition: TopicIdPartition, permit: EndPermit) -> None:
        """From MARKED to STARTED, from which on nobody revokes the deletion. Fenced: not permitted,
        or overtaken.
        """
        await self._ledger.barrier(partition.key, self._barrier_deadline_ms)
        if self._ledger.ledger(partition.key).deletion_state is _MARKED:
            await permit.check()
            await self._publish(partition, _STARTED, permit)

    async def delete(self, partition: TopicIdPartition, permit: EndPermit) -> int:
        """From STARTED to FINISHED; answers how many segments were deleted.

        Fenced: not permitted, or overtaken. The error of a store that does not delete is raised
        after the others' segments are deleted. Call again after any error.
        """
        key = partition.key
        await self._ledger.repair(key, self._epoch(key, permit))
        deleted = await self._delete_segments(key, permit)
        await self._ledger.barrier(key, self._barrier_deadline_ms)
        view = self._ledger.ledger(key)
        if view.deletion_state is _STARTED and not view.entries and not view.disputes:
            await permit.check()
            await self._publish(partition, _FINISHED, permit)
        return deleted

    async def _delete_segments(self, key: PartitionKey, permit: EndPermit) -> int:
        epoch = self._epoch(key, permit)
        entries = self._ledger.ledger(key).entries.values()
        found = sorted((one.metadata for one in entries), key=lambda one: one.start_offset)
        result = await self._deleter.delete(found, self._permit_of_segments(key, permit, epoch))
        for error in (result.stopped, *result.store_errors):
            if error is not None:
                raise error
        return len(result.deleted)

    def _permit_of_segments(
        self, key: PartitionKey, permit: EndPermit, epoch: int
    ) -> DeletionPermit:
        async def check_reason(metadata: RemoteLogSegmentMetadata) -> None:
            if self._ledger.ledger(key).deletion_state is not _STARTED:
                raise Fenced(f"{metadata.segment_id}: the partition is not being deleted any more")

        return DeletionPermit(
            leader_epoch=epoch,
            refusal=permit.refusal,
            check_right=permit.check_right,
            check_reason=check_reason,
            may_be_written=lambda metadata: metadata.state is not _COPIED,
            record=partial(self._audit.segments_deleted, cause=permit.cause),
        )

    async def forget(self, topic_id: Uuid, keys: tuple[PartitionKey, ...]) -> None:
        """Remove what settings and ledger have of a topic whose partitions are all FINISHED; the
        topic's own record first, so that what an interruption leaves belongs to no topic.
        """
        view = self._settings.view
        seen = view.next_offset  # what is written since belongs to a topic that was enabled again
        for name in view.keys_of(topic_id):
            await self._settings.tombstone(name, view.newest_epoch(name), seen)
        for key in keys:
            await self.unmark(key)

    def _epoch(self, key: PartitionKey, permit: EndPermit | None = None) -> int:
        if permit is not None and permit.leader_epoch is not None:
            return permit.leader_epoch
        return max(0, self._ledger.ledger(key).newest_epoch)

    async def _publish(
        self,
        partition: TopicIdPartition,
        state: RemotePartitionDeleteState,
        permit: EndPermit | None = None,
    ) -> None:
        metadata = RemotePartitionDeleteMetadata(
            topic_id_partition=partition,
            event_timestamp_ms=self._clock.now_ms(),
            broker_id=self._node_id,
            state=state,
        )
        await self._ledger.put_remote_partition_delete_metadata(
            metadata, self._epoch(partition.key, permit)
        )
        log.info(
            "partition_deletion",
            topic=partition.topic,
            topic_id=str(partition.topic_id),
            partition=partition.partition,
            state=state.name,
        )
