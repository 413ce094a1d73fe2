"""One partition of the ledger as bytes, so that a later process need not replay all of it. Pure.

A snapshot is what one process leaves to the next one of the same software. It is no format that
outlives the software: a snapshot of another version or another `LAYOUT` is not read. Integers are
little-endian. The packed segments (`rlmm.packed`) are at the end as they are in memory, after their
lengths, so reading them is slicing. Where the bytes come from and whether they are whole,
`rlm.service.ledger_snapshot` decides, and `rlmm.resuming`, whether the ledger still is what it was.
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlmm import packed
from rlmm.frozen import FrozenLedger, FrozenPartition, KeyKnowledge
from rlmm.ledger_values import decode_partition_delete, encode_partition_delete
from rlmm.packed import LEAST_BYTES, Stamp, stamp_of
from rlmm.records import PartitionDeleteRecord, RecordHeaders
from rlmm.resuming import RecordMark, ResumePoint
from rlmm.segment_store import Segments

_HEAD = struct.Struct("<iqqiqqIqq?IIIII")
"""Ledger partition, log start, position, leader epoch; offset, timestamp and CRC of the last
record; next offset, contiguous since, whether absence is known; how many topics, writers,
partitions, unusual keys and tombstones follow.
"""
_TOPIC = struct.Struct("<16siH")
_UUID = struct.Struct("<16s")
_PARTITION = struct.Struct("<16siiqIIH")
"""Topic id, partition, newest epoch, version; how many segments and unusual keys; size of the
deletion, 0 = there is none.
"""
_DELETION = struct.Struct("<qib16s")
_UNUSUAL = struct.Struct("<?III")
"""Whether it is certain; sizes of the newest record, the lawful one (0 = none) and the reason."""
_TOMBSTONE = struct.Struct("<16si16s")
_LENGTH_BYTES: Final = 4
_MEANING: Final = 3
"""To be raised by whoever changes what the bytes mean, or what the fold makes of a record."""
_STRUCTS = (_HEAD, _TOPIC, _UUID, _PARTITION, _DELETION, _UNUSUAL, _TOMBSTONE)
LAYOUT: Final = " ".join(
    [str(_MEANING), sys.byteorder, packed.LAYOUT, *(one.format for one in _STRUCTS)]
)
"""What reader and writer must agree on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSection:
    """What one process knew of one ledger partition, and up to where it had read."""

    partition: int
    point: ResumePoint
    ledger: FrozenLedger


def encode_section(section: LedgerSection) -> Iterator[bytes]:
    """The bytes in pieces, none larger than a chunk of segments; together they are the section."""
    ledger, point = section.ledger, section.point
    partitions = ledger.partitions
    yield _HEAD.pack(
        section.partition,
        point.log_start,
        point.position,
        point.leader_epoch,
        *point.last,
        ledger.next_offset,
        ledger.contiguous_since,
        ledger.absence_is_known,
        len(ledger.topics),
        len(ledger.writers),
        len(partitions),
        sum(len(one.unusual) for one in partitions),
        len(ledger.tombstones),
    )
    for topic in ledger.topics:
        name = topic.topic.encode()
        yield _TOPIC.pack(topic.topic_id.raw, topic.partition, len(name)) + name
    yield b"".join(writer.raw for writer in ledger.writers)
    for partition in partitions:
        yield from _encode_partition(partition)
    for (topic_id, number), segment in ledger.tombstones:
        yield _TOMBSTONE.pack(topic_id.raw, number, segment)
    chunks = [chunk for partition in partitions for chunk in partition.segments.chunks]
    for chunk in chunks:
        yield array("I", map(len, chunk.items)).tobytes()
    for chunk in chunks:
        yield b"".join(chunk.items)


def _encode_partition(partition: FrozenPartition) -> Iterator[bytes]:
    topic_id, number = partition.key
    deletion = _encode_deletion(partition.deletion)
    head = _PARTITION.pack(
        topic_id.raw,
        number,
        partition.newest_epoch,
        partition.version,
        partition.segments.count,
        len(partition.unusual),
        len(deletion),
    )
    yield head + deletion
    for known in partition.unusual:
        newest, why = known.newest.packed, known.why.encode()
        lawful = known.lawful.packed if known.lawful else b""
        sizes = _UNUSUAL.pack(known.certain, len(newest), len(lawful), len(why))
        yield sizes + newest + lawful + why


def _encode_deletion(record: PartitionDeleteRecord | None) -> bytes:
    if record is None or record.metadata is None:
        return b""
    headers = record.headers
    writer = headers.leader_epoch, headers.expected_previous, headers.writer.raw
    return _DELETION.pack(record.offset, *writer) + encode_partition_delete(record.metadata)


def decode_section(data: bytes) -> LedgerSection:
    """What was encoded; Corrupt where the bytes cannot be that."""
    try:
        return _decode_section(_Cursor(data))
    except (ValueError, struct.error, KeyError) as error:
        raise Corrupt(f"section of a ledger snapshot: {error}") from error


