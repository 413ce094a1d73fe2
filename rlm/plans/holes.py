"""Recorded holes, closed segments of 0 bytes, and offsets that are lost permanently. Pure.

The list of a partition's recorded holes is ascending, joined where holes touch, and bounded.

A closed segment of 0 bytes has nothing to copy. The log cleaner leaves one where later records of
the same keys superseded the whole segment; a topic that becomes `delete` afterwards keeps it. A
file whose bytes were lost in a crash or by a failing disk looks the same, and the broker does not
detect it. Other replicas may still have those records, so nothing may be trimmed beyond it, nor may
readers learn that nothing was there. It is proven empty when the range was durably on the disk
(recovery point), the log cleaner has processed it (its own checkpoint), and its indexes are empty
too.

Offsets are lost when no store has them, nor the leader's log. The leader copies again what it still
has, so that is not lost. A segment of 0 bytes in the leader's log that is not proven empty is lost:
neither it nor a store has its records.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.log_dir.partition_log import LocalSegment, PartitionLog
from rlm.plans.coverage import Cover, OffsetRange
from rlmm.ledger import Hole, UsableSegment

NO_RECORDS = "no records: emptied by the log cleaner"
"""Cause of a recorded hole in which no records are missed."""
MOST_HOLES = 5_000  # about half a MiB of JSON: one record of the settings topic
Ranges = tuple[tuple[int, int], ...]


def with_holes(known: Iterable[Hole], new: Iterable[Hole]) -> tuple[Hole, ...]:
    """All holes; neighbours of one cause that touch are joined. Invalid: too many."""
    joined: list[Hole] = []
    for hole in sorted({*known, *new}):
        last = joined[-1] if joined else None
        if last is not None and last.cause == hole.cause and hole.start <= last.end:
            joined[-1] = Hole(start=last.start, end=max(last.end, hole.end), cause=last.cause)
        else:
            joined.append(hole)
    if len(joined) > MOST_HOLES:
        raise Invalid(f"a partition may have at most {MOST_HOLES} holes on record")
    return tuple(joined)


def without_copied(known: Iterable[Hole], start: int, next_offset: int) -> tuple[Hole, ...]:
    """What remains of the holes once [start, next_offset) is copied; empty ranges stay."""
    left: list[Hole] = []
    for hole in known:
        if hole.cause == NO_RECORDS:
            left.append(hole)
            continue
        rest = missed([(hole.start, hole.end)], ((start, next_offset),))
        left += [Hole(start=first, end=end, cause=hole.cause) for first, end in rest]
    return tuple(left)


def ranges_without_records(holes: Iterable[Hole]) -> Ranges:
    """The ranges of the recorded holes in which no records are missed, ascending."""
    return tuple((hole.start, hole.end) for hole in holes if hole.cause == NO_RECORDS)


def missed(ranges: Iterable[tuple[int, int]], empty: Ranges) -> Ranges:
    """What remains of ranges [start, end) without the empty ones, which ascend."""
    left: list[tuple[int, int]] = []
    for start, end in ranges:
        cursor = start
        for empty_start, empty_end in empty:
            if empty_end <= cursor or empty_start >= end:
                continue
            if empty_start > cursor:
                left.append((cursor, empty_start))
            cursor = max(cursor, empty_end)
        if cursor < end:
            left.append((cursor, end))
    return tuple(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulSegment:
    """A closed segment of 0 bytes whose records may be lost: [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    path: str
    why: str


def empty_ranges(log: PartitionLog, holes: Iterable[Hole] = ()) -> tuple[OffsetRange, ...]:
    """Offsets of closed segments that are proven to hold no records, ascending.

    Recorded `holes`, as of a loss that an operator accepted, replace the proof.
    """
    accepted = _cover(holes)
    return tuple(
        OffsetRange(start=one.base_offset, next_offset=end)
        for one, end in _empty(log)
        if why_doubtful(one, log) is None or accepted.holds(one.base_offset, end)
    )


def doubtful_segments(
    log: PartitionLog, start: int, holes: Iterable[Hole] = ()
) -> tuple[DoubtfulSegment, ...]:
    """Closed segments of 0 bytes that hold offsets from `start` on and are not proven empty."""
    accepted = _cover(holes)
    return tuple(
        DoubtfulSegment(base_offset=one.base_offset, next_offset=end, path=one.path, why=why)
        for one, end in _empty(log)
        if end > start
        and not accepted.holds(one.base_offset, end)
        and (why := why_doubtful(one, log)) is not None
    )


def why_doubtful(segment: LocalSegment, log: PartitionLog) -> str | None:
    """Why a closed segment of 0 bytes may have lost its records; None = it had none left."""
    end = segment.next_offset
    if end is None or segment.size_bytes:
        raise ValueError(f"{segment.path} is active or not empty")
    if segment.indexes_size_bytes != 0:
        return "its indexes are not empty"
    if log.recovery_point is None or end > log.recovery_point:
        return f"the broker has flushed only up to {log.recovery_point}"
    if log.cleaned_up_to is None or end > log.cleaned_up_to:
        return "the log cleaner has not worked on it"
    return None


def _empty(log: PartitionLog) -> Iterable[tuple[LocalSegment, int]]:
    for segment in log.segments:
        if segment.size_bytes == 0 and segment.next_offset is not None:
            yield segment, segment.next_offset


def _cover(holes: Iterable[Hole]) -> Cover:
    return Cover.of(OffsetRange(start=hole.start, next_offset=hole.end) for hole in holes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """Offsets [start, next_offset) that neither a store nor the leader has. `size_bytes`: of the
    segments' log objects, which may extend beyond the range; 0 for a file of 0 bytes.
    """

    start: int
    next_offset: int
    segments: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LossView:
    """What is known of one partition. `gone`: segments whose objects are proven missing now.

    `local`: offsets [start, next_offset) of the leader's log, `doubtful` its segments of 0 bytes.
    """

    usable: Collection[UsableSegment]
    gone: Collection[Uuid]
    doubtful: Collection[DoubtfulSegment]
    local: OffsetRange
    remote_log_start_offset: int
    holes: Collection[Hole]


def lost_ranges(view: LossView) -> tuple[LostRange, ...]:
    """Ascending; recorded holes are left out."""
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
