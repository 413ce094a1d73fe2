"""OffsetForLeaderEpoch v3 and ListOffsets v5 in the form in which aiokafka sends requests.

They ask where logs end, and which leader epochs the brokers know. aiokafka has no class for the
first, and its classes for the second do not return the epoch. Sources:
OffsetForLeaderEpochRequest.json, ListOffsetsRequest.json and their responses.
"""

from collections.abc import Mapping
from typing import Any

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Int64, Schema, String

from kafka_protocol.apis.offsets import DEBUGGING_REPLICA_ID, LATEST_TIMESTAMP
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kip405.ids import TopicPartition
from rlmm.divergence import EpochEnd
from rlmm.replica_votes import LogEnd

_READ_UNCOMMITTED = 0
_ANY_EPOCH = -1
"""As current leader epoch: whoever takes himself for the leader answers; see `divergence`."""


def _topics(*partition_fields: tuple[str, Any]) -> tuple[str, Any]:
    """The field `topics` of a message: partitions by topic, each with these fields."""
    partitions = ("partitions", Array(*partition_fields))
    return "topics", Array(("topic", String("utf-8")), partitions)


class EpochEndsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("error_code", Int16),
            ("partition", Int32),
            ("leader_epoch", Int32),
            ("end_offset", Int64),
        ),
    )


class EpochEndsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndsResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        _topics(
            ("partition", Int32),
            ("current_leader_epoch", Int32),
            ("leader_epoch", Int32),
        ),
    )


class EpochEndsRequest(Request[EpochEndsStruct]):  # type: ignore[misc]
    """Asks one leader for leader epochs, by partition."""

    API_KEY = 23

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._epochs = epochs

    def build(self, request_struct_class: type[EpochEndsStruct]) -> EpochEndsStruct:
        topics: dict[str, list[tuple[int, int, int]]] = {}
        for place, epoch in self._epochs.items():
            topics.setdefault(place.topic, []).append((place.partition, _ANY_EPOCH, epoch))
        return request_struct_class(CONSUMER_REPLICA_ID, list(topics.items()))


def read_epoch_ends(
    answer: Any,
) -> tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, str]]:
    """The leader's answers, and the names of errors where it gave none."""
    found: dict[TopicPartition, EpochEnd] = {}
    refused: dict[TopicPartition, str] = {}
    for topic, partitions in answer.topics:
        for error_code, partition, leader_epoch, end_offset in partitions:
            place = TopicPartition(topic, partition)
            if error_code:
                refused[place] = for_code(error_code).__name__
            else:
                found[place] = EpochEnd(leader_epoch, end_offset)
    return found, refused


class LogEndResponse(Response):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("partition", Int32),
            ("error_code", Int16),
            ("timestamp", Int64),
            ("offset", Int64),
            ("leader_epoch", Int32),
        ),
    )


class LogEndStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 5
    RESPONSE_TYPE = LogEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("isolation_level", Int8),
        _topics(
            ("partition", Int32),
            ("current_leader_epoch", Int32),
            ("timestamp", Int64),
        ),
    )


class LogEndRequest(Request[LogEndStruct]):  # type: ignore[misc]
    """Asks for the end of one partition; with `of_leader` False, as any replica that is asked has
    it.
    """

    API_KEY = 2

    def __init__(self, place: TopicPartition, *, of_leader: bool) -> None:
        self._place = place
        self._replica_id = CONSUMER_REPLICA_ID if of_leader else DEBUGGING_REPLICA_ID

    def build(self, request_struct_class: type[LogEndStruct]) -> LogEndStruct:
        partitions = [(self._place.partition, _ANY_EPOCH, LATEST_TIMESTAMP)]
        topics = [(self._place.topic, partitions)]
        return request_struct_class(self._replica_id, _READ_UNCOMMITTED, topics)


def read_log_end(answer: Any) -> LogEnd:
    """The broker's answer; its KafkaError where it refused."""
    for topic, partitions in answer.topics:
        for _, error_code, _, offset, leader_epoch in partitions:
            if error_code:
                raise for_code(error_code)(topic)
            return LogEnd(offset, leader_epoch)
    raise KafkaError("an empty answer")
