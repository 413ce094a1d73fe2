"""Record batches for tests, made by encoders that are not ours: aiokafka for magic 2, struct by
hand for the rest.
"""

import struct
import zlib
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from kip405.crc import crc32c

_CRC_AT = 17
_ATTRIBUTES_AT = 21


def batch(
    base_offset: int,
    count: int = 3,
    *,
    epoch: int = 0,
    first_ms: int = 1_000,
    value: bytes = b"value",
    compression: int = 0,
    transactional: bool = False,
    producer_id: int = -1,
) -> bytes:
    """A batch of `count` records with keys k0, k1, ... and one header, timestamps first_ms,
    first_ms + 1, ...
    """
    builder = DefaultRecordBatchBuilder(
        2, compression, transactional, producer_id, 0 if transactional else -1, 0, 1 << 26
    )
    for index in range(count):
        builder.append(index, first_ms + index, b"k%d" % index, value, [("h", b"%d" % index)])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def with_attributes(data: bytes, extra: int) -> bytes:
    """The batch with more attribute bits set, its checksum made right again."""
    changed = bytearray(data)
    (attributes,) = struct.unpack_from(">h", changed, _ATTRIBUTES_AT)
    struct.pack_into(">h", changed, _ATTRIBUTES_AT, attributes | extra)
    return with_right_crc(changed)


def with_body(header_from: bytes, body: bytes) -> bytes:
    """A batch with the header of another and the records' bytes given, size and checksum made
    right.
    """
    changed = bytearray(header_from[:61] + body)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    return with_right_crc(changed)


def with_right_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, _CRC_AT, crc32c(data[_ATTRIBUTES_AT:]))
    return bytes(data)


def control_batch(offset: int, control_type: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    """An end-of-transaction marker as a broker writes it: key (version 0, type), value (version 0,
    coordinator epoch).
    """
    key, value = struct.pack(">hh", 0, control_type), struct.pack(">hi", 0, 5)
    record = (
        b"\x00\x00\x00" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\x00"
    )
    marked = with_attributes(
        batch(offset, 1, epoch=epoch, transactional=True, producer_id=producer_id), 0x20
    )
    return with_body(marked, bytes([len(record) * 2]) + record)


def legacy(
    offset: int, *, magic: int = 1, timestamp_ms: int = 1_000, value: bytes | None = b"value"
) -> bytes:
    """One uncompressed message of magic 0 or 1 at `offset`."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, timestamp_ms, b"key", value)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, offset)
    return bytes(data)


def smallest_legacy(offset: int) -> bytes:
    """The smallest message there is: magic 0 without key and value, 26 bytes."""
    body = struct.pack(">bbii", 0, 0, -1, -1)
    return struct.pack(">qiI", offset, 14, zlib.crc32(body)) + body


def log_of(base_offset: int, counts: Sequence[int], *, epoch: int = 0) -> bytes:
    """Consecutive batches with these record counts."""
    batches = []
    for count in counts:
        batches.append(batch(base_offset, count, epoch=epoch, first_ms=1_000 + base_offset))
        base_offset += count
    return b"".join(batches)
