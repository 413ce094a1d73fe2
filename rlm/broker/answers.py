"""The broker's answers as values, and the translation of Kafka's error codes to kip405's.

A restore, which goes on after other errors, has its own (rlm/restore/brokers.py).

The codes are Kafka's (org.apache.kafka.common.protocol.Errors).
"""

from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kip405.acls import Acl, missing_acls
from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid

_NAMES = {
    1: "OFFSET_OUT_OF_RANGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    9: "REPLICA_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    44: "POLICY_VIOLATION",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    56: "KAFKA_STORAGE_ERROR",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
_FENCED = {1, 6, 74, 75, 103}
_RETRIABLE = {5, 7, 9, 13, 14, 15, 16, 41, 56, 78}
_MISSING = {3, 100}
_NOT_AUTHORIZED = {29, 30, 31, 53}


def error_of_code(
    code: int, what: str, detail: str | None = None, *, needs: Acl | None
) -> RemoteStorageError:
    """A Kafka error code as one of our kinds; `what` names operation and topic-partition, `needs`
    the ACL without which a broker refuses it (None: it needs none).
    """
    message = f"{what}: {_NAMES.get(code, 'Kafka error')} ({code})" + (
        f": {detail}" if detail else ""
    )
    if code in _NOT_AUTHORIZED and needs is not None:
        return missing_acls(message, [needs])
    if code in _FENCED:
        return Fenced(message)
    if code in _RETRIABLE:
        return Unavailable(message)
    if code in _MISSING:
        return NotFound(message)
    return Invalid(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer's open transaction in a partition; `start_offset`: its first record there."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Leadership of one partition as the broker knows it; leader -1 = none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic that exists, with all its partitions."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: dict[int, PartitionDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdAnswer:
    """One broker's answer to Metadata by topic id, as evidence (H7).

    `error_codes`: Kafka's, by topic id; a topic without one was not answered for. `brokers`: node
    ids that are alive by this answer or have a replica of a topic in it.
    """

    cluster_id: str | None
    error_codes: dict[Uuid, int]
    brokers: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster behind a listener; `node_id` is the broker that answered, if that is known."""

    cluster_id: str
    nodes: tuple[BrokerNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """ListOffsets: offset -1 where nothing matches; timestamp in ms or -1; leader epoch or -1."""

    offset: int
    leader_epoch: int
    timestamp_ms: int


class OwnOffsets(Protocol):
    """Answers ListOffsets from this service's broker (OwnBroker), for components that need only
    this.
    """

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        *,
        leader_epoch: int = -1,
        read_committed: bool = False,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> OffsetAnswer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigValue:
    """One effective configuration of a topic; `is_topic_level` = set on the topic itself."""

    value: str | None
    is_topic_level: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRecords:
    """A read of the broker's own log: whole batches, and perhaps one partial batch at the end."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes
    aborted: tuple[tuple[int, int], ...]
