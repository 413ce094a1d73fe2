"""Record batches of magic 2, written by hand from Kafka's description: every field to choose."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from kip405.crc import crc32c

CODECS = {0: bytes, 1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
ABORT, COMMIT = 0, 1

Headers = tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rec:
    """One record by its absolute offset and timestamp."""

    offset: int
    timestamp_ms: int = 1_000
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch; `last_offset` may lie behind its last record, as compaction leaves it."""

    base_offset: int
    last_offset: int
    records: tuple[Rec, ...]
    codec: int = 0
    log_append_ms: int | None = None
    producer_id: int = -1
    control: int | None = None
    transactional: bool = False
    base_timestamp_ms: int = 500

    def encode(self) -> bytes:
        """The bytes as a broker stores them."""
        plain = b"".join(map(self._record, self.records))
        attributes = self.codec
        attributes |= LOG_APPEND_TIME if self.log_append_ms is not None else 0
        attributes |= TRANSACTIONAL if self.transactional or self.control is not None else 0
        attributes |= CONTROL if self.control is not None else 0
        return encode_body(self, attributes, CODECS[self.codec](plain) if plain else b"")

    def _record(self, record: Rec) -> bytes:
        return encode_record(
            record.timestamp_ms - self.base_timestamp_ms, record.offset - self.base_offset, record
        )


def encode_body(batch: Batch, attributes: int, body: bytes) -> bytes:
    """A batch around these bytes, its length and checksum right."""
    latest = max([batch.base_timestamp_ms, *(r.timestamp_ms for r in batch.records)])
    rest = struct.pack(
        ">hiqqqhii",
        attributes,
        batch.last_offset - batch.base_offset,
        batch.base_timestamp_ms,
        latest if batch.log_append_ms is None else batch.log_append_ms,
        batch.producer_id,
        0,
        -1,
        len(batch.records),
    )
    rest += body
    head = struct.pack(">qiibI", batch.base_offset, 9 + len(rest), 0, 2, crc32c(rest))
    return head + rest


def encode_record(delta_ms: int, delta: int, record: Rec) -> bytes:
    """The record with its size before it."""
    body = b"\x00" + varint(delta_ms) + varint(delta) + field(record.key) + field(record.value)
    body += varint(len(record.headers))
    body += b"".join(field(name) + field(value) for name, value in record.headers)
    return varint(len(body)) + body


def control(offset: int, kind: int, producer_id: int) -> Batch:
    """The marker that ends a transaction."""
    marker = Rec(offset=offset, key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 0))
    return Batch(
        base_offset=offset,
        last_offset=offset,
        records=(marker,),
        control=kind,
        producer_id=producer_id,
    )


def simple(base_offset: int, count: int, **options: object) -> Batch:
    """A batch of records k<offset> = v<offset>."""
    offsets = range(base_offset, base_offset + count)
    batch = Batch(
        base_offset=base_offset,
        last_offset=base_offset + count - 1,
        records=tuple(Rec(offset=o, key=b"k%d" % o, value=b"v%d" % o) for o in offsets),
    )
    return replace(batch, **options)  # type: ignore[arg-type]


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def joined(batches: Sequence[Batch]) -> bytes:
    return b"".join(batch.encode() for batch in batches)
