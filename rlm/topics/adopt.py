"""What an operator adopts: a leader's log after a freeze (H4), a foreign log start (H1)."""

from kip405.errors import Invalid, NotFound
from kip405.ids import PartitionKey
from rlm.broker.answers import (
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OwnOffsets,
    TopicDescription,
)
from rlm.topics.ports import Settings
from rlm.topics.starts import CAUSE_COMMAND
from rlmm.facts import DivergenceFact, StartFact


class Adoption:
    """For partitions that our broker leads; nobody else's word counts."""

    def __init__(self, *, broker: OwnOffsets, settings: Settings, barrier_deadline_ms: int) -> None:
        self._broker = broker
        self._settings = settings
        self._barrier_deadline_ms = barrier_deadline_ms

    async def adopt_log(
        self, topic: TopicDescription, partition: int, *, frozen: str, by: str
    ) -> None:
        """Accept the leader's log as it is up to its present epoch; Invalid if nothing is frozen.

        Remote segments outside its lineage stay where they are and are not read any more.
        """
        place = f"{topic.name}-{partition}"
        if not frozen:
            raise Invalid(f"{place} is not frozen: there is nothing to adopt")
        epoch = topic.partitions[partition].leader_epoch
        end = await self._broker.list_offset(
            topic.name,
            partition,
            LATEST_TIMESTAMP,
            leader_epoch=epoch,
            replica_id=DEBUGGING_REPLICA_ID,
        )
        fact = DivergenceFact(
            partition=PartitionKey(topic.topic_id, partition),
            action="adopt",
            epoch=epoch,
            offset=end.offset,
            cause=f"adopted by {by}; {frozen}",
        )
        await self._settings.publish(fact, epoch)

    async def adopt_log_start(
        self, topic: TopicDescription, partition: int, *, frozen: str, by: str
    ) -> None:
        """Make the broker's log start the remote one: what lies below has ended for good.

        Invalid where the log start is no higher, or is where our own trim put it (H1), or while the
        partition is frozen.
        """
        key, place = PartitionKey(topic.topic_id, partition), f"{topic.name}-{partition}"
        epoch = topic.partitions[partition].leader_epoch
        answer = await self._broker.list_offset(
            topic.name, partition, EARLIEST_TIMESTAMP, leader_epoch=epoch
        )
        await self._settings.barrier(self._barrier_deadline_ms)
        known = self._settings.view.remote_log_start(key)
        if known is None:
            raise NotFound(f"{place} has no remote log start: the topic is not enabled")
        if frozen:
            raise Invalid(f"{place} is frozen ({frozen}): `rlm partition adopt` comes first")
        if answer.offset <= known:
            raise Invalid(
                f"{place}: the broker's log start {answer.offset} is not above the remote log "
                f"start {known}: there is nothing to adopt"
            )
        trim = self._settings.view.trim(key)
        if trim is not None and answer.offset <= trim.bound:
            raise Invalid(
                f"{place}: the broker's log start {answer.offset} is our own trim (up to "
                f"{trim.bound}), not a foreign move: there is nothing to adopt"
            )
        fact = StartFact(
            partition=key,
            remote_log_start_offset=answer.offset,
            cause=f"{CAUSE_COMMAND}: {by}",
            decided_epoch=epoch,
        )
        await self._settings.publish(fact, epoch)
