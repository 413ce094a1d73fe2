"""Plans which part of which segment a downloaded partition consists of: each offset once. Pure.

Copies may overlap (two leaders, two segment boundaries) and may leave the leader's history before
their end (H4); a log directory must not. So, of several segments that hold an offset, the one that
reaches furthest is taken, and the part that it does not add is cut off at a batch. `Source` is the
narrow Protocol that finds the segments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kip405.ids import TopicIdPartition
from kip405.lineage import Lineage, remote_lineage, usable_end
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
        """Of the whole log object: what is fetched."""
        return self.metadata.segment_size_bytes

    def file(self, suffix: str) -> str:
        """Kafka's name of a file of the segment; snapshots are named by the segment's end."""
        base = self.next_offset if suffix == ".snapshot" else self.start_offset
        return f"{base:020d}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The segments to download of one partition."""

    cluster_id: str
    place: TopicIdPartition
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


def usable_by_itself(segments: Iterable[RemoteLogSegmentMetadata]) -> tuple[Lineage, list[Usable]]:
    """The history in finished segments without a leader, and how far each segment is in it."""
    known = tuple(segments)
    lineage = remote_lineage(known)
    return lineage, [(one, usable_end(one, lineage)) for one in known]


RANGE_BYTES = 8 << 20


class Source(Protocol):
    """A running service, or a store without one. Errors are kip405's; retriable ones are
    retried.
    """

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        """One plan a partition, ascending; NotFound for a topic that is not there."""
        ...

    async def read_indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        """The whole indexes object, unchecked."""
        ...

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        """A range of the log object, unchecked; at most RANGE_BYTES."""
        ...
