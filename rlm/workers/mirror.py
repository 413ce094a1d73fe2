"""What a worker knows of the tier: the views that the core has sent. Pure."""

from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlm.remote_log.mirrored import LeaderEpochs, MirroredPartition, unknown_partition
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.workers.messages import key_of, view_of
from rlm.workers.v1 import core_pb2 as pb


class TierMirror:
    """Kept when the core goes away: then `ready` is False, and what is known is only shown."""

    def __init__(self) -> None:
        self.ready = False
        self._names: dict[str, Uuid] = {}
        self._records: dict[Uuid, str] = {}
        self._partitions: dict[PartitionKey, MirroredPartition] = {}

    def take(self, views: pb.Views) -> None:
        """Apply what the core has sent, in its order."""
        if views.is_whole:
            self._partitions.clear()
        if views.has_topics:
            rows = [(Uuid(one.topic_id), one) for one in views.topics]
            self._records = {topic_id: one.record_name for topic_id, one in rows}
            self._names = {one.broker_name: topic_id for topic_id, one in rows if one.broker_name}
        for view in views.partitions:
            self.seen(view_of(view))
        for gone in views.gone:
            self._partitions.pop(key_of(gone), None)
        self.ready = views.ready

    def seen(self, mirrored: MirroredPartition) -> None:
        """The newest view of a partition."""
        view = mirrored.view
        self._partitions[PartitionKey(view.topic_id, view.partition)] = mirrored

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        """See Tier."""
        topic_id = self._names.get(topic.name or "") if topic.topic_id is None else topic.topic_id
        name = None if topic_id is None else self._records.get(topic_id)
        if topic_id is None or name is None:
            return None
        known = self._partitions.get(PartitionKey(topic_id, partition))
        if known is not None:
            return known.view
        return unknown_partition(
            TopicIdPartition(topic_id=topic_id, topic=name, partition=partition)
        )

    def epochs(self, topic_id: Uuid, partition: int) -> LeaderEpochs | None:
        """What is known of its leader epochs."""
        known = self._partitions.get(PartitionKey(topic_id, partition))
        return None if known is None else known.epochs

    def refusal(self, view: TierPartition) -> str | None:
        """See Deletions; of the newest view of the partition."""
        known = self._partitions.get(PartitionKey(view.topic_id, view.partition))
        return "the partition is not known here yet" if known is None else known.refusal
