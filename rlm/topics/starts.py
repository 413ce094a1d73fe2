"""Writes the durable remote log start of every partition before a topic's mode takes effect (H2).

When a topic is enabled, the service of the partition-0 leader writes all of them: it asks each
partition's leader for its log start (a read, so routing it is harmless), publishes under that
partition's leader epoch and reads back. For a partition added later, the service of its leader
writes the start when it first takes a snapshot of it (rlm.tasks.copy). An existing start is never
changed except by `raise_start`: upwards, with a cause.
"""

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP
from kip405.errors import Fenced, Invalid
from kip405.ids import PartitionKey
from rlm.broker.answers import TopicDescription
from rlm.topics.ports import LeaderOffsets, Settings
from rlmm.settings_records import StartRecord

CAUSE_ENABLE = "enable"
CAUSE_COMMAND = "command"
CAUSE_RETENTION = "retention"
_BARRIER_MS = 10_000


async def raise_start(
    settings: Settings,
    partition: PartitionKey,
    remote_log_start_offset: int,
    *,
    leader_epoch: int,
    cause: str,
) -> int:
    """Move a partition's remote log start up, durably and read back; returns the start that then
    holds.

    For callers that retention (or an operator) entitles to it, under the partition's leader epoch.
    Objects below the start may be deleted only after this has returned. A start that is already as
    high stays. Fenced: a newer leader has written. Invalid: none was ever written, so there is none
    to move. Unavailable: not written. OutcomeUnknown: call again.
    """
    await settings.barrier(_BARRIER_MS)
    known = settings.view.remote_log_start(partition)
    if known is None:
        raise Invalid(f"partition {partition} has no remote log start: the topic is not enabled")
    if known >= remote_log_start_offset:
        return known
    record = StartRecord(
        partition=partition,
        remote_log_start_offset=remote_log_start_offset,
        cause=cause,
        decided_epoch=leader_epoch,
    )
    await settings.publish(record, leader_epoch)
    return remote_log_start_offset


class Starts:
    """Publishes missing starts; the settings must have passed a barrier."""

    def __init__(self, *, settings: Settings, offsets: LeaderOffsets) -> None:
        self._settings = settings
        self._offsets = offsets

    async def ensure(self, topic: TopicDescription) -> int:
        """Write missing starts of partitions; returns their number. Unavailable without a
        leader.
        """
        missing = [
            partition
            for partition in sorted(topic.partitions)
            if self._known(topic, partition) is None
        ]
        for partition in missing:
            await self._publish(topic, partition)
        return len(missing)

    def _known(self, topic: TopicDescription, partition: int) -> int | None:
        return self._settings.view.remote_log_start(PartitionKey(topic.topic_id, partition))

    async def _publish(self, topic: TopicDescription, partition: int) -> None:
        start = await self._offsets.offset(topic, partition, EARLIEST_TIMESTAMP)
        leader_epoch = topic.partitions[partition].leader_epoch
        record = StartRecord(
            partition=PartitionKey(topic.topic_id, partition),
            remote_log_start_offset=start,
            cause=CAUSE_ENABLE,
            decided_epoch=leader_epoch,
        )
        try:
            await self._settings.publish(record, leader_epoch)
        except Fenced:
            if self._known(topic, partition) is None:
                raise  # no other service was faster: our record is refused
