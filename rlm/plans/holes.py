"""Which offsets the broker deleted before anybody had copied them, and what proves it (H15). Pure.

A gap lies between the remote log start and the broker's log start, and no segment of the ledger
that may still have records covers it. It can have two causes: the broker deleted uncopied records,
or the ledger lost the record of a copy (H6). Only the first is a hole. So a gap below the bound of
our own trims is never one: those offsets were trimmed because copies of them had been seen. Of the
rest, a range is a hole where this leader saw uncopied records of it in its own log before, or where
every store was listed and has no whole segment that may hold it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kip405.ids import Uuid
from kip405.lineage import Lineage
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.coverage import Cover, OffsetRange, Ranges, lost_offsets, missed, unsettled
from rlm.plans.verification import UnlistedSegment
from rlmm.ledger import Hole, PartitionLedger, UsableSegment

BY_RETENTION = "the broker's own retention deleted them before they were copied"
GIVEN_BACK = (
    "the broker deleted them before they were copied, as a disk was nearly full "
    "(on.disk.pressure=giveback)"
)
BY_ANYBODY = "they were deleted at the broker before they were copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapView:
    """One snapshot of a partition whose ledger is sound. `trim_bound`: of our own newest trim, 0
    without any; `local_log_start_offset` is what the broker answered.
    """

    ledger: PartitionLedger
    lineage: Lineage
    log: PartitionLog
    local_log_start_offset: int
    log_end_offset: int
    remote_log_start_offset: int
    trim_bound: int
    holes: Collection[Hole]


def gaps(view: GapView) -> Ranges:
    """Settled gaps [start, end) that are not on record, ascending; those below our own trims are
    left out.
    """
    start = max(view.remote_log_start_offset, view.trim_bound)
    if start >= view.local_log_start_offset:
        return ()  # as of most partitions, and asked several times for each
    known = (
        *_readable(view),
        *((one.start_offset, one.next_offset) for one in unsettled(view.ledger)),
        *_on_record(view),
    )
    return missed([(start, view.local_log_start_offset)], union(known))


def may_turn_out_missing(view: GapView) -> Ranges:
    """Offsets below the broker's log start that only segments have which may yet turn out to be
    none: attempts whose outcome is open, and disputed ones.
    """
    first = max(view.trim_bound, view.remote_log_start_offset)
    if first >= view.local_log_start_offset:
        return ()
    doubtful = ((one.start_offset, one.next_offset) for one in unsettled(view.ledger))
    certain = (
        *_on_record(view),
        *(
            (one.metadata.start_offset, one.next_offset)
            for one in view.ledger.usable(view.lineage, view.log_end_offset)
            if not one.disputed
        ),
    )
    below = in_both(union(doubtful), ((first, view.local_log_start_offset),))
    return missed(below, union(certain))


def not_settled(view: GapView) -> Ranges:
    """Gaps that are not on record, or may yet appear. Nothing may be trimmed beyond them: nothing
    below the bound of a trim of ours is ever a hole.
    """
    return union((*gaps(view), *may_turn_out_missing(view)))


def uncopied(view: GapView, seen: Ranges) -> Ranges:
    """Offsets that files of our log have, or had (`seen`), and no usable segment has, ascending."""
    files = [
        (max(one.base_offset, view.local_log_start_offset), one.next_offset or view.log_end_offset)
        for one in view.log.segments
        if one.size_bytes
    ]
    return missed(union((*files, *seen)), union(_readable(view)))


def copies_of_lost(view: GapView) -> tuple[UsableSegment, ...]:
    """The undisputed copies, by start offset, that the ledger lists of records which are on record
    as lost. Whether they have their objects is not known here.
    """
    lost = union(lost_offsets(view.holes, view.remote_log_start_offset))
    if not lost:
        return ()
    found = (
        one
        for one in view.ledger.extents(
            view.lineage, view.log_end_offset, view.remote_log_start_offset
        )
        if not one.disputed and _meet(lost, one.start_offset, one.next_offset)
    )
    entries = view.ledger.entries  # decodes those alone that are asked for
    return tuple(
        UsableSegment(
            metadata=entries[Uuid(one.segment)].metadata,
            next_offset=one.next_offset,
            disputed=False,
        )
        for one in found
    )


def _meet(ranges: Ranges, start: int, end: int) -> bool:
    """Whether any of the ascending, disjoint ranges has an offset of [start, end)."""
    at = bisect_right(ranges, start, key=lambda one: one[1])
    return at < len(ranges) and ranges[at][0] < end


def unlisted_gaps(view: GapView, open_ranges: Ranges) -> Ranges:
    """Offsets that the ledger does not list at all and the log does not have, also below our own
    trims, ascending: the ledger has lost their copies, or there never was one. Left out is what an
    attempt or a disputed segment may yet have, and what the service holds open (`open_ranges`).
    """
    doubtful = ((one.start_offset, one.next_offset) for one in unsettled(view.ledger))
    return missed(not_in_tier(view), union((*doubtful, *open_ranges)))


def not_in_tier(view: GapView) -> Ranges:
    """Offsets below the broker's log start that no usable segment and no recorded hole has,
    ascending.
    """
    if view.remote_log_start_offset >= view.local_log_start_offset:
        return ()
    below = ((view.remote_log_start_offset, view.local_log_start_offset),)
    return missed(union(below), union((*_readable(view), *_on_record(view))))


def in_both(some: Ranges, others: Ranges) -> Ranges:
    """The offsets that are in ranges of both, ascending."""
    return union(
        (max(start, first), min(end, after)) for start, end in some for first, after in others
    )


def cannot_be_stored(found: Ranges, stored: Collection[UnlistedSegment]) -> Ranges:
    """Gaps that no segment can have which the ledger does not list; where one ends is unknown."""
    lowest = min((one.start_offset for one in stored), default=None)
    return tuple(one for one in found if lowest is None or one[1] <= lowest)


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Disjoint and ascending; empty ones are dropped."""
    cover = Cover.of(OffsetRange(start=start, next_offset=end) for start, end in ranges)
    return tuple((one.start, one.next_offset) for one in cover.ranges)


def _on_record(view: GapView) -> Iterator[tuple[int, int]]:
    return ((hole.start, hole.end) for hole in view.holes)


def _readable(view: GapView) -> Ranges:
    """A disputed segment counts: it may have records."""
    return tuple(
        (one.metadata.start_offset, one.next_offset)
        for one in view.ledger.usable(view.lineage, view.log_end_offset)
    )
