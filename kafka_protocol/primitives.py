"""Readers and writers of Kafka's primitive types over a buffer and a position.

Integers, varints, strings, bytes and uuids are bounds-checked here only, in both the classic and
the compact (KIP-482) form. This module must not know APIs or versions; `what` only names them in
errors.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

UUID_SIZE_BYTES = 16
ZERO_UUID = bytes(UUID_SIZE_BYTES)
MAX_INT16 = 0x7FFF
MAX_INT32 = 0x7FFF_FFFF
_MAX_UVARINT_BYTES = 5

_BOOL = struct.Struct(">?")
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


class WireError(Exception):
    """Bytes or values that are not the expected Kafka message; names message and position."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; answer (value, next position).

    Raises IndexError past the end of the buffer and ValueError beyond 32 bits: callers in hot
    paths turn both into `WireError` once, at their edge.
    """
    value = 0
    for count in range(_MAX_UVARINT_BYTES):
        byte = buffer[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, position + count + 1
    raise ValueError("varint longer than 32 bits")


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned varint (0 to 2**32 - 1)."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise WireError(f"{value} does not fit an unsigned 32 bit varint")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Reader:
    """A cursor over a buffer; every read past the end or out of range raises `WireError`."""

    __slots__ = ("buffer", "position", "what")

    def __init__(self, buffer: Buffer, position: int = 0, *, what: str) -> None:
        self.buffer = memoryview(buffer)
        self.position = position
        self.what = what

    def fail(self, reason: str) -> WireError:
        """The error to raise for what was met at the present position."""
        return WireError(f"{self.what}: {reason} at position {self.position}")

    def remaining(self) -> int:
        """Bytes between the cursor and the end of the buffer."""
        return len(self.buffer) - self.position

    def _fixed(self, layout: struct.Struct) -> int:
        end = self.position + layout.size
        if end > len(self.buffer):
            raise self.fail(f"{layout.size} bytes expected, {self.remaining()} left")
        value: int = layout.unpack_from(self.buffer, self.position)[0]
        self.position = end
        return value

    def boolean(self) -> bool:
        """One byte, zero or not."""
        return self._fixed(_INT8) != 0

    def int8(self) -> int:
        """Signed, 1 byte."""
        return self._fixed(_INT8)

    def int16(self) -> int:
        """Signed, 2 bytes."""
        return self._fixed(_INT16)

    def uint16(self) -> int:
        """Unsigned, 2 bytes."""
        return self._fixed(_UINT16)

    def int32(self) -> int:
        """Signed, 4 bytes."""
        return self._fixed(_INT32)

    def int64(self) -> int:
        """Signed, 8 bytes."""
        return self._fixed(_INT64)

    def float64(self) -> float:
        """IEEE 754, 8 bytes; what is no number is refused, as nothing compares with it."""
        value: float = _FLOAT64.unpack(self.view(_FLOAT64.size))[0]
        if math.isnan(value):
            raise self.fail("a number expected")
        return value

    def uvarint(self) -> int:
        """Unsigned varint of at most 32 bits."""
        try:
            first = self.buffer[self.position]
            if first < 0x80:  # nearly always: counts and lengths are small
                self.position += 1
                return first
            value, self.position = read_uvarint(self.buffer, self.position)
        except (IndexError, ValueError) as error:
            raise self.fail("varint truncated or too long") from error
        return value

    def view(self, size_bytes: int) -> memoryview:
        """The next bytes, not copied."""
        if not 0 <= size_bytes <= self.remaining():
            raise self.fail(f"{size_bytes} bytes expected, {self.remaining()} left")
        start = self.position
        self.position += size_bytes
        return self.buffer[start : self.position]

    def uuid(self) -> bytes:
        """16 bytes, most significant first."""
        return bytes(self.view(UUID_SIZE_BYTES))

    def _text(self, size_bytes: int) -> str | None:
        if size_bytes < 0:
            self._check_null(size_bytes)
            return None
        try:
            return str(self.view(size_bytes), "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail("string is not UTF-8") from error

    def _check_null(self, size_bytes: int) -> None:
        if size_bytes != -1:
            raise self.fail(f"negative length {size_bytes}")

    def nullable_string(self) -> str | None:
        """int16 length, -1 = null."""
        return self._text(self.int16())

    def compact_nullable_string(self) -> str | None:
        """uvarint length + 1, 0 = null."""
        return self._text(self.uvarint() - 1)

    def nullable_bytes(self) -> bytes | None:
        """int32 length, -1 = null; copied."""
        size_bytes = self.int32()
        if size_bytes < 0:
            self._check_null(size_bytes)
            return None
        return bytes(self.view(size_bytes))

    def compact_nullable_bytes(self) -> bytes | None:
        """uvarint length + 1, 0 = null; copied."""
        size_bytes = self.uvarint() - 1
        return None if size_bytes < 0 else bytes(self.view(size_bytes))

    def _elements(self, count: int, read: Callable[["Reader"], T]) -> list[T] | None:
        if count < 0:
            self._check_null(count)
            return None
        if count > self.remaining():  # every element takes at least one byte: no huge allocation
            raise self.fail(f"array of {count} elements in {self.remaining()} bytes")
        return [read(self) for _ in range(count)]

    def nullable_array(self, read: Callable[["Reader"], T]) -> list[T] | None:
        """int32 count, -1 = null."""
        return self._elements(self.int32(), read)

    def compact_nullable_array(self, read: Callable[["Reader"], T]) -> list[T] | None:
        """uvarint count + 1, 0 = null."""
        return self._elements(self.uvarint() - 1, read)

    def count(self, *, flexible: bool) -> int:
        """Number of elements of an array that follows; a null array counts as empty."""
        count = self.uvarint() - 1 if flexible else self.int32()
        if count > self.remaining() or count < -1:
            raise self.fail(f"array of {count} elements in {self.remaining()} bytes")
        return max(count, 0)

    def string(self, *, flexible: bool) -> str:
        """A string that may not be null."""
        value = self.compact_nullable_string() if flexible else self.nullable_string()
        if value is None:
            raise self.fail("string is null")
        return value

    def skip_string(self, *, flexible: bool) -> None:
        """A string, null or not, whatever bytes it has."""
        size_bytes = self.uvarint() - 1 if flexible else self.int16()
        if size_bytes < -1:
            raise self.fail(f"negative length {size_bytes}")
        self.view(max(size_bytes, 0))

    def skip_tags(self) -> None:
        """Tagged fields of a flexible struct, whatever they are (KIP-482)."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.view(self.uvarint())


