"""Resolves which topic and partition a call means, and which broker leads the partition."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.topic_names import checked_name
from rlm.broker.answers import TopicDescription
from rlm.broker.leadership import LedPartition, partitions_of
from rlm.v1 import fetch_pb2
from rlmm.settings_records import KEPT_LEFTOVERS, TopicRecord
from rlmm.settings_view import AdoptedRecord, SettingsView


class _Broker(Protocol):
    async def topic(self, name: str) -> TopicDescription: ...

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]: ...


class _Settings(Protocol):
    @property
    def view(self) -> SettingsView: ...


class TopicResolver:
    """Resolves topics by name or id; NotFound for one that does not exist."""

    def __init__(self, broker: _Broker, settings: _Settings) -> None:
        self._broker = broker
        self._settings = settings

    async def topic(self, ref: fetch_pb2.TopicRef) -> TopicDescription:
        """The topic that exists now; Invalid where neither name nor id is given."""
        if ref.WhichOneof("topic") == "name":
            return await self._broker.topic(checked_name(ref.name))
        if ref.WhichOneof("topic") != "topic_id":
            raise Invalid("the call names no topic: give a name or a topic id")
        return await self._by_id(topic_id_of(ref))

    async def partition(self, ref: fetch_pb2.TopicRef, partition: int) -> LedPartition:
        """The partition and its leader by our broker's Metadata. NotFound: the topic does not have
        it. Unavailable: it has no leader.
        """
        topic = await self.topic(ref)
        if partition not in topic.partitions:
            count = len(topic.partitions)
            raise NotFound(
                f"topic {topic.name} has no partition {partition}; it has 0 to {count - 1}"
            )
        led = partitions_of([topic])[PartitionKey(topic.topic_id, partition)]
        if led.leader < 0:
            raise Unavailable(f"partition {led} has no leader now")
        return led

    async def _by_id(self, topic_id: Uuid) -> TopicDescription:
        record = self._settings.view.topic(topic_id)
        names = None if record is None else [record.name]
        for topic in await self._broker.topics(names):
            if topic.topic_id == topic_id:
                return topic
        raise NotFound(f"no topic has the id {topic_id}")


def topic_id_of(ref: fetch_pb2.TopicRef) -> Uuid:
    """Invalid for bytes that are not a topic id."""
    try:
        return Uuid(ref.topic_id)
    except ValueError as error:
        raise Invalid(f"topic id: {error}") from error


def topic_records(records: Iterable[AdoptedRecord]) -> tuple[TopicRecord, ...]:
    """The topics' settings records, the newest decision last. Those that keep what was left over
    are no decisions and come first: they may be newer than that of the topic that has the name now.
    """
    found = sorted(records, key=lambda one: one.offset)
    topics = [one.record for one in found if isinstance(one.record, TopicRecord)]
    return tuple(sorted(topics, key=lambda one: one.deletion_cause != KEPT_LEFTOVERS))