def _decode_section(cursor: "_Cursor") -> LedgerSection:
    number, log_start, position, leader_epoch, *rest = cursor.unpack(_HEAD)
    offset, timestamp_ms, crc, next_offset, contiguous_since, absence_is_known, *counts = rest
    topics, writers, partitions, unusual, tombstones = counts
    names = tuple(_decode_topic(cursor) for _ in range(topics))
    writer_ids = tuple(Uuid(cursor.unpack(_UUID)[0]) for _ in range(writers))
    bare = [_decode_partition(cursor) for _ in range(partitions)]
    if sum(len(one.unusual) for one, _ in bare) != unusual:
        raise ValueError(f"{unusual} keys were announced")
    buried = tuple(_decode_tombstone(cursor) for _ in range(tombstones))
    items = _decode_segments(cursor, sum(count for _, count in bare))
    ends = accumulate((count for _, count in bare), initial=0)
    made = tuple(
        _with_segments(one, items[begin:end])
        for (one, _), (begin, end) in zip(bare, pairwise(ends), strict=True)
    )
    _refuse_strangers(made, buried)
    return LedgerSection(
        partition=number,
        point=ResumePoint(
            log_start=log_start,
            position=position,
            leader_epoch=leader_epoch,
            last=RecordMark(offset, timestamp_ms, crc),
        ),
        ledger=FrozenLedger(
            partitions=made,
            topics=names,
            writers=writer_ids,
            next_offset=next_offset,
            contiguous_since=contiguous_since,
            absence_is_known=absence_is_known,
            tombstones=buried,
        ),
    )


def _refuse_strangers(
    partitions: tuple[FrozenPartition, ...], tombstones: tuple[tuple[PartitionKey, bytes], ...]
) -> None:
    """ValueError where a tombstone is of no partition of the section."""
    strangers = {key for key, _ in tombstones} - {one.key for one in partitions}
    if strangers:
        raise ValueError(f"a tombstone of {strangers.pop()}, which is not there")


def _decode_topic(cursor: "_Cursor") -> TopicIdPartition:
    topic_id, partition, size = cursor.unpack(_TOPIC)
    name = cursor.take(size).decode()
    return TopicIdPartition(topic_id=Uuid(topic_id), topic=name, partition=partition)


def _decode_partition(cursor: "_Cursor") -> tuple[FrozenPartition, int]:
    """The partition without its segments, and how many it has."""
    topic_id, number, newest_epoch, version, segments, unusual, size = cursor.unpack(_PARTITION)
    key = PartitionKey(Uuid(topic_id), number)
    partition = FrozenPartition(
        key=key,
        segments=Segments.of([]),
        newest_epoch=newest_epoch,
        version=version,
        deletion=_decode_deletion(key, cursor.take(size)) if size else None,
        unusual=tuple(_decode_unusual(cursor) for _ in range(unusual)),
    )
    return partition, segments


def _with_segments(partition: FrozenPartition, items: list[bytes]) -> FrozenPartition:
    return FrozenPartition(
        key=partition.key,
        segments=Segments.of(items),
        newest_epoch=partition.newest_epoch,
        version=partition.version,
        deletion=partition.deletion,
        unusual=partition.unusual,
    )


def _decode_deletion(key: PartitionKey, data: bytes) -> PartitionDeleteRecord:
    offset, leader_epoch, expected_previous, writer = _DELETION.unpack_from(data)
    return PartitionDeleteRecord(
        partition=key,
        metadata=decode_partition_delete(data[_DELETION.size :]),
        headers=RecordHeaders(
            leader_epoch=leader_epoch, expected_previous=expected_previous, writer=Uuid(writer)
        ),
        offset=offset,
    )


def _decode_unusual(cursor: "_Cursor") -> KeyKnowledge:
    certain, newest_size, lawful_size, why_size = cursor.unpack(_UNUSUAL)
    newest, lawful = _stamp(cursor.take(newest_size)), cursor.take(lawful_size)
    why = cursor.take(why_size).decode()
    if lawful == newest.packed:
        lawful_stamp: Stamp | None = newest
    else:
        lawful_stamp = _stamp(lawful) if lawful else None
    return KeyKnowledge(newest=newest, lawful=lawful_stamp, certain=certain, why=why)


def _stamp(data: bytes) -> Stamp:
    if len(data) < LEAST_BYTES:
        raise ValueError(f"a record has {LEAST_BYTES} bytes or more, not {len(data)}")
    return stamp_of(data)


def _decode_tombstone(cursor: "_Cursor") -> tuple[PartitionKey, bytes]:
    topic_id, number, segment = cursor.unpack(_TOMBSTONE)
    return PartitionKey(Uuid(topic_id), number), segment


def _decode_segments(cursor: "_Cursor", count: int) -> list[bytes]:
    """All packed segments, which are the rest of the section."""
    lengths = array("I")
    lengths.frombytes(cursor.take(count * _LENGTH_BYTES))
    if count and min(lengths) < LEAST_BYTES:
        raise ValueError(f"a segment has {LEAST_BYTES} bytes or more, not {min(lengths)}")
    ends = list(accumulate(lengths, initial=cursor.position))
    if ends[-1] != len(cursor.data):
        raise ValueError(f"the segments end at {ends[-1]} of {len(cursor.data)}")
    data = cursor.data
    return [data[begin:end] for begin, end in pairwise(ends)]


@dataclass(slots=True)
class _Cursor:
    """Bounds-checked; ValueError where the bytes end too early."""

    data: bytes
    position: int = 0

    def take(self, size: int) -> bytes:
        begin, end = self.position, self.position + size
        if end > len(self.data):
            raise ValueError(f"{size} bytes expected at {begin} of {len(self.data)}")
        self.position = end
        return self.data[begin:end]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))
