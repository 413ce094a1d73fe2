"""The durable remote log start of every partition, before a topic's mode takes effect (H2).

The partition-0 leader's service writes all of them at enabling: it asks each partition's leader for
its log start (a read, so routing it is harmless), publishes under that partition's leader epoch and
reads back. Whoever leads a partition added later writes its start when it first looks at it
(rlm.lanes.copy). A start that exists is never touched.
"""

from kip405.errors import Fenced
from kip405.ids import PartitionKey
from rlm.broker.answers import EARLIEST_TIMESTAMP, TopicDescription
from rlm.topics.ports import LeaderOffsets, Settings
from rlmm.facts import StartFact

CAUSE_ENABLE = "enable"
CAUSE_COMMAND = "command"


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
        fact = StartFact(
            partition=PartitionKey(topic.topic_id, partition),
            remote_log_start_offset=start,
            cause=CAUSE_ENABLE,
        )
        try:
            await self._settings.publish(fact, topic.partitions[partition].leader_epoch)
        except Fenced:
            if self._known(topic, partition) is None:
                raise  # nobody else was faster: the refusal is about us
