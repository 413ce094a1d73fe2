"""The requests of the connector's own consumer, in the tables of `kafka_protocol`.

aiokafka's own classes stop at Fetch 11 and Metadata 5, which have no topic ids. These requests use
Fetch 13 and Metadata 12 (Kafka 3.1 and later), so that a topic that was recreated under its name is
detected (H6), and the older versions with older brokers. aiokafka's connections send them. The
records of an answer are a view of its frame, so they are not copied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_clients.broker_request import BrokerRequest
from kafka_protocol.apis import FETCH, LIST_OFFSETS, METADATA
from kafka_protocol.fetch import aborted_transactions, scan_fetch_response
from kafka_protocol.frames import decode_response
from kafka_protocol.primitives import ZERO_UUID, WireError
from kip405.crc import ByteBuffer
from tiered_reads.kafka_options import KafkaSettings
from tiered_reads.values import TopicPartition

NO_TOPIC_ID = ZERO_UUID
_FETCH_BY_ID, _FETCH_BY_NAME = 13, 11
_METADATA_VERSIONS = (12, 5)
_COMMITTED, _UNCOMMITTED = 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """A broker's answer for one partition; `aborted`: (producer id, first offset) each."""

    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    records: ByteBuffer = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic as a broker knows it; leaders by partition, -1 = none now."""

    error_code: int
    name: str
    topic_id: bytes
    leaders: dict[int, int]


def fetch_request(
    topic_partition: TopicPartition,
    topic_id: bytes,
    offset: int,
    settings: KafkaSettings,
    *,
    read_committed: bool,
) -> BrokerRequest[FetchedPartition]:
    """A Fetch of one partition without a session (KIP-227), by topic id where one is known."""
    partition = {
        "partition": topic_partition.partition,
        "fetch_offset": offset,
        "partition_max_bytes": settings.max_partition_fetch_bytes,
    }
    value = {
        "max_wait_ms": settings.fetch_max_wait_ms,
        "min_bytes": settings.fetch_min_bytes,
        "max_bytes": settings.fetch_max_bytes,
        "isolation_level": _isolation(read_committed),
        "topics": [
            {"topic": topic_partition.topic, "topic_id": topic_id, "partitions": [partition]}
        ],
    }
    has_id = topic_id != NO_TOPIC_ID
    versions = (_FETCH_BY_ID, _FETCH_BY_NAME) if has_id else (_FETCH_BY_NAME,)
    return BrokerRequest(FETCH, versions, value, _fetched)


def _fetched(frame: bytes, version: int) -> FetchedPartition:
    response = scan_fetch_response(frame, version)
    if response.error_code:
        return FetchedPartition(error_code=response.error_code)
    found = [partition for topic in response.topics for partition in topic.partitions]
    if len(found) != 1:
        raise WireError(f"a fetch of one partition was answered with {len(found)}")
    [partition] = found
    end = partition.records_position + max(partition.records_size, 0)
    return FetchedPartition(
        error_code=partition.error_code,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted=aborted_transactions(frame, partition, version),
        records=memoryview(frame)[partition.records_position : end],
    )


def metadata_request(topics: Sequence[str] | None) -> BrokerRequest[tuple[TopicMetadata, ...]]:
    """Metadata that never creates a topic. `topics` None: all."""
    value = {
        "topics": None if topics is None else [{"name": topic} for topic in topics],
        "allow_auto_topic_creation": False,
    }
    return BrokerRequest(METADATA, _METADATA_VERSIONS, value, _described)


def _described(frame: bytes, version: int) -> tuple[TopicMetadata, ...]:
    return tuple(
        TopicMetadata(
            error_code=topic["error_code"],
            name=topic["name"] or "",
            topic_id=topic["topic_id"],
            leaders={row["partition_index"]: row["leader_id"] for row in topic["partitions"]},
        )
        for topic in decode_response(METADATA, version, frame)[1]["topics"]
    )


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], *, read_committed: bool
) -> BrokerRequest[dict[TopicPartition, tuple[int, int]]]:
    """ListOffsets of partitions of one leader; (error code, offset, -1 = none) by partition."""
    topics: dict[str, list[dict[str, int]]] = {}
    for topic_partition, timestamp in timestamps.items():
        row = {"partition_index": topic_partition.partition, "timestamp": timestamp}
        topics.setdefault(topic_partition.topic, []).append(row)
    value = {
        "replica_id": -1,
        "isolation_level": _isolation(read_committed),
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }
    # Version 1 has no isolation level.
    return BrokerRequest(LIST_OFFSETS, (3, 2) if read_committed else (3, 2, 1), value, _listed)


def _listed(frame: bytes, version: int) -> dict[TopicPartition, tuple[int, int]]:
    return {
        TopicPartition(topic["name"], row["partition_index"]): (row["error_code"], row["offset"])
        for topic in decode_response(LIST_OFFSETS, version, frame)[1]["topics"]
        for row in topic["partitions"]
    }


def _isolation(read_committed: bool) -> int:
    return _COMMITTED if read_committed else _UNCOMMITTED
