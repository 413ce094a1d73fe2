"""What is asked of brokers besides records: a log's bounds, a topic's id and its retention.

The requests go over the consumer's own connections. This module must not know the remote tier.
"""

from dataclasses import dataclass
from typing import Any

from aiokafka import errors
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.errors import ErrorKind
from tiered_reads.errors import ServiceError
from tiered_reads.kafka_requests import NO_TOPIC_ID, metadata_request

_READ_UNCOMMITTED = 0
_TOPIC_RESOURCE = 2
_RETENTION = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBounds:
    """Where the leader's own log begins, and its high watermark."""

    start_offset: int
    end_offset: int


class KafkaLog:
    """Asks brokers through aiokafka's client. KafkaError."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def bounds(self, topic_partition: TopicPartition) -> KafkaBounds:
        """The bounds as the leader knows them now."""
        start = await self._offset(topic_partition, EARLIEST_TIMESTAMP)
        end = await self._offset(topic_partition, LATEST_TIMESTAMP)
        return KafkaBounds(start_offset=start, end_offset=end)

    async def check_topic_id(self, topic: str, topic_id: bytes) -> None:
        """ServiceError, which may pass, where a service knows the topic by another id (H6): a topic
        of this name was deleted and created again, and one of the two has not heard of it yet.
        """
        known = await self._topic_id(topic)
        if NO_TOPIC_ID not in (known, topic_id) and known != topic_id:
            raise ServiceError(
                ErrorKind.UNAVAILABLE.name,
                f"topic {topic}: Kafka knows it by id {known.hex()}, a service by "
                f"{topic_id.hex()}: it was deleted and recreated",
            )

    async def is_kept_for_ever(self, topic: str) -> bool:
        """Whether brokers delete nothing of the topic by age or size, so that its log begins later
        only where somebody has deleted records. False also where they do not say.
        """
        node = self._client.get_random_node()
        if node is None:
            raise errors.NodeNotReadyError("no broker is known")
        wanted = [(_TOPIC_RESOURCE, topic, list(_RETENTION))]
        try:
            answer = await self._client.send(node, DescribeConfigsRequest(wanted))
        except errors.IncompatibleBrokerVersion:
            return False
        [(error_code, _, _, _, entries)] = answer.resources
        kept = {entry[0]: entry[1] for entry in entries}
        return not error_code and kept == _RETENTION

    async def _topic_id(self, topic: str) -> bytes:
        node = self._client.get_random_node()
        if node is None:
            raise errors.NodeNotReadyError("no broker is known")
        for found in await self._client.send(node, metadata_request([topic])):
            if found.name == topic and found.error_code == 0:
                return bytes(found.topic_id)
        raise errors.UnknownTopicOrPartitionError(topic)

    async def _offset(self, topic_partition: TopicPartition, timestamp: int) -> int:
        node = self._client.cluster.leader_for_partition(topic_partition)
        if node is None or node == -1:
            self._client.force_metadata_update()
            raise errors.LeaderNotAvailableError(topic_partition)
        wanted = [(topic_partition.topic, [(topic_partition.partition, timestamp)])]
        answer = await self._client.send(node, OffsetRequest(-1, _READ_UNCOMMITTED, wanted))
        [(_, [(_, error_code, *found)])] = answer.topics
        if error_code:
            self._client.force_metadata_update()
            raise errors.for_code(error_code)(topic_partition)
        offset: int = found[0][0] if answer.API_VERSION == 0 else found[1]
        return offset
