"""The broker's answers as values, and the translation of Kafka's error codes to kip405's.

A restore, which goes on after other errors, has its own (rlm/restore/brokers.py).
"""

from dataclasses import dataclass
from typing import Protocol

from kafka_protocol import error_codes
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kip405.acls import Acl, missing_acls
from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid

_FENCED = {
    error_codes.OFFSET_OUT_OF_RANGE,
    error_codes.NOT_LEADER_OR_FOLLOWER,
    error_codes.FENCED_LEADER_EPOCH,
    error_codes.UNKNOWN_LEADER_EPOCH,
    error_codes.INCONSISTENT_TOPIC_ID,
}
_RETRIABLE = {
    error_codes.LEADER_NOT_AVAILABLE,
    error_codes.REQUEST_TIMED_OUT,
    error_codes.REPLICA_NOT_AVAILABLE,
    error_codes.NETWORK_EXCEPTION,
    error_codes.COORDINATOR_LOAD_IN_PROGRESS,
    error_codes.COORDINATOR_NOT_AVAILABLE,
    error_codes.NOT_COORDINATOR,
    error_codes.NOT_CONTROLLER,
    error_codes.KAFKA_STORAGE_ERROR,
    error_codes.OFFSET_NOT_AVAILABLE,
}
_MISSING = {error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.UNKNOWN_TOPIC_ID}
NOT_AUTHORIZED = {
    error_codes.TOPIC_AUTHORIZATION_FAILED,
    error_codes.GROUP_AUTHORIZATION_FAILED,
    error_codes.CLUSTER_AUTHORIZATION_FAILED,
    error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def error_of_code(
    code: int, what: str, detail: str | None = None, *, needs: Acl | None
) -> RemoteStorageError:
    """A Kafka error code as one of our kinds; `what` names operation and topic-partition, `needs`
    the ACL without which a broker refuses it (None: it needs none).
    """
    message = f"{what}: {error_codes.error_name(code)} ({code})" + (f": {detail}" if detail else "")
    if code in NOT_AUTHORIZED and needs is not None:
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
