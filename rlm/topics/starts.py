"""The durable remote log start of every partition, before a topic's mode takes effect (H2).

The partition-0 leader's service writes all of them at enabling: it asks each partition's leader for
its log start (a read, so routing it is harmless), publishes under that partition's leader epoch and
reads back. Whoever leads a partition added later writes its start when it first looks at it
(rlm.tasks.copy). A start that exists is never touched, but by `raise_start`: upwards, with a cause.
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
    """Move a partition's remote log start up, durably and read back; the start that holds then.

    For whom retention (or an operator) gives the right to, under the leader epoch of the partition;
    objects below it may be deleted only after this returned. One that is as high already stays.
    Fenced: a newer leader has written. Invalid: none was ever written, so there is none to move.
    Unavailable: not written. OutcomeUnknown: ask again.
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
    """Publishes what is missing; the settings must have passed a barrier."""

    def __init__(self, *, settings: Settings, offsets: LeaderOffsets) -> None:
        self._settings = settings
        self._offsets = offsets

    async def ensure(self, topic: TopicDescription) -> int:
        """A start for each partition; how many were missing. Unavailable without a leader."""
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
                raise  # nobody else was faster: the refusal is about us
