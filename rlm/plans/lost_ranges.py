"""Which offsets of a partition are lost for good: in no store, and not in the leader's log.

What the leader still has is copied again by itself, so it is not lost. A segment of 0 bytes in the
leader's log that is not proven empty is: neither it nor a store has its records. Pure.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kip405.ids import Uuid
from rlm.plans.cover import Cover, OffsetRange
from rlm.plans.empty_segments import DoubtfulSegment
from rlm.plans.holes import missed
from rlmm.ledger import Hole, UsableSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Offsets [start, next_offset) that nobody has. `size_bytes`: of the segments' log objects,
    which may reach beyond the range; 0 for a file of 0 bytes.
    """

    start: int
    next_offset: int
    segments: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LossView:
    """What is known of one partition. `gone`: segments whose objects are proven gone now.

    `local`: offsets [start, next_offset) of the leader's log, `doubtful` its segments of 0 bytes.
    """

    usable: Collection[UsableSegment]
    gone: Collection[Uuid]
    doubtful: Collection[DoubtfulSegment]
    local: OffsetRange
    remote_log_start_offset: int
    holes: Collection[Hole]


def lost_ranges(view: LossView) -> tuple[LostRange, ...]:
    """Ascending; what is on record as a hole already is left out."""
    doubtful = tuple((one.base_offset, one.next_offset) for one in view.doubtful)
    local = missed([(view.local.start, view.local.next_offset)], doubtful)
    remote = Cover.of(
        OffsetRange(start=one.metadata.start_offset, next_offset=one.next_offset)
        for one in view.usable
        if one.metadata.segment_id.id not in view.gone
    )
    elsewhere = (
        *local,
        *((one.start, one.next_offset) for one in remote.ranges),
        *((hole.start, hole.end) for hole in view.holes),
    )
    lost = [one for one in view.usable if one.metadata.segment_id.id in view.gone]
    begun = [
        (max(one.metadata.start_offset, view.remote_log_start_offset), one.next_offset)
        for one in lost
    ]
    wanted = Cover.of(
        OffsetRange(start=start, next_offset=end)
        for start, end in (*begun, *doubtful)
        if start < end
    )
    ranges = ((one.start, one.next_offset) for one in wanted.ranges)
    return tuple(
        _range(start, end, lost, view.doubtful)
        for start, end in missed(ranges, tuple(sorted(elsewhere)))
    )


def _range(
    start: int, end: int, lost: Iterable[UsableSegment], doubtful: Iterable[DoubtfulSegment]
) -> LostRange:
    inside = [
        one.metadata for one in lost if one.metadata.start_offset < end and start < one.next_offset
    ]
    files = [one for one in doubtful if one.base_offset < end and start < one.next_offset]
    reasons = [f"the objects of {len(inside)} segments are gone from the store"] if inside else []
    reasons += [f"{one.path} has 0 bytes: {one.why}" for one in files]
    return LostRange(
        start=start,
        next_offset=end,
        segments=len(inside),
        size_bytes=sum(one.segment_size_bytes for one in inside),
        why="; ".join(reasons),
    )
