"""The records of the demo, and the order in which they are produced. Pure.

Each record is a function of (seed, serial number), so that what a client reads can be made again
and compared byte for byte. Keys, headers, nulls and empty fields come in all mixtures, texts that
compress somewhat, binary values, and a few large ones. No byte is a line feed, since Java's console
consumer prints one record a line. Records are produced in cycles of chunks, by codec and
transaction. A transaction of one producer is open while another producer writes, so that records of
committed, aborted and no transactions lie between each other; every codec is used in all three
ways. Must not know Kafka, files or clocks.
"""

import base64
import enum
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

PARTITIONS = 4
_POOL_BYTES = 3 << 20
_LARGE_BYTES = 48 << 10
_MILLISECONDS_APART = 20
_DRAWS = struct.Struct("<4I")
_STATUSES = (b"placed", b"paid", b"packed", b"shipped", b"returned")
_WORDS = (
    b"the parcel was handed to the carrier and the customer was told when it will arrive; "
    b"until then it can be followed under the number that was sent to the customer by mail; "
)
_LENGTH = struct.Struct("<i")


class DemoRecord(NamedTuple):
    """One record as it is produced and as it must be read."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Content:
    """Makes records; two with the same seed and start make the same ones."""

    def __init__(self, *, seed: int, start_ms: int) -> None:
        self._seed = seed.to_bytes(8, "big")
        self._start_ms = start_ms
        noise = hashlib.shake_256(self._seed).digest(_POOL_BYTES)
        self._binary = noise.replace(b"\n", b"\x0b")
        self._text = base64.b64encode(noise)

    def record(self, serial: int) -> DemoRecord:
        """The record of this serial number (>= 0)."""
        digest = hashlib.blake2b(serial.to_bytes(8, "big"), key=self._seed, digest_size=16)
        shape, size, draw, extra = _DRAWS.unpack(digest.digest())
        return DemoRecord(
            partition=shape % PARTITIONS,
            timestamp_ms=self._start_ms + serial * _MILLISECONDS_APART,
            key=_key(shape >> 2),
            value=self._value(serial, shape >> 12, size, draw),
            headers=_headers(serial, extra),
        )

    def _value(self, serial: int, shape: int, size: int, draw: int) -> bytes | None:
        kind = shape % 128
        if kind == 0:
            return None
        if kind == 1:
            return b""
        length = _LARGE_BYTES + size % _LARGE_BYTES if size % 4096 == 0 else 600 + size % 3_800
        start = draw % (_POOL_BYTES - 2 * _LARGE_BYTES)
        if kind < 16:
            return self._binary[start : start + length]
        return b'{"order":%d,"status":"%s","amount":%d,"note":"%s","label":"%s"}' % (
            serial,
            _STATUSES[draw % len(_STATUSES)],
            size % 100_000,
            _WORDS[: length // 8],
            self._text[start : start + length - length // 8],
        )


def _key(shape: int) -> bytes | None:
    kind = shape % 64
    if kind == 0:
        return None
    if kind == 1:
        return b""
    return b"customer-%d" % (shape % 5_000)


def _headers(serial: int, extra: int) -> Headers:
    kind = extra % 16
    if kind < 6:
        return ()
    source = ("source", b"demo")
    if kind < 12:
        return (source, ("trace", b"%08x" % extra))
    if kind < 14:
        return (source, ("nothing", None), ("empty", b""))
    return (("step", b"1"), ("step", b"2"), ("größe", b"\x00\xff%d" % serial))


def content_digest(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """8 bytes that differ when key, value or headers do; null and empty are two things."""
    fields = [_length(key), key or b"", _length(value), value or b"", _LENGTH.pack(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        fields += (_LENGTH.pack(len(encoded)), encoded, _length(content), content or b"")
    return hashlib.blake2b(b"".join(fields), digest_size=8).digest()


def _length(field: bytes | None) -> bytes:
    return _LENGTH.pack(-1 if field is None else len(field))


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK_RECORDS = 400
TRANSACTION_RECORDS = 200
_TRANSACTION_EVERY = 3
_ABORT_EVERY = 3


class Outcome(enum.Enum):
    """The transaction of a chunk's records."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive serial numbers that one producer sends."""

    codec: str
    outcome: Outcome
    serials: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Half of the transaction is sent, then the plain chunk, then the other half and its end."""

    plain: Chunk
    transaction: Chunk | None


def cycles() -> Iterator[Cycle]:
    """Cycles without end; the producer stops after one when enough bytes are there."""
    serial = number = transactions = 0
    while True:
        transaction = None
        if number % _TRANSACTION_EVERY == 0:
            aborted = transactions % _ABORT_EVERY == 1
            transaction = Chunk(
                codec=CODECS[transactions % len(CODECS)],
                outcome=Outcome.ABORTED if aborted else Outcome.COMMITTED,
                serials=range(serial, serial + TRANSACTION_RECORDS),
            )
            serial += TRANSACTION_RECORDS
            transactions += 1
        plain = Chunk(
            codec=CODECS[number % len(CODECS)],
            outcome=Outcome.PLAIN,
            serials=range(serial, serial + CHUNK_RECORDS),
        )
        serial += CHUNK_RECORDS
        number += 1
        yield Cycle(plain=plain, transaction=transaction)
