"""Record batches by their headers: read, iterate, cut. The records inside stay opaque (records.py).

Magic 2 is the format of every Kafka since 0.11. Magic 0 and 1 are legal in old logs; they are
iterated by offset and size and checked by their CRC-32. Unsigned varints are as in Kafka's flexible
messages and protobuf: 7 bits a byte, low bits first. This module must not know where the bytes come
from. Sources: DefaultRecordBatch, AbstractLegacyRecordBatch, LegacyRecord.
"""

import enum
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Corrupt

HEADER_BYTES = 61
PREFIX_BYTES = 12
NO_EPOCH = -1
NO_TIMESTAMP = -1

_V2 = struct.Struct(">qiibIhiqqqhii")
_POSITION_FIELDS = struct.Struct(">qi4xb")
_PREFIX = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_LEGACY = struct.Struct(">qiIbb")
_INT64 = struct.Struct(">q")
_LAST_OFFSET_DELTA_AT = 23
_CRC_FROM_V2 = 21
_CRC_FROM_LEGACY = 16
_LEGACY_TIMESTAMP_AT = 18
# offset, size, crc, magic, attributes, (timestamp), key size, value size
_MIN_BYTES = {0: 26, 1: 34, 2: HEADER_BYTES}
_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class Compression(enum.IntEnum):
    """The ids are Kafka's (CompressionType)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """Header of one batch. last_offset is inclusive as on disk; size_bytes counts the whole batch.

    Magic 0 and 1: base_offset equals last_offset (a compressed batch records only its last offset),
    epoch, producer and sequence are -1, record_count is -1 where only decompression would show it.
    """

    base_offset: int
    last_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & _CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        return self.magic >= 1 and bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def compression(self) -> Compression:
        """Corrupt for an id that Kafka does not know."""
        try:
            return Compression(self.attributes & _COMPRESSION_MASK)
        except ValueError as error:
            raise Corrupt(f"batch at offset {self.base_offset}: {error}") from error


def size_at(buffer: ByteBuffer, position: int, end: int | None = None) -> int | None:
    """Size in bytes of the batch that begins at `position`, None where its first 12 bytes are not
    all there.

    Corrupt for a size no batch can have. The batch itself may reach beyond the buffer.
    """
    limit = len(buffer) if end is None else end
    if limit - position < PREFIX_BYTES:
        return None
    _, length = _PREFIX.unpack_from(buffer, position)
    return _whole_size(length, position)


def base_offset_at(buffer: ByteBuffer, position: int) -> int:
    """First 8 bytes of the batch that begins at `position`, which must be there."""
    return int(_INT64.unpack_from(buffer, position)[0])


def _whole_size(length: int, position: int) -> int:
    size = int(length) + PREFIX_BYTES
    if size < _MIN_BYTES[0]:
        raise Corrupt(f"batch at position {position} claims {size} bytes")
    return size


def read_header(buffer: ByteBuffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; Corrupt where it is cut short or impossible.

    The batch's body may lie beyond the buffer; nothing but the header is looked at.
    """
    available = len(buffer) - position
    if position < 0 or available < _POSITION_FIELDS.size:
        raise Corrupt(f"batch at position {position} is cut short: {available} bytes")
    magic = buffer[position + 16]
    least = _MIN_BYTES.get(magic)
    if least is None:
        raise Corrupt(f"batch at position {position} has unknown magic {magic}")
    if available < least:
        raise Corrupt(
            f"batch at position {position} is cut short: {available} bytes, {least} needed"
        )
    header = _v2_header(buffer, position) if magic == 2 else _legacy_header(buffer, position, magic)
    if header.size_bytes < least:
        raise Corrupt(f"batch at position {position} claims {header.size_bytes} bytes")
    return header


def _v2_header(buffer: ByteBuffer, position: int) -> BatchHeader:
    head = _V2.unpack_from(buffer, position)
    base, length, epoch, magic, crc, attributes, delta, first_ms, max_ms = head[:9]
    producer_id, producer_epoch, sequence, count = head[9:]
    if base < 0 or delta < 0 or count < 0:
        raise Corrupt(f"batch at position {position}: offset {base}, delta {delta}, count {count}")
    return BatchHeader(
        base_offset=base,
        last_offset=base + delta,
        size_bytes=length + PREFIX_BYTES,
        leader_epoch=epoch,
        magic=magic,
        crc=crc,
        attributes=attributes,
        base_timestamp_ms=first_ms,
        max_timestamp_ms=max_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        record_count=count,
    )


