"""A ledger record: key, headers, value, and its offset (docs/reference/formats.md, "Ledger"). Pure.

Key = 16 bytes topic id, int32 partition, 16 bytes segment id (partition-delete records have no
segment id). Every record, tombstones included, has the headers rlm.v, rlm.epoch, rlm.prev,
rlm.writer. This module must not know what follows from a record; replay does.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
)
from rlmm.framing import decode_partition_delete, decode_value, encode_value

HEADER_VERSION = "rlm.v"
HEADER_EPOCH = "rlm.epoch"
HEADER_PREVIOUS = "rlm.prev"
HEADER_WRITER = "rlm.writer"
FORMAT_VERSION = 1
NO_PREVIOUS = -1
"""`expected_previous` of a writer who saw no record of the key."""

_KEY = struct.Struct(">16si16s")
_PARTITION_KEY = struct.Struct(">16si")
Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LedgerKey:
    """Key of one copy attempt; without segment id it is the key of a partition-delete record."""

    partition: PartitionKey
    segment_id: Uuid | None

    def encode(self) -> bytes:
        """36 bytes, or 20 without segment id."""
        topic_id, partition = self.partition
        if self.segment_id is None:
            return _PARTITION_KEY.pack(topic_id.raw, partition)
        return _KEY.pack(topic_id.raw, partition, self.segment_id.raw)

    @classmethod
    def decode(cls, data: bytes) -> "LedgerKey":
        """Corrupt where the length is neither 36 nor 20 or the partition is negative."""
        segment_id: Uuid | None = None
        if len(data) == _KEY.size:
            topic_id, partition, segment = _KEY.unpack(data)
            segment_id = Uuid(segment)
        elif len(data) == _PARTITION_KEY.size:
            topic_id, partition = _PARTITION_KEY.unpack(data)
        else:
            raise Corrupt(f"a ledger key has 36 or 20 bytes, not {len(data)}")
        if partition < 0:
            raise Corrupt(f"ledger key: partition {partition} is negative")
        return cls(partition=PartitionKey(Uuid(topic_id), partition), segment_id=segment_id)

    @classmethod
    def of(cls, segment_id: RemoteLogSegmentId) -> "LedgerKey":
        return cls(partition=segment_id.topic_id_partition.key, segment_id=segment_id.id)

    def segment_in(self, topic: str) -> RemoteLogSegmentId:
        """The segment id this key stands for, under the topic's name of today; ValueError without
        one.
        """
        if self.segment_id is None:
            raise ValueError(f"the key of partition {self.partition} has no segment id")
        topic_id, partition = self.partition
        place = TopicIdPartition(topic_id=topic_id, topic=topic, partition=partition)
        return RemoteLogSegmentId(topic_id_partition=place, id=self.segment_id)

    def __str__(self) -> str:
        return f"{self.partition}:{self.segment_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeaders:
    """Who wrote a record, and what the writer believed: leader epoch, expected previous state,
    process.
    """

    leader_epoch: int
    expected_previous: int
    writer: Uuid
    version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if not NO_PREVIOUS <= self.expected_previous <= max(RemoteLogSegmentState):
            raise ValueError(f"expected previous state {self.expected_previous} is not known")

    def encode(self) -> list[tuple[str, bytes]]:
        return [
            (HEADER_VERSION, struct.pack(">b", self.version)),
            (HEADER_EPOCH, struct.pack(">i", self.leader_epoch)),
            (HEADER_PREVIOUS, struct.pack(">b", self.expected_previous)),
            (HEADER_WRITER, self.writer.raw),
        ]

    @classmethod
    def decode(cls, headers: Headers) -> "RecordHeaders":
        """Corrupt for a missing or malformed header or an unknown rlm.v; other headers are left
        alone.
        """
        found = dict(headers)
        try:
            version = struct.unpack(">b", found[HEADER_VERSION])[0]
            if version != FORMAT_VERSION:
                raise Corrupt(f"ledger record version rlm.v={version} is not known")
            return cls(
                leader_epoch=struct.unpack(">i", found[HEADER_EPOCH])[0],
                expected_previous=struct.unpack(">b", found[HEADER_PREVIOUS])[0],
                writer=Uuid(found[HEADER_WRITER]),
            )
        except KeyError as error:
            raise Corrupt(f"ledger record has no header {error}") from error
        except (struct.error, ValueError, TypeError) as error:
            raise Corrupt(f"ledger record headers: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """One record as it is in the ledger; metadata None is a tombstone."""

    key: LedgerKey
    metadata: RemoteLogSegmentMetadata | None
    headers: RecordHeaders
    offset: int
    timestamp_ms: int

    @property
    def state(self) -> RemoteLogSegmentState | None:
        """The state this record gives its key; None for a tombstone."""
        return None if self.metadata is None else self.metadata.state

    @property
    def state_id(self) -> int:
        """What a successor's `expected_previous` must say."""
        return NO_PREVIOUS if self.metadata is None else int(self.metadata.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeleteRecord:
    """One partition-delete record as it is in the ledger; metadata None is a tombstone."""

    partition: PartitionKey
    metadata: RemotePartitionDeleteMetadata | None
    headers: RecordHeaders
    offset: int


def encode_record_value(metadata: RemoteLogSegmentMetadata | None) -> bytes | None:
    """Value bytes; None for a tombstone."""
    return None if metadata is None else encode_value(metadata)


def decode_record(
    *, key: bytes | None, value: bytes | None, headers: Headers, offset: int, timestamp_ms: int
) -> LedgerRecord | PartitionDeleteRecord:
    """One record as read from Kafka; Corrupt says what is wrong with it."""
    if key is None:
        raise Corrupt("ledger record has no key")
    ledger_key = LedgerKey.decode(key)
    record_headers = RecordHeaders.decode(headers)
    if ledger_key.segment_id is None:
        deletion = None if value is None else decode_partition_delete(value)
        if deletion is not None and deletion.topic_id_partition.key != ledger_key.partition:
            raise Corrupt(
                f"ledger value of {deletion.topic_id_partition} under the key {ledger_key}"
            )
        return PartitionDeleteRecord(
            partition=ledger_key.partition,
            metadata=deletion,
            headers=record_headers,
            offset=offset,
        )
    metadata = None if value is None else decode_value(value)
    if metadata is not None and LedgerKey.of(metadata.segment_id) != ledger_key:
        raise Corrupt(f"ledger value of segment {metadata.segment_id} under the key {ledger_key}")
    return LedgerRecord(
        key=ledger_key,
        metadata=metadata,
        headers=record_headers,
        offset=offset,
        timestamp_ms=timestamp_ms,
    )
