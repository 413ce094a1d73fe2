"""Damages bytes the way that hurts parsers: lengths, counts, varints, repetitions, cuts."""

import random
import struct
from collections.abc import Callable, Iterator

_NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 127, 128, 255, 256, 32_767, 65_535, 2**24, 2**31 - 1)
_LONGS = (-(2**63), -2, -1, 0, 1, 2**31, 2**63 - 1)
_BYTES = (0, 1, 2, 0x16, 0x7F, 0x80, 0xFE, 0xFF)
_VARINTS = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80\x01",
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x00",  # overlong
    b"\x81\x80\x00",
    b"\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\x1f",  # more than 32 bits
    b"\xff\xff\xff\xff\xff\x01",
    b"\x80" * 10,
)
_MOST_BYTES = 40_000
_Mutation = Callable[[bytearray, random.Random], None]


def mutated(frame: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """A damaged copy, now and then a true one; `other` is what parts may be taken of."""
    damaged = bytearray(frame)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        if rng.random() < 0.1 and other:
            _cross(damaged, other, rng)
        else:
            rng.choice(_MUTATIONS)(damaged, rng)
    return bytes(damaged[:_MOST_BYTES])


def pieces(data: bytes, rng: random.Random, most: int) -> Iterator[bytearray]:
    """All of it, in parts of up to `most` bytes; each may be written to."""
    position = 0
    while position < len(data):
        size = rng.randint(1, most)
        yield bytearray(data[position : position + size])
        position += size


def next_size(rng: random.Random, most: int, unread_bytes: int) -> int:
    """Of the next piece, as in `pieces`. Single bytes are for what is read: the next bytes that are
    only passed on or collected, so many, come in one piece but for the last.
    """
    return rng.randint(1, most) if most > 1 else max(1, unread_bytes - 1)


def _at(damaged: bytearray, rng: random.Random) -> int:
    """Lengths and counts are near the beginning more often than not."""
    if not damaged:
        return 0
    return rng.randrange(min(len(damaged), rng.choice((16, 64, len(damaged)))))


def _flip(damaged: bytearray, rng: random.Random) -> None:
    if damaged:
        damaged[_at(damaged, rng)] ^= 1 << rng.randrange(8)


def _byte(damaged: bytearray, rng: random.Random) -> None:
    if damaged:
        damaged[_at(damaged, rng)] = rng.choice(_BYTES)


def _int16(damaged: bytearray, rng: random.Random) -> None:
    _overwrite(damaged, rng, struct.pack(">H", rng.choice(_NUMBERS) & 0xFFFF))


def _int32(damaged: bytearray, rng: random.Random) -> None:
    near = len(damaged) + rng.randint(-3, 3)
    _overwrite(damaged, rng, struct.pack(">I", rng.choice((*_NUMBERS, near)) & 0xFFFF_FFFF))


def _int64(damaged: bytearray, rng: random.Random) -> None:
    _overwrite(damaged, rng, struct.pack(">q", rng.choice(_LONGS)))


def _varint(damaged: bytearray, rng: random.Random) -> None:
    """In place of one byte, or of as many as it has."""
    varint, at = rng.choice(_VARINTS), _at(damaged, rng)
    damaged[at : at + rng.choice((1, len(varint)))] = varint


def _overwrite(damaged: bytearray, rng: random.Random, value: bytes) -> None:
    at = _at(damaged, rng)
    damaged[at : at + len(value)] = value


def _insert(damaged: bytearray, rng: random.Random) -> None:
    at = _at(damaged, rng)
    damaged[at:at] = rng.randbytes(rng.randint(1, 9))


def _delete(damaged: bytearray, rng: random.Random) -> None:
    at = _at(damaged, rng)
    del damaged[at : at + rng.randint(1, 9)]


def _truncate(damaged: bytearray, rng: random.Random) -> None:
    del damaged[rng.randrange(len(damaged) + 1) :]


def _repeat(damaged: bytearray, rng: random.Random) -> None:
    """Arrays in arrays, and very many equal elements."""
    at = _at(damaged, rng)
    part = damaged[at : at + rng.randint(1, 40)]
    damaged[at:at] = part * rng.choice((1, 2, 3, 200))
    del damaged[_MOST_BYTES:]


def _cross(damaged: bytearray, other: bytes, rng: random.Random) -> None:
    at, start = _at(damaged, rng), rng.randrange(len(other))
    damaged[at : at + rng.randint(0, 40)] = other[start : start + rng.randint(1, 40)]


_MUTATIONS: tuple[_Mutation, ...] = (
    _flip,
    _byte,
    _int16,
    _int32,
    _int64,
    _varint,
    _varint,
    _insert,
    _delete,
    _truncate,
    _repeat,
)