def _legacy_header(buffer: ByteBuffer, position: int, magic: int) -> BatchHeader:
    offset, length, crc, _, attributes = _LEGACY.unpack_from(buffer, position)
    if offset < 0:
        raise Corrupt(f"batch at position {position}: offset {offset}")
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _INT64.unpack_from(buffer, position + _LEGACY_TIMESTAMP_AT)
    return BatchHeader(
        base_offset=offset,
        last_offset=offset,
        size_bytes=length + PREFIX_BYTES,
        leader_epoch=NO_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes,
        base_timestamp_ms=timestamp,
        max_timestamp_ms=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1 if attributes & _COMPRESSION_MASK else 1,
    )


def batch_headers(
    buffer: ByteBuffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch in [position, end); Corrupt where one is cut short or
    offsets descend.
    """
    limit = len(buffer) if end is None else end
    if not 0 <= position <= limit <= len(buffer):
        raise ValueError(f"bytes {position}..{limit} are no range of {len(buffer)} bytes")
    last_offset = -1
    while position < limit:
        header = read_header(buffer, position)
        if position + header.size_bytes > limit:
            raise Corrupt(
                f"batch at position {position} (offset {header.base_offset}) is cut short: "
                f"{limit - position} of {header.size_bytes} bytes"
            )
        if header.base_offset <= last_offset:
            raise Corrupt(
                f"batch at position {position}: offset {header.base_offset} after {last_offset}"
            )
        last_offset = header.last_offset
        yield position, header
        position += header.size_bytes


def check_crc(buffer: ByteBuffer, position: int, header: BatchHeader) -> None:
    """Corrupt where the bytes of the whole batch at `position` do not have the checksum of its
    header.
    """
    view = memoryview(buffer)
    if header.magic == 2:
        found = crc32c(view[position + _CRC_FROM_V2 : position + header.size_bytes])
    else:
        found = zlib.crc32(view[position + _CRC_FROM_LEGACY : position + header.size_bytes])
    if found != header.crc:
        raise Corrupt(
            f"batch at position {position} (offset {header.base_offset}): "
            f"crc is {found:08x}, its header says {header.crc:08x}"
        )


def cut_batches(
    buffer: ByteBuffer, first_offset: int, max_bytes: int, min_one: bool, upper_offset: int
) -> tuple[int, int, int]:
    """(start_position, end_position, next_offset) of the whole batches that answer a fetch from
    `first_offset`.

    `buffer` begins at a batch and may end inside one. Batches that end below first_offset are
    skipped; the cut stops before the first batch that is not wholly there, that begins at or above
    upper_offset, or that would pass max_bytes (but `min_one` lets the first one be larger). Nothing
    to give: start == end, next_offset == first_offset, and start is where to read on (`size_at`
    says how much). Headers only: about 0.3 us a batch. Corrupt for impossible sizes.
    """
    limit = len(buffer)
    start = position = _skip_below(buffer, first_offset, limit)
    budget = start + max_bytes
    last_start = -1
    unpack_prefix = _PREFIX.unpack_from
    while limit - position >= PREFIX_BYTES:
        base_offset, length = unpack_prefix(buffer, position)
        after = position + length + PREFIX_BYTES
        if length < 14:
            _whole_size(length, position)
        if after > limit or base_offset >= upper_offset:
            break
        if after > budget and not (min_one and last_start < 0):
            break
        last_start = position
        position = after
    if last_start < 0:
        return start, start, first_offset
    return start, position, _last_offset(buffer, last_start) + 1


def _skip_below(buffer: ByteBuffer, first_offset: int, limit: int) -> int:
    """Position of the first batch that reaches first_offset, is cut short, or would come next."""
    position = 0
    while (size := size_at(buffer, position)) is not None and position + size <= limit:
        if _last_offset(buffer, position) >= first_offset:
            break
        position += size
    return position


def _last_offset(buffer: ByteBuffer, position: int) -> int:
    base_offset, _, magic = _POSITION_FIELDS.unpack_from(buffer, position)
    if magic < 2:
        return int(base_offset)
    try:
        (delta,) = _INT32.unpack_from(buffer, position + _LAST_OFFSET_DELTA_AT)
    except struct.error as error:
        raise Corrupt(f"batch at position {position} is cut short: {error}") from error
    return int(base_offset + delta)


def uvarint(value: int) -> bytes:
    """The bytes of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
