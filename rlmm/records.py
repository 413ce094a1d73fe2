"""A ledger record: its key, headers and value as bytes, and its partition of the ledger. Pure.

The format is in docs/reference/formats.md, "Ledger". The key has 16 bytes topic id, int32
partition, 16 bytes segment id; partition-delete records have no segment id. Every record,
tombstones included, has the headers rlm.v, rlm.epoch, rlm.prev, rlm.writer.

The value is Kafka's (`rlmm/ledger_values.py`). `rlm.v` is 2 where the objects of the segment have
another layout than `kafka`, and else 1.

A record of another api key or version is one of a later version of this software: its partition is
known by the key, and nothing else. The partition of the ledger is that of Kafka's
RemoteLogMetadataTopicPartitioner, bit for bit. This module must not know what follows from a
record; replay does.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, RemoteLogSegmentId, Uuid
from kip405.segments import (
    LAYOUT_AT,
    Layout,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
)
from rlmm.formats import NewerFormat
from rlmm.ledger_values import decode_partition_delete, decode_value, encode_value, unknown_kind

HEADER_VERSION = "rlm.v"
HEADER_EPOCH = "rlm.epoch"
HEADER_PREVIOUS = "rlm.prev"
HEADER_WRITER = "rlm.writer"
FORMAT_VERSION = 1
LAYOUT_VERSION = 2
"""Of the records of a segment whose layout is not `kafka`: an older version could not read it."""
NO_PREVIOUS = -1
"""`expected_previous` of a writer that saw no record of the key."""
_KAFKAS: Final = bytes((Layout.KAFKA,))
_KEY = struct.Struct(">16si16s")
_PARTITION_KEY = struct.Struct(">16si")
_LAST_STATE: Final = max(RemoteLogSegmentState)
Headers = Sequence[tuple[str, bytes]]
LEDGER_PARTITIONS = 50
_MASK_32 = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


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

    def __str__(self) -> str:
        return f"{self.partition}:{self.segment_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeaders:
    """The writer of a record, and what it knew: leader epoch, expected previous state,
    process.
    """

    leader_epoch: int
    expected_previous: int
    writer: Uuid
    version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if not NO_PREVIOUS <= self.expected_previous <= _LAST_STATE:
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
            if not FORMAT_VERSION <= version <= LAYOUT_VERSION:
                kind = NewerFormat if version > LAYOUT_VERSION else Corrupt
                raise kind(f"ledger record version rlm.v={version} is not known")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRecord:
    """A record of a kind that only a later version of this software knows, of which the key tells
    the partition. `kind` says its api key and version; None is the tombstone of such a key.
    """

    partition: PartitionKey
    key: bytes
    kind: str | None
    offset: int


def record_version(metadata: RemoteLogSegmentMetadata | None) -> int:
    """`rlm.v` of a record: the first version but for a segment of a newer layout, so that older
    versions of the software work as long as there is none.
    """
    custom = None if metadata is None else metadata.custom_metadata
    is_kafkas = custom is None or custom[LAYOUT_AT : LAYOUT_AT + 1] in (b"", _KAFKAS)
    return FORMAT_VERSION if is_kafkas else LAYOUT_VERSION


def encode_record_value(metadata: RemoteLogSegmentMetadata | None) -> bytes | None:
    """Value bytes; None for a tombstone."""
    return None if metadata is None else encode_value(metadata)


def decode_record(
    *, key: bytes | None, value: bytes | None, headers: Headers, offset: int, timestamp_ms: int
) -> LedgerRecord | PartitionDeleteRecord | LaterRecord:
    """One record as read from Kafka; Corrupt says what is wrong with it."""
    if key is None:
        raise Corrupt("ledger record has no key")
    record_headers = RecordHeaders.decode(headers)
    later = _later_record(key, value, offset)
    if later is not None:
        return later
    ledger_key = LedgerKey.decode(key)
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


def _later_record(key: bytes, value: bytes | None, offset: int) -> LaterRecord | None:
    """None for a record of a kind that is known here, or that none can be."""
    has_known_key = len(key) in (_KEY.size, _PARTITION_KEY.size)
    kind = None if value is None else unknown_kind(value)
    if len(key) < _PARTITION_KEY.size or (kind is None and (value is not None or has_known_key)):
        return None
    partition = LedgerKey.decode(key[: _PARTITION_KEY.size]).partition
    return LaterRecord(partition=partition, key=key, kind=kind, offset=offset)


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, unsigned (org.apache.kafka.common.utils.Utils.murmur2)."""
    hashed = (_SEED ^ len(data)) & _MASK_32
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = (word * _M) & _MASK_32
        word ^= word >> 24
        word = (word * _M) & _MASK_32
        hashed = (hashed * _M) & _MASK_32
        hashed ^= word
    if len(data) != whole:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = (hashed * _M) & _MASK_32
    hashed ^= hashed >> 13
    hashed = (hashed * _M) & _MASK_32
    return hashed ^ (hashed >> 15)


def partition_hash(key: PartitionKey) -> int:
    """Objects.hash(least significant long, most significant long, partition), unsigned 32 bits."""
    hashed = 1
    for half in (key.topic_id.raw[8:], key.topic_id.raw[:8]):
        hashed = (31 * hashed + _long_hash(half)) & _MASK_32
    return (31 * hashed + key.partition) & _MASK_32


@lru_cache(maxsize=1 << 16)
def ledger_partition(key: PartitionKey, partition_count: int = LEDGER_PARTITIONS) -> int:
    """The ledger partition of a user partition."""
    return (murmur2(partition_hash(key).to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _long_hash(half: bytes) -> int:
    """Java's Long.hashCode of 8 big-endian bytes, unsigned."""
    return int.from_bytes(half[:4], "big") ^ int.from_bytes(half[4:], "big")
