"""Decodes the records inside one batch; no other module does.

It is for the batch that answers a ListOffsets timestamp, for `rlm fetch`, and for checks; the read
path never uses it. Source: DefaultRecord, ControlRecordType (Kafka's record format v2).
"""

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from kip405.batches import HEADER_BYTES, BatchHeader, read_header
from kip405.compression import MAX_RECORDS_BYTES, decompress
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid

_CONTROL_KEY = struct.Struct(">hh")
_VARINT_BYTES = 5
_VARLONG_BYTES = 10


class ControlType(enum.IntEnum):
    """Types of control records that end transactions; others (KRaft's) are legal and stay plain
    numbers.
    """

    ABORT = 0
    COMMIT = 1


class Record(NamedTuple):
    """One record; control_type is None for user data."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control_type: int | None


def records(
    buffer: ByteBuffer, position: int = 0, max_bytes: int = MAX_RECORDS_BYTES
) -> Iterator[Record]:
    """Every record of the batch at `position`, in order.

    Corrupt where bytes are missing, left over or impossible; Invalid for magic 0 and 1. The batch's
    checksum is not checked here (`batches.check_crc`).
    """
    header = read_header(buffer, position)
    if header.magic < 2:
        raise Invalid(
            f"batch at offset {header.base_offset}: records of magic {header.magic} stay opaque"
        )
    if len(buffer) - position < header.size_bytes:
        raise Corrupt(f"batch at offset {header.base_offset} is cut short")
    body = bytes(memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes])
    try:
        yield from _decode(header, decompress(header.compression, body, max_bytes))
    except Corrupt as error:
        raise Corrupt(f"batch at offset {header.base_offset}: {error}") from error


def find_timestamp(
    batch: ByteBuffer, target_ms: int, least_offset: int = 0
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at or above least_offset whose timestamp is >=
    target_ms; None without.

    A batch of magic 0 or 1 answers with its own offset and timestamp.
    """
    header = read_header(batch)
    if header.max_timestamp_ms < target_ms:
        return None
    if header.magic < 2:
        return (
            (header.base_offset, header.max_timestamp_ms)
            if header.base_offset >= least_offset
            else None
        )
    for record in records(batch):
        if record.timestamp_ms >= target_ms and record.offset >= least_offset:
            return record.offset, record.timestamp_ms
    return None


def _decode(header: BatchHeader, data: bytes) -> Iterator[Record]:
    position = 0
    for index in range(header.record_count):
        size, position = _varint(data, position, _VARINT_BYTES)
        end = position + size
        if size < 0 or end > len(data):
            raise Corrupt(f"record {index} claims {size} bytes at byte {position} of {len(data)}")
        record, position = _record(header, data, position)
        if position != end:
            raise Corrupt(f"record {index} ends at byte {position}, declared {end}")
        yield record
    if position != len(data):
        raise Corrupt(f"{len(data) - position} bytes left over after {header.record_count} records")


def _record(header: BatchHeader, data: bytes, position: int) -> tuple[Record, int]:
    delta_ms, position = _varint(data, position + 1, _VARLONG_BYTES)
    delta, position = _varint(data, position, _VARINT_BYTES)
    key, position = _nullable(data, position)
    value, position = _nullable(data, position)
    headers, position = _headers(data, position)
    offset = header.base_offset + delta
    if not header.base_offset <= offset <= header.last_offset:
        raise Corrupt(f"record has offset {offset}, its batch ends at {header.last_offset}")
    timestamp = (
        header.max_timestamp_ms
        if header.is_log_append_time
        else header.base_timestamp_ms + delta_ms
    )
    control = _control_type(key) if header.is_control else None
    return Record(offset, timestamp, key, value, headers, control), position


def _headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(data, position, _VARINT_BYTES)
    if not 0 <= count <= len(data) - position:
        raise Corrupt(f"record claims {count} headers at byte {position}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _nullable(data, position)
        value, position = _nullable(data, position)
        try:
            headers.append(((name or b"").decode(), value))
        except UnicodeDecodeError as error:
            raise Corrupt(f"header name before byte {position} is not UTF-8") from error
    return tuple(headers), position


def _nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position, _VARINT_BYTES)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise Corrupt(f"field of {size} bytes at byte {position} of {len(data)}")
    return data[position:end], end


def _varint(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """Zigzag number of at most `max_bytes` bytes and the position after it."""
    value = shift = 0
    for at in range(position, min(position + max_bytes, len(data))):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise Corrupt(f"number at byte {position} of {len(data)} is cut short or too long")


def _control_type(key: bytes | None) -> int:
    if key is None or len(key) < _CONTROL_KEY.size:
        raise Corrupt(f"control record has key {key!r}")
    return int(_CONTROL_KEY.unpack_from(key)[1])
