"""The decoder in Python, for machines where the compiled one was not built.

It does not use numba, which loads LLVM and its compiled code in each new Python worker. That was
measured at half a second of CPU, the cost of 90,000 records here (5 to 6 us each). It would also be
one more dependency for executors, where a wheel with the compiled decoder serves better. Names,
buffers and messages are those of `_native.c`; tests compare both.
"""

from array import array
from itertools import accumulate

import pyarrow as pa

from kip405.crc import ByteBuffer
from kip405.crc import crc32c as _crc32c
from rlm_spark.decode.engine import (
    HEADERS,
    KEY,
    MAX_TARGET_BYTES,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Binary,
    Headers,
    Section,
)

# Size, attributes, timestamp, offset, key, value, number of headers: a byte each at least.
_LEAST_RECORD_BYTES = 7
_VARINT_BYTES = 5
_VARLONG_BYTES = 10
_MAX_INT32 = (1 << 31) - 1
_MAX_INT64 = (1 << 63) - 1
_ROW_BYTES = {KEY: 5, VALUE: 5, OFFSET: 8, TIMESTAMP: 8, TIMESTAMP_TYPE: 4, HEADERS: 5}
_HEADER_BYTES = 9
# The numbers of one byte, which most are.
_ONE_BYTE = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def crc32c(data: ByteBuffer, start: int, end: int) -> int:
    """CRC-32C of data[start:end]."""
    return _crc32c(memoryview(data)[start:end])


class RowBuilder:
    """See `engine.RowBuilder`."""

    def __init__(self, columns: int, target_bytes: int, constant_row_bytes: int) -> None:
        if not 0 < target_bytes <= MAX_TARGET_BYTES:
            raise ValueError(f"target of {target_bytes} bytes is not in 1..{MAX_TARGET_BYTES}")
        self._columns = columns
        self._target_bytes = target_bytes
        widths = (size for bit, size in _ROW_BYTES.items() if columns & bit)
        self._row_bytes = max(1, constant_row_bytes + sum(widths))
        self._last_offset = -1
        self._clear()

    def _clear(self) -> None:
        self.row_count = 0
        self._size_bytes = 0
        self._key = _Strings()
        self._value = _Strings()
        self._offsets = array("q")
        self._timestamps = array("q")
        self._types = array("i")
        self._headers = _HeaderLists()

    def append(self, section: Section, position: int, index: int) -> tuple[int, int]:
        """See `engine.RowBuilder.append`."""
        data, end, count = section.data, section.end, section.record_count
        if not 0 <= position <= end <= len(data) or not 0 <= index <= count:
            raise ValueError(f"no place in a section: byte {position} of {end}, record {index}")
        if (count - index) * _LEAST_RECORD_BYTES > end - position:
            raise ValueError(f"{count - index} records are claimed to be in {end - position} bytes")
        if index == 0:
            self._last_offset = section.base_offset - 1
        while index < count:
            after = self._record(section, position, index)
            if after < 0:
                return position, index
            position = after
            index += 1
        if position != end:
            raise ValueError(f"{end - position} bytes are left over after {count} records")
        return position, index

    def _record(self, section: Section, start: int, index: int) -> int:
        """Take one record. Returns the position after it, -1 if it does not fit."""
        if self._size_bytes >= self._target_bytes:
            return -1
        data = section.data
        size, position = _varint(data, start, section.end, _VARINT_BYTES, index)
        end = position + size
        if size < 0 or end > section.end:
            raise ValueError(
                f"record {index} claims {size} bytes at byte {position} of {section.end}"
            )
        delta_ms, position = _varint(data, position + 1, end, _VARLONG_BYTES, index)
        delta, position = _varint(data, position, end, _VARINT_BYTES, index)
        offset = section.base_offset + delta
        if not self._last_offset < offset <= section.last_offset:
            raise ValueError(
                f"record {index} has offset {section.base_offset} + {delta} "
                f"after {self._last_offset}, its batch ends at {section.last_offset}"
            )
        if not section.first_offset <= offset < section.until_offset:
            self._last_offset = offset
            return end
        key, position = _field(data, position, end, index)
        value, position = _field(data, position, end, index)
        headers_at = position
        if position + 1 == end and not data[position]:
            position = end
        else:
            position = _skip_headers(data, position, end, index)
        if position != end:
            raise ValueError(f"record {index} ends at byte {position}, declared {end}")
        if self.row_count and self._size_bytes + size > 2 * self._target_bytes:
            return -1
        self._last_offset = offset
        timestamp_ms = section.timestamp_ms + (0 if section.is_log_append_time else delta_ms)
        self._fixed_columns(offset, timestamp_ms, int(section.is_log_append_time), index)
        self._content(memoryview(data), key, value)
        if self._columns & HEADERS:
            self._size_bytes += self._headers.append(data, headers_at, end, index)
        return end

    def _fixed_columns(
        self, offset: int, timestamp_ms: int, timestamp_type: int, index: int
    ) -> None:
        columns = self._columns
        if columns & OFFSET:
            self._offsets.append(offset)
        if columns & TIMESTAMP:
            timestamp_us = timestamp_ms * 1000
            if not -_MAX_INT64 - 1 <= timestamp_us <= _MAX_INT64:
                raise ValueError(f"record {index} has a timestamp beyond what microseconds hold")
            self._timestamps.append(timestamp_us)
        if columns & TIMESTAMP_TYPE:
            self._types.append(timestamp_type)

    def _content(self, data: memoryview, key: slice | None, value: slice | None) -> None:
        columns = self._columns
        size_bytes = self._row_bytes
        if columns & KEY:
            size_bytes += self._key.append(None if key is None else data[key])
        if columns & VALUE:
            size_bytes += self._value.append(None if value is None else data[value])
        self._size_bytes += size_bytes
        self.row_count += 1

    def finish(self) -> tuple[object, ...]:
        """See `engine.RowBuilder.finish`."""
        rows = (
            self.row_count,
            self._key.finish(),
            self._value.finish(),
            memoryview(self._offsets),
            memoryview(self._timestamps),
            memoryview(self._types),
            self._headers.finish(),
        )
        self._clear()
        return rows


