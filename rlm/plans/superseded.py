"""When a finished segment whose objects are gone may leave the ledger: nothing of it is missed.

Its records are in other copies that were just seen, or an operator accepted that they are lost
(H15). Until then its entry stays: objects that were lost can come back, from a backup or when a
store is mended, and only the entry says what they were (H6). Pure.
"""

from collections.abc import Collection, Iterable

from kip405.ids import Uuid
from kip405.lineage import Lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata
from rlm.plans.cover import Cover, OffsetRange
from rlmm.ledger import Hole, UsableSegment


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
    """Whether each of the segment's offsets is in one of the others, or in a hole on record.

    `seen`: those that were found whole now; the others count for nothing, also where their store
    cannot be asked (H11). A segment that lies in a dead history in part never is: nobody else has
    those records (H8).
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