class Writer:
    """Appends primitives to a bytearray; a value that does not fit raises `WireError`."""

    __slots__ = ("buffer", "what")

    def __init__(self, *, what: str) -> None:
        self.buffer = bytearray()
        self.what = what

    def fail(self, reason: str) -> WireError:
        """The error to raise for a value that cannot be written here."""
        return WireError(f"{self.what}: {reason} at position {len(self.buffer)}")

    def _fixed(self, layout: struct.Struct, value: object) -> None:
        try:
            self.buffer += layout.pack(value)
        except struct.error as error:
            raise self.fail(f"{value!r} does not fit: {error}") from error

    def boolean(self, value: object) -> None:
        """One byte, zero or one."""
        self._fixed(_BOOL, value)

    def int8(self, value: object) -> None:
        """Signed, 1 byte."""
        self._fixed(_INT8, value)

    def int16(self, value: object) -> None:
        """Signed, 2 bytes."""
        self._fixed(_INT16, value)

    def uint16(self, value: object) -> None:
        """Unsigned, 2 bytes."""
        self._fixed(_UINT16, value)

    def int32(self, value: object) -> None:
        """Signed, 4 bytes."""
        self._fixed(_INT32, value)

    def int64(self, value: object) -> None:
        """Signed, 8 bytes."""
        self._fixed(_INT64, value)

    def float64(self, value: object) -> None:
        """IEEE 754, 8 bytes."""
        self._fixed(_FLOAT64, value)

    def uvarint(self, value: int) -> None:
        """Unsigned varint of at most 32 bits."""
        self.buffer += encode_uvarint(value)

    def raw(self, value: Buffer) -> None:
        """Bytes without a length."""
        self.buffer += value

    def uuid(self, value: object) -> None:
        """16 bytes, most significant first."""
        if not isinstance(value, bytes | bytearray | memoryview) or len(value) != UUID_SIZE_BYTES:
            raise self.fail(f"a uuid is 16 bytes, not {value!r}")
        self.buffer += value

    def _utf8(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise self.fail(f"a string is expected, not {type(value).__name__}")
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise self.fail("string is not encodable as UTF-8") from error
        if len(encoded) > MAX_INT16:
            raise self.fail(f"string of {len(encoded)} bytes is longer than {MAX_INT16}")
        return encoded

    def nullable_string(self, value: object) -> None:
        """int16 length, -1 = null."""
        if value is None:
            return self.int16(-1)
        encoded = self._utf8(value)
        self.int16(len(encoded))
        self.buffer += encoded
        return None

    def compact_nullable_string(self, value: object) -> None:
        """uvarint length + 1, 0 = null."""
        if value is None:
            return self.uvarint(0)
        encoded = self._utf8(value)
        self.uvarint(len(encoded) + 1)
        self.buffer += encoded
        return None

    def _blob(self, value: object) -> Buffer:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self.fail(f"bytes are expected, not {type(value).__name__}")
        return value

    def nullable_bytes(self, value: object) -> None:
        """int32 length, -1 = null."""
        if value is None:
            return self.int32(-1)
        blob = self._blob(value)
        self.int32(len(blob))
        self.buffer += blob
        return None

    def compact_nullable_bytes(self, value: object) -> None:
        """uvarint length + 1, 0 = null."""
        if value is None:
            return self.uvarint(0)
        blob = self._blob(value)
        self.uvarint(len(blob) + 1)
        self.buffer += blob
        return None

    def _sequence(self, value: object) -> Sequence[object]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
            raise self.fail(f"a sequence is expected, not {type(value).__name__}")
        return value

    def nullable_array(self, value: object, write: Callable[["Writer", object], None]) -> None:
        """int32 count, -1 = null."""
        if value is None:
            return self.int32(-1)
        elements = self._sequence(value)
        self.int32(len(elements))
        for element in elements:
            write(self, element)
        return None

    def compact_nullable_array(
        self, value: object, write: Callable[["Writer", object], None]
    ) -> None:
        """uvarint count + 1, 0 = null."""
        if value is None:
            return self.uvarint(0)
        elements = self._sequence(value)
        self.uvarint(len(elements) + 1)
        for element in elements:
            write(self, element)
        return None
