"""`python -m tests.rlm_spark.decode.fuzzing`: hostile bytes for both decoders, with bounded memory.

Each case has to end in rows that both give, or in the same DecodeError from both. Runs in a process
of its own, because what it looks for are crashes; prints what it did as JSON.
"""

import argparse
import json
import os
import random
import resource
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from rlm_spark.decode import record_batches
from rlm_spark.decode.engine import ENVIRONMENT
from tests.kip405.batch_builder import with_right_crc
from tests.rlm_spark.decode.encoding import CODECS, Batch, Rec, encode_body, varint
from tests.rlm_spark.decode.engines import ALL, TOPIC_PARTITION, names
from tiered_reads.errors import DecodeError
from tiered_reads.values import Fetched, OffsetRange

_MIB = 1 << 20
_BODY_AT = 61
# Name, position and format of each field of a batch's header behind its checksum.
_FIELDS = {
    "base_offset": (0, "q"),
    "length": (8, "i"),
    "magic": (16, "b"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "record_count": (57, "i"),
}
_EDGES = (0, 1, -1, 2, 127, 128, 255, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 34, -(1 << 34))
_LONG_EDGES = (*_EDGES, (1 << 63) - 1, -(1 << 63), 1 << 62, -(1 << 62))


def a_batch(rng: random.Random) -> Batch:
    """A batch that is in order."""
    count = rng.randrange(6)
    records = tuple(
        Rec(
            offset=index * rng.choice((1, 1, 3)) + 5,
            timestamp_ms=rng.randrange(10_000),
            key=_maybe(rng, 20),
            value=_maybe(rng, rng.choice((5, 100, 3_000))),
            headers=tuple((_maybe(rng, 5) or b"", _maybe(rng, 9)) for _ in range(rng.randrange(3))),
        )
        for index in range(count)
    )
    records = tuple(sorted({r.offset: r for r in records}.values(), key=lambda r: r.offset))
    last = max((record.offset for record in records), default=5)
    return Batch(base_offset=5, last_offset=last, records=records, codec=rng.randrange(5))


def _maybe(rng: random.Random, most: int) -> bytes | None:
    return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(most + 1))


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(300))


def intact(rng: random.Random) -> bytes:
    return a_batch(rng).encode()


def cut_short(rng: random.Random) -> bytes:
    data = a_batch(rng).encode()
    return data[: rng.randrange(len(data))]


def flipped(rng: random.Random) -> bytes:
    data = bytearray(a_batch(rng).encode())
    _flip(rng, data)
    return bytes(data)


def flipped_and_sealed(rng: random.Random) -> bytes:
    """The checksum is right again: what is behind it has to find the flips."""
    data = bytearray(a_batch(rng).encode())
    body = data[17:]
    _flip(rng, body)
    return with_right_crc(data[:17] + body)


def hostile_records(rng: random.Random) -> bytes:
    """Numbers and lengths inside the records are replaced, then compressed and sealed."""
    batch = a_batch(rng)
    body = bytearray(Batch.encode(_with_codec(batch, 0))[_BODY_AT:])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(body) + 1)
        number = varint(rng.choice(_LONG_EDGES)) if rng.random() < 0.8 else b"\xff" * 11
        if number == b"\xff" * 11 or rng.random() < 0.5:
            body[at : at + rng.randrange(3)] = number
        else:
            body[at : at + 1] = varint(rng.randrange(-3, 80))
    return encode_body(batch, batch.codec, CODECS[batch.codec](bytes(body)))


def hostile_header(rng: random.Random) -> bytes:
    data = bytearray(a_batch(rng).encode())
    for _ in range(rng.randrange(1, 3)):
        position, form = _FIELDS[rng.choice(list(_FIELDS))]
        size = struct.calcsize(form) * 8
        value = rng.choice(_LONG_EDGES) % (1 << size)
        struct.pack_into(">" + form.upper(), data, position, value)
    return with_right_crc(data)


def bomb(rng: random.Random) -> bytes:
    """A few bytes that would grow beyond the limit of a batch."""
    batch = Batch(base_offset=5, last_offset=5, records=(Rec(offset=5),))
    codec = rng.choice((1, 2, 4))
    if codec == 2:
        return encode_body(batch, codec, varint_unsigned(300 * _MIB) + rng.randbytes(30))
    return encode_body(batch, codec, CODECS[codec](_record_of_zeros(300 * _MIB, headers=0)))


def near_bomb(rng: random.Random) -> bytes:
    """A few bytes that grow much, but not beyond the limit: one value, or very many headers."""
    batch = Batch(base_offset=5, last_offset=5, records=(Rec(offset=5),))
    size, headers = rng.choice(((60 * _MIB, 0), (0, _MIB // 4)))
    codec = rng.choice((1, 4))
    return encode_body(batch, codec, CODECS[codec](_record_of_zeros(size, headers)))


def _record_of_zeros(size: int, headers: int) -> bytes:
    """A value of zeros, and headers of no name and no value."""
    head = b"\x00\x00\x00" + varint(-1) + varint(size)
    tail = varint(headers) + bytes(2 * headers)
    return varint(len(head) + size + len(tail)) + head + bytes(size) + tail


def varint_unsigned(number: int) -> bytes:
    """Without zigzag, as a raw snappy block begins."""
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _with_codec(batch: Batch, codec: int) -> Batch:
    return Batch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        records=batch.records,
        codec=codec,
    )


def _flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    noise,
    intact,
    cut_short,
    flipped,
    flipped_and_sealed,
    flipped_and_sealed,
    hostile_records,
    hostile_records,
    hostile_records,
    hostile_header,
)


def outcome(data: bytes, decoder: str, target_bytes: int) -> tuple[str, pa.Table | None]:
    """The rows or the DecodeError of a decoder; other exceptions propagate."""
    os.environ[ENVIRONMENT] = decoder
    wanted = OffsetRange(topic_partition=TOPIC_PARTITION, start_offset=0, end_offset=(1 << 63) - 1)
    pieces = [Fetched(batches=data, next_offset=9)]
    try:
        batches = list(
            record_batches(pieces, wanted, ALL, read_committed=True, target_bytes=target_bytes)
        )
    except DecodeError as error:
        assert "\n" not in str(error)
        return str(error), None
    for batch in batches:
        batch.validate(full=True)
    return f"{len(batches)} batches", pa.Table.from_batches(batches, ALL)


def limit_memory(more_mib: int) -> None:
    """Let this process grow by so much and no more."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + more_mib * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(arguments: list[str] | None = None) -> int:
    """0 when every case ended well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--bombs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more-mib", type=int, default=0, help="0: memory is not limited")
    given = parser.parse_args(arguments)
    kinds = [KINDS[number % len(KINDS)] for number in range(given.cases)] + [
        bomb,
        near_bomb,
    ] * given.bombs
    if given.more_mib:
        outcome(b"", "python", 1)
        limit_memory(given.more_mib)
    ends: Counter[str] = Counter()
    for number, kind in enumerate(kinds):
        rng = random.Random(given.seed * 10_000_000 + number)
        data = kind(rng)
        target_bytes = rng.choice((1, 100, 2 << 20))
        results = [outcome(data, decoder, target_bytes) for decoder in names()]
        if any(result != results[0] for result in results):
            print(f"seed {given.seed} case {number} {kind.__name__}: {results}", file=sys.stderr)
            return 1
        ends[f"{kind.__name__}: {'rows' if results[0][1] is not None else 'refused'}"] += 1
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cases": len(kinds), "peak_mib": peak_kib // 1024, "ends": ends}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