class _Strings:
    """Bytes or null, one after the other."""

    def __init__(self) -> None:
        self._valid = bytearray()
        self._ends = array("i", [0])
        self._data = bytearray()

    def append(self, value: ByteBuffer | None) -> int:
        """Append a value; returns the bytes that were added."""
        self._valid.append(value is not None)
        if value is not None:
            if len(self._data) + len(value) > _MAX_INT32:
                raise ValueError("a record is too large for one Arrow batch")
            self._data += value
        self._ends.append(len(self._data))
        return 0 if value is None else len(value)

    def finish(self) -> Binary:
        nulls, bits = _bits(self._valid)
        return nulls, bits, memoryview(self._ends), self._data


class _HeaderLists:
    """Lists of headers; a record without any has null, as in Spark's own source."""

    def __init__(self) -> None:
        self._valid = bytearray()
        self._sizes = array("i", [0])
        self._names = _Strings()
        self._values = _Strings()

    def append(self, data: ByteBuffer, position: int, end: int, index: int) -> int:
        """Append headers that _skip_headers has checked; returns the bytes that were added."""
        count, position = _varint(data, position, end, _VARINT_BYTES, index)
        self._valid.append(count > 0)
        self._sizes.append(count)
        size_bytes = count * _HEADER_BYTES
        for _ in range(count):
            name, position = _field(data, position, end, index)
            value, position = _field(data, position, end, index)
            size_bytes += self._names.append(_utf8(data[name or slice(0)]))
            size_bytes += self._values.append(None if value is None else data[value])
        return size_bytes

    def finish(self) -> Headers:
        nulls, bits = _bits(self._valid)
        ends = array("i", accumulate(self._sizes))
        return nulls, bits, memoryview(ends), ends[-1], self._names.finish(), self._values.finish()


def _bits(valid: bytearray) -> tuple[int, bytes | None]:
    nulls = valid.count(0)
    if not nulls:
        return 0, None
    flags = pa.Array.from_buffers(pa.uint8(), len(valid), [None, pa.py_buffer(valid)])
    packed: pa.Buffer = flags.cast(pa.bool_()).buffers()[1]
    return nulls, packed.to_pybytes()[: (len(valid) + 7) // 8]


def _skip_headers(data: ByteBuffer, position: int, end: int, index: int) -> int:
    """The position after the headers of a record. The headers are not kept: there may be many."""
    count, position = _varint(data, position, end, _VARINT_BYTES, index)
    if not 0 <= 2 * count <= end - position:
        raise ValueError(f"record {index} claims {count} headers at byte {position} of {end}")
    for _ in range(count):
        name, position = _field(data, position, end, index)
        if name is None:
            raise ValueError(f"record {index} has a header without a name before byte {position}")
        _, position = _field(data, position, end, index)
    return position


def _utf8(name: ByteBuffer) -> bytes:
    """Text that Arrow allows: bytes that are not UTF-8 are replaced, as consumers do."""
    return bytes(name).decode("utf-8", "replace").encode()


def _field(data: ByteBuffer, position: int, end: int, index: int) -> tuple[slice | None, int]:
    size, position = _varint(data, position, end, _VARINT_BYTES, index)
    if size < 0:
        return None, position
    if size > end - position:
        raise ValueError(f"record {index}: field of {size} bytes at byte {position} of {end}")
    return slice(position, position + size), position + size


def _varint(
    data: ByteBuffer, position: int, end: int, max_bytes: int, index: int
) -> tuple[int, int]:
    """Zigzag number of at most `max_bytes` bytes and 64 bits, and the position after it."""
    if position < end and (first := data[position]) < 0x80:
        return _ONE_BYTE[first], position + 1
    value = shift = 0
    for at in range(position, min(position + max_bytes, end)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise ValueError(f"record {index}: number at byte {position} of {end} is cut short or too long")
