"""The record of a segment as packed bytes, which is how all of them are kept in memory. Pure.

The bytes begin with the segment id, so a sorted list of them is searched by that id. What repeats
(topics, writers) is kept once in `Names`, and the bytes have its index there. Layout, without
padding, little-endian: `_HEAD`, then (int32 epoch, int64 start offset) of each leader epoch, the
custom metadata, and one byte that says whether the reader saw every record of the key. They are no
format that outlives this version of the software, which alone reads them in a `rlmm.snapshot`.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.records import NO_PREVIOUS, LedgerKey, LedgerRecord, RecordHeaders

ID_BYTES: Final = 16
_HEAD = struct.Struct("<16sqibbqIIqqqIqqiB")
LEAST_BYTES: Final = _HEAD.size + 1
_STAMP = struct.Struct("<16xqibbq")
_EXTENT = struct.Struct("<46xqqqIq")
_NEWEST = struct.Struct("<74xq")
_EPOCH = struct.Struct("<iq")
LAYOUT: Final = f"{_HEAD.format} {_EPOCH.format}"
_STATE_AT: Final = 28
_CERTAIN: Final = b"\x01"
UNCERTAIN: Final = b"\x00"
TXN_INDEX_EMPTY: Final = 1
HAS_CUSTOM: Final = 2
HEAD_OF_ONE_EPOCH = struct.Struct("<16sqibbqIIqqqIqqiBiq")
"""`_HEAD` and the only leader epoch."""
_STATES = tuple(RemoteLogSegmentState)
_DECODED_MOST: Final = 8_192
"""Decoded segments that are kept for the next question, about 6 MB."""


class Names:
    """Topics and writers by their places; it only grows, so that older bytes stay readable."""

    __slots__ = ("_topic_indexes", "_writer_indexes", "topics", "writers")

    def __init__(self) -> None:
        self.topics: list[TopicIdPartition] = []
        self.writers: list[Uuid] = []
        self._topic_indexes: dict[TopicIdPartition, int] = {}
        self._writer_indexes: dict[Uuid, int] = {}

    @classmethod
    def of(cls, topics: Iterable[TopicIdPartition], writers: Iterable[Uuid]) -> "Names":
        """Each at the place that it has there."""
        names = cls()
        for topic in topics:
            names.topic_index(topic)
        for writer in writers:
            names.writer_index(writer)
        return names

    def topic_index(self, topic: TopicIdPartition) -> int:
        index = self._topic_indexes.get(topic)
        if index is None:
            index = self._topic_indexes[topic] = len(self.topics)
            self.topics.append(topic)
        return index

    def writer_index(self, writer: Uuid) -> int:
        index = self._writer_indexes.get(writer)
        if index is None:
            index = self._writer_indexes[writer] = len(self.writers)
            self.writers.append(writer)
        return index


class Stamp(NamedTuple):
    """What the fold asks of a record; `packed` is all of it. `state_id` -1 is a tombstone."""

    offset: int
    leader_epoch: int
    state_id: int
    expected_previous: int
    timestamp_ms: int
    packed: bytes

    @property
    def segment(self) -> bytes:
        """The raw segment id."""
        return self.packed[:ID_BYTES]


def stamp_of(packed: bytes) -> Stamp:
    """The record of the bytes, which `pack` made."""
    offset, leader_epoch, state_id, expected_previous, timestamp_ms = _STAMP.unpack_from(packed)
    return Stamp(offset, leader_epoch, state_id, expected_previous, timestamp_ms, packed)


def pack(record: LedgerRecord, names: Names) -> bytes:
    """The record, as of a reader that may have missed others of its key."""
    if record.key.segment_id is None:
        raise ValueError(f"record of {record.key.partition} has no segment id")
    metadata, headers = record.metadata, record.headers
    stamp = (
        record.key.segment_id.raw,
        record.offset,
        headers.leader_epoch,
        record.state_id,
        headers.expected_previous,
        record.timestamp_ms,
        names.writer_index(headers.writer),
    )
    if metadata is None:
        return _HEAD.pack(*stamp, *[0] * 9) + UNCERTAIN
    custom = metadata.custom_metadata
    head = _HEAD.pack(
        *stamp,
        names.topic_index(metadata.topic_id_partition),
        metadata.start_offset,
        metadata.end_offset,
        metadata.segment_size_bytes,
        len(metadata.segment_leader_epochs),
        metadata.max_timestamp_ms,
        metadata.event_timestamp_ms,
        metadata.broker_id,
        metadata.txn_index_empty * TXN_INDEX_EMPTY | (custom is not None) * HAS_CUSTOM,
    )
    epochs = (_EPOCH.pack(one.epoch, one.start_offset) for one in metadata.segment_leader_epochs)
    return b"".join((head, *epochs, custom or b"", UNCERTAIN))


def with_certainty(packed: bytes, *, certain: bool) -> bytes:
    """The same record, of a reader that saw every record of its key or not."""
    if is_certain(packed) == certain:
        return packed
    return packed[:-1] + (_CERTAIN if certain else UNCERTAIN)


def is_certain(packed: bytes) -> bool:
    return packed[-1] == _CERTAIN[0]


def state_id_of(packed: bytes) -> int:
    """The state of a record that is no tombstone."""
    return packed[_STATE_AT]


class Extent(NamedTuple):
    """Half-open offsets of a segment, its size, and the newest timestamp of its records."""

    start_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int


def extent_of(packed: bytes) -> Extent:
    start, end, size_bytes, _, max_timestamp_ms = _EXTENT.unpack_from(packed)
    return Extent(start, end + 1, size_bytes, max_timestamp_ms)


def offset_of(packed: bytes) -> int:
    """The offset of the record in its ledger partition."""
    return int(_STAMP.unpack_from(packed)[0])


def newest_ms_of(packed: bytes) -> int:
    """`max_timestamp_ms` alone, which many segments are asked for at once; below 0 = not known."""
    (newest_ms,) = _NEWEST.unpack_from(packed)
    return int(newest_ms)


def epochs_of(packed: bytes) -> list[tuple[int, int]]:
    """Epochs and start offsets, as `segment_leader_epochs` has them."""
    count = _EXTENT.unpack_from(packed)[3]
    if count == 1:
        return [_EPOCH.unpack_from(packed, _HEAD.size)]
    return list(_EPOCH.iter_unpack(packed[_HEAD.size : _HEAD.size + count * _EPOCH.size]))


@lru_cache(maxsize=_DECODED_MOST)
def metadata_of(packed: bytes, names: Names) -> RemoteLogSegmentMetadata:
    """The segment; a tombstone has none."""
    (
        raw,
        _,
        _,
        state_id,
        _,
        _,
        _,
        topic,
        start,
        end,
        size_bytes,
        count,
        max_timestamp_ms,
        event_timestamp_ms,
        broker_id,
        flags,
    ) = _HEAD.unpack_from(packed)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(topic_id_partition=names.topics[topic], id=Uuid(raw)),
        start_offset=start,
        end_offset=end,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        segment_leader_epochs=tuple(
            [EpochEntry(epoch=epoch, start_offset=offset) for epoch, offset in epochs_of(packed)]
        ),
        segment_size_bytes=size_bytes,
        custom_metadata=(
            packed[_HEAD.size + count * _EPOCH.size : -1] if flags & HAS_CUSTOM else None
        ),
        state=_STATES[state_id],
        txn_index_empty=bool(flags & TXN_INDEX_EMPTY),
    )


class RecordOrigin(NamedTuple):
    """Who wrote a record, where it is in the ledger, and when it came there."""

    leader_epoch: int
    writer: Uuid
    offset: int
    timestamp_ms: int


def origin_of(packed: bytes, names: Names) -> RecordOrigin:
    _, offset, leader_epoch, _, _, timestamp_ms, writer = _HEAD.unpack_from(packed)[:7]
    return RecordOrigin(leader_epoch, names.writers[writer], offset, timestamp_ms)


def unpack(packed: bytes, partition: PartitionKey, names: Names) -> LedgerRecord:
    """The record that was packed."""
    stamp, origin = stamp_of(packed), origin_of(packed, names)
    return LedgerRecord(
        key=LedgerKey(partition=partition, segment_id=Uuid(stamp.segment)),
        metadata=None if stamp.state_id == NO_PREVIOUS else metadata_of(packed, names),
        headers=RecordHeaders(
            leader_epoch=origin.leader_epoch,
            expected_previous=stamp.expected_previous,
            writer=origin.writer,
        ),
        offset=origin.offset,
        timestamp_ms=origin.timestamp_ms,
    )
