"""Plans a downloaded partition, each offset once, and cuts segments to their parts. Pure.

Copies may overlap (two leaders, two segment boundaries) and may leave the leader's history before
their end (H4); a log directory must not. So, of several segments that hold an offset, the one that
reaches furthest is taken, and the part that it does not add is cut off at a batch. The rest is a
segment of its own, with new indexes; their entries are spaced as a broker spaces them by default
(source: LogSegment.append, onBecomeInactiveSegment). `Source` is the narrow Protocol that finds the
segments.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kip405.batches import BatchHeader, batch_headers
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt
from kip405.ids import TopicIdPartition
from kip405.indexes import encode_transaction_index, transaction_index
from kip405.lineage import Lineage
from kip405.segments import ByteRange, RemoteLogSegmentMetadata

Usable = tuple[RemoteLogSegmentMetadata, int]
"""A segment and the half-open end up to which it belongs to the leader's history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The offsets [start_offset, next_offset) of one segment: one segment of the directory."""

    metadata: RemoteLogSegmentMetadata
    start_offset: int
    next_offset: int

    @property
    def is_whole(self) -> bool:
        own = (self.metadata.start_offset, self.metadata.next_offset)
        return (self.start_offset, self.next_offset) == own

    @property
    def size_bytes(self) -> int:
        """Size of the whole log object, which is fetched."""
        return self.metadata.segment_size_bytes

    def file(self, suffix: str) -> str:
        """Kafka's name of a file of the segment; snapshots are named by the segment's end."""
        base = self.next_offset if suffix == ".snapshot" else self.start_offset
        return f"{base:020d}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The segments to download of one partition."""

    cluster_id: str
    topic_partition: TopicIdPartition
    remote_log_start_offset: int
    lineage: Lineage
    pieces: tuple[Piece, ...]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)

    @property
    def next_offset(self) -> int:
        """First offset after the last piece; the remote log start without any."""
        return self.pieces[-1].next_offset if self.pieces else self.remote_log_start_offset

    @property
    def leader_epochs(self) -> Lineage:
        """The history of what is there: the leader-epoch-checkpoint of the directory."""
        if not self.pieces:
            return Lineage()
        return Lineage(self.lineage.clip(self.pieces[0].start_offset, self.next_offset))


def pieces_of(usable: Iterable[Usable], remote_log_start_offset: int) -> tuple[Piece, ...]:
    """Disjoint pieces by offset; the first may begin below the start, being a whole segment."""
    rows = sorted(
        (row for row in usable if row[0].start_offset < row[1] > remote_log_start_offset),
        key=lambda row: (row[0].start_offset, -row[1], row[0].segment_id.id),
    )
    pieces: list[Piece] = []
    cursor, at, best = remote_log_start_offset, 0, None
    while True:
        while at < len(rows) and rows[at][0].start_offset <= cursor:
            if best is None or rows[at][1] > best[1]:
                best = rows[at]
            at += 1
        if best is not None and best[1] > cursor:
            start = cursor if pieces else best[0].start_offset
            start = max(start, best[0].start_offset)
            pieces.append(Piece(metadata=best[0], start_offset=start, next_offset=best[1]))
            cursor = best[1]
        elif at < len(rows):
            cursor, best = rows[at][0].start_offset, None  # a hole
        else:
            return tuple(pieces)


RANGE_BYTES = 8 << 20


class Source(Protocol):
    """A running service, or a store without one. Errors are kip405's; retriable ones are
    retried.
    """

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        """One plan for each partition, ascending; NotFound for an unknown topic."""
        ...

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        """The whole indexes object, unchecked."""
        ...

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        """A range of the log object, unchecked; at most RANGE_BYTES."""
        ...


INDEX_INTERVAL_BYTES = 4096
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSegment:
    """Half-open byte positions in the whole log, and the indexes of the batches between them."""

    start_position: int
    end_position: int
    offset_index: bytes
    time_index: bytes


class _Indexes:
    """Builds offset and time index batch by batch, as a log segment does on append."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._newest = self._written = (-1, 0)
        self._since_entry = 0
        self.size_bytes = 0
        self.offsets = bytearray()
        self.times = bytearray()

    def append(self, header: BatchHeader) -> None:
        relative = header.last_offset - self._base_offset
        if header.max_timestamp_ms > self._newest[0]:
            self._newest = (header.max_timestamp_ms, relative)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self.offsets += _OFFSET_ENTRY.pack(relative, self.size_bytes)
            self.append_time()
            self._since_entry = 0
        self._since_entry += header.size_bytes
        self.size_bytes += header.size_bytes

    def append_time(self) -> None:
        """Also once at the end, so that the newest record is found."""
        if self._newest[0] > self._written[0]:
            self.times += _TIME_ENTRY.pack(*self._newest)
            self._written = self._newest


def cut_segment(log: ByteBuffer, start_offset: int, next_offset: int) -> CutSegment:
    """The batches of [start_offset, next_offset); Corrupt where a batch crosses a border."""
    indexes = _Indexes(start_offset)
    start_position = 0
    for position, header in batch_headers(log):
        if header.last_offset < start_offset:
            continue
        if header.base_offset >= next_offset:
            break
        if header.base_offset < start_offset or header.last_offset >= next_offset:
            raise Corrupt(
                f"batch {header.base_offset}..{header.last_offset} lies across "
                f"the border of {start_offset}..{next_offset - 1}"
            )
        if indexes.size_bytes == 0:
            start_position = position
        indexes.append(header)
    if indexes.size_bytes == 0:
        raise Corrupt(f"there is no batch in {start_offset}..{next_offset - 1}")
    indexes.append_time()
    return CutSegment(
        start_position=start_position,
        end_position=start_position + indexes.size_bytes,
        offset_index=bytes(indexes.offsets),
        time_index=bytes(indexes.times),
    )


def cut_transaction_index(data: ByteBuffer, start_offset: int, next_offset: int) -> bytes:
    """The entries of transactions whose abort is in the part, where a broker expects them."""
    return encode_transaction_index(
        entry
        for entry in transaction_index(data)
        if start_offset <= entry.aborted.last_offset < next_offset
    )


def encode_partition_metadata(topic_id: object) -> bytes:
    """partition.metadata. Source: PartitionMetadata.encode."""
    return f"version: 0\ntopic_id: {topic_id}\n".encode("ascii")


def encode_offset_checkpoint(offsets: Iterable[tuple[str, int, int]]) -> bytes:
    """Rows of topic, partition, offset. Source: OffsetCheckpointFile."""
    lines = [f"{topic} {partition} {offset}\n" for topic, partition, offset in offsets]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode("ascii")
