"""What a worker knows of the tier: the views that the core has sent. Pure.

What the last core had shown is still shown after the next one has connected, until that one is
ready: a core shows nothing before it knows something, and log starts would change meanwhile from
remote ones to local ones and back (H22).
"""

from dataclasses import dataclass, field

from kafka_protocol.node_addresses import NodeAddresses
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlm.remote_log.mirrored import LeaderEpochs, MirroredPartition, unknown_partition
from rlm.remote_log.tier import TierPartition, TopicRef
from rlm.workers.messages import addresses_of, key_of, view_of
from rlm.workers.v1 import core_pb2 as pb


@dataclass(slots=True)
class _Shown:
    """What one core has shown."""

    names: dict[str, Uuid] = field(default_factory=dict)
    records: dict[Uuid, str] = field(default_factory=dict)
    partitions: dict[PartitionKey, MirroredPartition] = field(default_factory=dict)

    def topic(self, topic: TopicRef) -> tuple[Uuid, str] | None:
        """Id, and name in the settings record."""
        topic_id = self.names.get(topic.name or "") if topic.topic_id is None else topic.topic_id
        name = None if topic_id is None else self.records.get(topic_id)
        return None if topic_id is None or name is None else (topic_id, name)


class TierMirror:
    """Kept when the core goes away: then `ready` is False, and what is known is only shown.

    `addresses`: those that the supervisor knew, None = none are replaced.
    """

    def __init__(self, addresses: NodeAddresses | None = None) -> None:
        self.ready = False
        self.addresses = addresses
        self.own_topic_ids: frozenset[bytes] = frozenset()
        self._now = _Shown()
        self._before: _Shown | None = None
        """What an earlier core had shown, while the one of now is not ready."""

    def take(self, views: pb.Views) -> None:
        """Apply what the core has sent, in its order."""
        if views.is_whole:
            self._before = self._before or self._now
            self._now = _Shown()
        now = self._now
        if views.has_topics:
            rows = [(Uuid(one.topic_id), one) for one in views.topics]
            now.records = {topic_id: one.record_name for topic_id, one in rows}
            now.names = {one.broker_name: topic_id for topic_id, one in rows if one.broker_name}
        for view in views.partitions:
            self.seen(view_of(view))
        for gone in views.gone:
            now.partitions.pop(key_of(gone), None)
        if views.HasField("node_addresses"):
            self.addresses = addresses_of(views.node_addresses)
        if views.own_topic_ids:
            self.own_topic_ids = frozenset(views.own_topic_ids)
        self.ready = views.ready
        if views.ready:
            self._before = None

    def seen(self, mirrored: MirroredPartition) -> None:
        """The newest view of a partition."""
        view = mirrored.view
        self._now.partitions[PartitionKey(view.topic_id, view.partition)] = mirrored

    def _topic(self, topic: TopicRef) -> tuple[Uuid, str] | None:
        found = self._now.topic(topic)
        if found is None and self._before is not None:
            return self._before.topic(topic)
        return found

    def _known(self, key: PartitionKey) -> MirroredPartition | None:
        found = self._now.partitions.get(key)
        if found is None and self._before is not None:
            return self._before.partitions.get(key)
        return found

    def partition(self, topic: TopicRef, partition: int) -> TierPartition | None:
        """See Tier."""
        found = self._topic(topic)
        if found is None:
            return None
        topic_id, name = found
        known = self._known(PartitionKey(topic_id, partition))
        if known is not None:
            return known.view
        return unknown_partition(
            TopicIdPartition(topic_id=topic_id, topic=name, partition=partition)
        )

    def epochs(self, topic_id: Uuid, partition: int) -> LeaderEpochs | None:
        """What is known of its leader epochs."""
        known = self._known(PartitionKey(topic_id, partition))
        return None if known is None else known.epochs

    def refusal(self, view: TierPartition) -> str | None:
        """See Deletions; of the newest view of the partition."""
        known = self._now.partitions.get(PartitionKey(view.topic_id, view.partition))
        return "the partition is not known here yet" if known is None else known.refusal
