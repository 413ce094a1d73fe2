"""The requests of the connector's own consumer, in the tables of `kafka_protocol`.

aiokafka's own classes stop at Fetch 11 and Metadata 5, which have no topic ids. These requests use
Fetch 13 and Metadata 12 (Kafka 3.1 and later), so that a topic that was recreated under its name is
detected (H6), and the older versions with older brokers. aiokafka's connections send them. The
records of an answer are a view of its frame, so they are not copied.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Generic, TypeVar

from aiokafka.errors import IncompatibleBrokerVersion

from kafka_protocol.apis import FETCH, LIST_OFFSETS, METADATA
from kafka_protocol.fetch import aborted_transactions, scan_fetch_response
from kafka_protocol.frames import encode_request_header, parse_response_header
from kafka_protocol.primitives import ZERO_UUID, WireError
from kafka_protocol.schema import Api, Value, decode, encode
from kip405.crc import ByteBuffer
from rlm_spark.tiers.kafka_options import KafkaSettings
from rlm_spark.values import TopicPartition

NO_TOPIC_ID = ZERO_UUID
_FETCH_BY_ID, _FETCH_BY_NAME = 13, 11
_METADATA_VERSIONS = (12, 5)
_COMMITTED, _UNCOMMITTED = 1, 0

T = TypeVar("T")


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


class BrokerRequest(Generic[T]):
    """One request. aiokafka's connection sends it in the first of `versions` that the broker has.

    `read` makes the answer from the response's frame and version, or raises WireError.
    """

    def __init__(
        self,
        api: Api,
        versions: Sequence[int],
        value: Mapping[str, Any],
        read: Callable[[bytes, int], T],
    ) -> None:
        self._api = api
        self._versions = versions
        self._value = value
        self._read = read

    def prepare(self, offered: Mapping[int, tuple[int, int]]) -> "_VersionedRequest[T]":
        """The request in one version. IncompatibleBrokerVersion where the broker has none."""
        low, high = offered.get(self._api.key, (0, -1))
        version = next((one for one in self._versions if low <= one <= high), None)
        if version is None:
            raise IncompatibleBrokerVersion(
                f"the broker has {self._api.name} v{low} to v{high}, and none of {self._versions}"
            )
        return _VersionedRequest(self._api, version, self._value, self._read)


@dataclass(frozen=True, slots=True)
class _RequestHeader:
    encoded: bytes

    def encode(self) -> bytes:
        return self.encoded


@dataclass(frozen=True, slots=True)
class _ResponseHeader:
    correlation_id: int


class _VersionedRequest(Generic[T]):
    """The part of aiokafka's RequestStruct and Response that its connection uses."""

    def __init__(
        self, api: Api, version: int, value: Mapping[str, Any], read: Callable[[bytes, int], T]
    ) -> None:
        self._api = api
        self._version = version
        self._value = value
        self._read = read

    def build_request_header(self, correlation_id: int, client_id: str) -> _RequestHeader:
        return _RequestHeader(
            encode_request_header(self._api, self._version, correlation_id, client_id)
        )

    def encode(self) -> bytes:
        return encode(self._api.request, self._version, self._value)

    def parse_response_header(self, frame: BytesIO) -> _ResponseHeader:
        # `getvalue` of a BytesIO without writes is the bytes themselves, not a copy.
        return _ResponseHeader(parse_response_header(frame.getvalue(), self._api, self._version)[0])

    @property
    def RESPONSE_TYPE(self) -> "_VersionedRequest[T]":
        return self

    def decode(self, frame: BytesIO) -> T:
        return self._read(frame.getvalue(), self._version)


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
        for topic in _decoded(METADATA, frame, version)["topics"]
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
        for topic in _decoded(LIST_OFFSETS, frame, version)["topics"]
        for row in topic["partitions"]
    }


def _decoded(api: Api, frame: bytes, version: int) -> Value:
    _, position = parse_response_header(frame, api, version)
    return decode(api.response, version, frame, position)[0]


def _isolation(read_committed: bool) -> int:
    return _COMMITTED if read_committed else _UNCOMMITTED
