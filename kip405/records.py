"""Decompresses and decodes the records inside one batch; no other module does.

It is for the batch that answers a ListOffsets timestamp, for `rlm fetch`, and for checks; the read
path never uses it. The codecs are Kafka's: gzip, snappy (xerial framing or raw), LZ4 frames, zstd
frames, with a limit on the size of the output. Only the service installs cramjam, so it is imported
when a batch needs it. Source: DefaultRecord, ControlRecordType (Kafka's record format v2).
"""

import enum
import struct
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

from kip405.batches import HEADER_BYTES, BatchHeader, Compression, read_header
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid

# Ten thousand times a usual batch; a batch that grows beyond it counts as an attack on memory.
MAX_RECORDS_BYTES = 256 * 1024 * 1024
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4
# A usual batch never needs more; what a huge batch took is freed with the next one.
_KEPT_BYTES = 16 * 1024 * 1024
# Rust's own text of std::io::ErrorKind::WriteZero, the only sign that the output did not fit.
_NO_ROOM = "failed to write whole buffer"
_GZIP_WINDOW = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_INT32 = struct.Struct(">i")

_CONTROL_KEY = struct.Struct(">hh")
_VARINT_BYTES = 5
_VARLONG_BYTES = 10


def decompress(
    compression: Compression, data: ByteBuffer, max_bytes: int = MAX_RECORDS_BYTES
) -> bytes:
    """The records' bytes; Corrupt where they cannot be decompressed or exceed `max_bytes`."""
    return bytes(Scratch().decompress(compression, data, max_bytes))


class Scratch:
    """Memory for the records of one batch after another; it is reused."""

    def __init__(self) -> None:
        self._room = bytearray()

    def decompress(
        self, compression: Compression, data: ByteBuffer, max_bytes: int = MAX_RECORDS_BYTES
    ) -> ByteBuffer:
        """The records' bytes, valid until the next call; Corrupt where they cannot be decompressed
        or exceed `max_bytes`.
        """
        if compression is Compression.NONE:
            return data
        if compression is Compression.GZIP:
            return _gunzip(data, max_bytes)
        if compression is Compression.SNAPPY:
            return _snappy(data, max_bytes)
        return self._frame(compression, data, max_bytes)

    def _frame(self, compression: Compression, data: ByteBuffer, max_bytes: int) -> ByteBuffer:
        """LZ4 or zstd into memory of ours that grows up to the limit: the frame's own claim is not
        trusted.
        """
        cramjam = _cramjam()
        codec = cramjam.lz4 if compression is Compression.LZ4 else cramjam.zstd
        room = self._take(max(_FIRST_GUESS_BYTES, _GROWTH * len(data)), max_bytes)
        while True:
            try:
                size = codec.decompress_into(data, room)
            except cramjam.DecompressionError as error:
                if len(room) >= max_bytes or _NO_ROOM not in str(error):
                    name = compression.name.lower()
                    raise Corrupt(f"{name} records: {error} (limit {max_bytes} bytes)") from error
                room = self._take(len(room) * _GROWTH, max_bytes)
            else:
                return room[:size]

    def _take(self, size_bytes: int, max_bytes: int) -> memoryview:
        """Memory of at least that size where the limit allows it; much of it is not kept."""
        size_bytes = min(size_bytes, max_bytes)
        if len(self._room) < size_bytes or len(self._room) > max(size_bytes, _KEPT_BYTES):
            self._room = bytearray(size_bytes)
        return memoryview(self._room)[:max_bytes]


def _gunzip(data: ByteBuffer, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = stream.decompress(data, max_bytes)
    except zlib.error as error:
        raise Corrupt(f"gzip records: {error}") from error
    if not stream.eof:
        problem = "are cut short" if not stream.unconsumed_tail else f"exceed {max_bytes} bytes"
        raise Corrupt(f"gzip records {problem}")
    if stream.unused_data:
        raise Corrupt(f"gzip records: {len(stream.unused_data)} bytes left over")
    return plain


def _snappy(data: ByteBuffer, max_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    blocks: list[bytes] = []
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise Corrupt(f"snappy records: block size is cut short at byte {position}")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= len(data) - position:
            raise Corrupt(
                f"snappy records: block of {size} bytes at byte {position} of {len(data)}"
            )
        blocks.append(_snappy_block(data[position : position + size], max_bytes))
        max_bytes -= len(blocks[-1])
        position += size
    return b"".join(blocks)


def _snappy_block(data: ByteBuffer, max_bytes: int) -> bytes:
    cramjam = _cramjam()
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise Corrupt(f"snappy records exceed {max_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise Corrupt(f"snappy records: {error}") from error


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise Invalid("compressed records need cramjam: pip install cramjam") from error
    return cramjam


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
