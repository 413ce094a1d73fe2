"""What another process keeps of a partition, so that it answers about it without asking.

The Tier of a broker's service makes these values (leader_view.py), and a proxy worker mirrors them.
"""

from dataclasses import dataclass

from kip405.ids import TopicIdPartition, Uuid
from kip405.lineage import Lineage
from rlm.remote_log.tier import EpochEnd, TierPartition

NOTHING_REMOTE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochs:
    """Answers about leader epochs of a partition, by the leader's merged lineage."""

    lineage: Lineage
    log_end_offset: int
    remote_log_start_offset: int

    def epoch_for_offset(self, offset: int) -> int:
        """See Tier."""
        epoch = self.lineage.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    def end_of(self, leader_epoch: int) -> EpochEnd | None:
        """See Tier.epoch_end."""
        latest = self.lineage.latest_epoch
        if latest is None or leader_epoch >= latest:
            return None
        # A broker cuts its epochs where the log begins: here that is the remote log start.
        lineage = self.lineage.from_start(self.remote_log_start_offset)
        found = lineage.end_offset_for(leader_epoch, self.log_end_offset)
        return EpochEnd(leader_epoch=found[0], end_offset=found[1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredPartition:
    """`epochs` None = not known yet. `refusal`: why a client's DeleteRecords may delete nothing
    now, None = it may.
    """

    view: TierPartition
    epochs: LeaderEpochs | None
    refusal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A tiered topic: the name in its settings record, and the name by which the broker knows it,
    None = it does not.
    """

    topic_id: Uuid
    record_name: str
    broker_name: str | None


def unknown_partition(partition: TopicIdPartition) -> TierPartition:
    """A partition of a tiered topic of which nothing is known yet."""
    return TierPartition(
        topic_id=partition.topic_id,
        topic=partition.topic,
        partition=partition.partition,
        remote_log_start_offset=NOTHING_REMOTE,
        remote_next_offset=NOTHING_REMOTE,
        watermarks=None,
        led_here=False,
        leader_epoch=-1,
        frozen=False,
    )
