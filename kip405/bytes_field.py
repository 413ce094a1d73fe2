"""Writes and reads a protobuf message with one large `bytes` field, without copies of that field.

protobuf's classes copy the field four times on its way out and twice on its way in, which is most
of the cost of messages with stored batches. The encoded bytes are the same. Source:
https://protobuf.dev/programming-guides/encoding/. This module must not know which message it is.
"""

from collections.abc import Sequence

from kip405.batches import uvarint
from kip405.crc import ByteBuffer

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES = 10


def with_bytes_field(rest: bytes, field: int, parts: Sequence[ByteBuffer]) -> bytes:
    """The message whose other fields are `rest`, with the field made of these parts."""
    size_bytes = sum(len(part) for part in parts)
    if not size_bytes:
        return rest
    return b"".join((rest, uvarint(field << 3 | _LENGTH), uvarint(size_bytes), *parts))


def split_bytes_field(message: bytes, field: int) -> tuple[memoryview, bytes]:
    """The field as a view of the message (its last occurrence, empty if there is none), and the
    message without it. ValueError: these bytes are no message.
    """
    wanted, view, at = field << 3 | _LENGTH, memoryview(message), 0
    found, rest = view[:0], list[memoryview]()
    while at < len(message):
        begin = start = at
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == _LENGTH:
            size_bytes, start = _read_varint(message, at)
            at = start + size_bytes
        elif kind == _VARINT:
            _, at = _read_varint(message, at)
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise ValueError(f"wire type {kind} at position {begin}")
        if at > len(message):
            raise ValueError(f"field at position {begin} is cut short")
        if tag == wanted:
            found = view[start:at]
        else:
            rest.append(view[begin:at])
    return found, b"".join(rest)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """(value, position after it); ValueError."""
    value = 0
    for shift, byte in enumerate(message[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError(f"varint at position {at} has no end")
