"""Which offsets remote segments cover, when a gap is settled, and when a lost segment is
superseded.

A cover consists of disjoint ranges inside the leader's lineage: the ledger says how far each
segment counts (H4), the cover what remains uncovered. It must not know states or the causes of
holes.

A gap proves no hole while an unsettled segment may still hold its records (H15): an attempt that
was begun may have its manifest and be adopted (H6), and a begun deletion or a disputed record may
turn out to be a late write (H3). Until the leader has settled such a segment, no reader may learn
that its records are missing.

The entry of a finished segment whose objects are missing may leave the ledger once none of its
records is missed: they are in other copies that were just seen, or an operator accepted that they
are lost (H15). Until then the entry stays, since lost objects can come back, from a backup or when
a store is repaired, and only the entry says what they were (H6). Pure.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kip405.ids import Uuid
from kip405.lineage import Lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.ledger import Hole, PartitionLedger, UsableSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Half-open range of record offsets."""

    start: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Cover:
    """Ascending disjoint ranges with at least one offset between neighbours."""

    ranges: tuple[OffsetRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[OffsetRange]) -> "Cover":
        """The union of any ranges; empty ones are dropped."""
        kept: list[OffsetRange] = []
        for item in sorted(ranges, key=lambda one: one.start):
            if item.next_offset <= item.start:
                continue
            if kept and item.start <= kept[-1].next_offset:
                last = kept.pop()
                item = OffsetRange(
                    start=last.start, next_offset=max(last.next_offset, item.next_offset)
                )
            kept.append(item)
        return cls(tuple(kept))

    def end_from(self, offset: int) -> int:
        """First offset at or after `offset` that is not covered."""
        at = bisect_right(self.ranges, offset, key=lambda one: one.start) - 1
        return max(offset, self.ranges[at].next_offset) if at >= 0 else offset

    def holds(self, start: int, next_offset: int) -> bool:
        """Whether every offset of [start, next_offset) is covered."""
        return self.end_from(start) >= next_offset


def cover(usable: Iterable[UsableSegment]) -> Cover:
    """The offsets that the undisputed usable segments of a ledger hold."""
    return Cover.of(
        OffsetRange(start=one.metadata.start_offset, next_offset=one.next_offset)
        for one in usable
        if not one.disputed
    )


SETTLED = -1
_OPEN = (
    RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
)


def unsettled_end(
    ledger: PartitionLedger,
    lineage: Lineage,
    log_end_offset: int,
    *,
    start: int,
    next_offset: int,
    trusted: bool,
) -> int:
    """Where the last unsettled segment ends that may hold offsets of [start, next_offset) which no
    readable one holds; SETTLED for none: then what is missing there is missing permanently.

    `trusted` False = the ledger has a problem and proves no hole at all.
    """
    covered = Cover.of(
        OffsetRange(start=one.metadata.start_offset, next_offset=one.next_offset)
        for one in ledger.usable(lineage, log_end_offset)
    )
    if not trusted and start < next_offset and not covered.holds(start, next_offset):
        return next_offset
    ends = (
        one.metadata.next_offset
        for one in ledger.entries.values()
        if (one.state in _OPEN or one.disputed)
        and (first := max(one.metadata.start_offset, start))
        < (after := min(one.metadata.next_offset, next_offset))
        and not covered.holds(first, after)
    )
    return max(ends, default=SETTLED)


def overlapping(
    segment: RemoteLogSegmentMetadata, usable: Iterable[UsableSegment]
) -> tuple[UsableSegment, ...]:
    """The other undisputed copies that hold offsets of the segment."""
    return tuple(
        one
        for one in usable
        if one.metadata.segment_id != segment.segment_id
        and not one.disputed
        and one.metadata.start_offset < segment.next_offset
        and segment.start_offset < one.next_offset
    )


def is_superseded(
    segment: RemoteLogSegmentMetadata,
    others: Iterable[UsableSegment],
    *,
    lineage: Lineage,
    remote_log_start_offset: int,
    holes: Iterable[Hole],
    seen: Collection[Uuid],
) -> bool:
    """Whether each of the segment's offsets is in one of the others, or in a recorded hole.

    `seen`: those that were found whole now; the others do not count, also where their store cannot
    be asked (H11). A segment that is partly in a dead lineage is never superseded: no other segment
    has those records (H8).
    """
    if usable_end(segment, lineage) != segment.next_offset:
        return False
    ranges = [
        OffsetRange(start=one.metadata.start_offset, next_offset=one.next_offset)
        for one in others
        if one.metadata.segment_id.id in seen
    ]
    ranges += [OffsetRange(start=hole.start, next_offset=hole.end) for hole in holes]
    start = max(segment.start_offset, remote_log_start_offset)
    return Cover.of(ranges).holds(start, segment.next_offset)
