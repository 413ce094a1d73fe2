"""Which offsets remote segments cover, and which offsets are missing: unsettled, holes, lost. Pure.

A cover consists of disjoint ranges inside the leader's lineage: the ledger says how far each
segment counts (H4), the cover what remains uncovered.

A gap proves no hole while an unsettled segment may still hold its records (H15): an attempt that
was begun may have its manifest and be adopted (H6), and a begun deletion or a disputed record may
turn out to be a late write (H3). Until the leader has settled such a segment, no reader may learn
that its records are missing.

The entry of a finished segment whose objects are missing may leave the ledger once none of its
records is missed: they are in other copies that were just seen, or an operator accepted that they
are lost (H15). Until then the entry stays, since lost objects can come back, from a backup or when
a store is repaired, and only the entry says what they were (H6).

The list of a partition's recorded holes is ascending, joined where holes touch, and bounded.

A closed segment of 0 bytes has nothing to copy. The log cleaner leaves one where later records of
the same keys superseded the whole segment; a topic that becomes `delete` afterwards keeps it. A
file whose bytes were lost in a crash or by a failing disk looks the same, and the broker does not
detect it. Other replicas may still have those records, so nothing may be trimmed beyond it, nor may
readers learn that nothing was there. It is proven empty when the range was durably on the disk
(recovery point), the log cleaner has processed it (its own checkpoint), and its indexes are empty
too. An operator may have accepted its loss. If a copy of a part is there after all, the accepted
hole is only what the copy leaves, and both together settle the segment.

Offsets are lost when neither a store nor the leader's log has them. What the leader still has is
copied again, so it is not lost. A segment of 0 bytes in the leader's log that is not proven empty
is lost: neither it nor a store has its records.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass

from kip405.errors import Invalid
from kip405.ids import Uuid
from kip405.lineage import Lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.log_dir.scanner import LocalSegment, PartitionLog
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


def covered(
    ledger: PartitionLedger, lineage: Lineage, log_end_offset: int, without: Container[Uuid] = ()
) -> Cover:
    """The same, without decoding a segment: of all but some."""
    ranges = ledger.covered(lineage, log_end_offset, without)
    return Cover.of(OffsetRange(start=start, next_offset=end) for start, end in ranges)


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
        one.next_offset
        for one in unsettled(ledger)
        if (first := max(one.start_offset, start)) < (after := min(one.next_offset, next_offset))
        and not covered.holds(first, after)
    )
    return max(ends, default=SETTLED)


def unsettled(ledger: PartitionLedger) -> Iterator[RemoteLogSegmentMetadata]:
    """Segments of which the ledger does not say (yet) whether they have their records."""
    for one in ledger.entries.values():
        if one.state in _OPEN or one.disputed:
            yield one.metadata


def has_ended(
    segment: RemoteLogSegmentMetadata, remote_log_start_offset: int, remote_log_start_epoch: int
) -> bool:
    """Whether the decision about the remote log start covers all records of the segment: those of
    a later leader epoch nobody has ended (H4).
    """
    newest = max(one.epoch for one in segment.segment_leader_epochs)
    return segment.next_offset <= remote_log_start_offset and newest <= remote_log_start_epoch


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


NO_RECORDS = "no records: emptied by the log cleaner"
"""Cause of a recorded hole in which no records are missed."""
ACCEPTED = "accepted loss"
"""How the cause begins of a hole that an operator has accepted."""
MOST_HOLES = 5_000  # about half a MiB of JSON: one record of the settings topic
Ranges = tuple[tuple[int, int], ...]


def accepted(holes: Iterable[Hole]) -> tuple[Hole, ...]:
    """Those in which no records are missed, or whose loss an operator has accepted."""
    return tuple(one for one in holes if one.cause == NO_RECORDS or one.cause.startswith(ACCEPTED))


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


def lost_offsets(holes: Iterable[Hole], start: int) -> Ranges:
    """The ranges of the recorded holes in which records are missed, from `start` on, ascending."""
    return tuple(
        (max(hole.start, start), hole.end)
        for hole in holes
        if hole.cause != NO_RECORDS and hole.end > start
    )


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


Copies = Callable[[], Cover]
"""The offsets that copies have; asked only where a log has closed segments of 0 bytes."""


def no_copies() -> Cover:
    """Where nothing is known of copies, or only our own log counts."""
    return Cover()


def empty_ranges(
    log: PartitionLog, holes: Iterable[Hole] = (), copies: Copies = no_copies
) -> tuple[OffsetRange, ...]:
    """Offsets of closed segments that are proven to hold no records, ascending.

    Recorded `holes`, as of a loss that an operator accepted, replace the proof. Where they cover
    only what `copies` leave of a segment, that is what is empty.
    """
    settled = _Settled.of(log, holes, copies)
    found: list[OffsetRange] = []
    for one, end in _empty(log):
        if why_doubtful(one, log) is None:
            found.append(OffsetRange(start=one.base_offset, next_offset=end))
        elif settled.holds(one.base_offset, end):
            found += settled.not_copied(one.base_offset, end)
    return tuple(found)


def doubtful_segments(
    log: PartitionLog, start: int, holes: Iterable[Hole] = (), copies: Copies = no_copies
) -> tuple[DoubtfulSegment, ...]:
    """Closed segments of 0 bytes that hold offsets from `start` on, are not proven empty, and are
    not covered by recorded holes and copies.
    """
    settled = _Settled.of(log, holes, copies)
    return tuple(
        DoubtfulSegment(base_offset=one.base_offset, next_offset=end, path=one.path, why=why)
        for one, end in _empty(log)
        if end > start
        and not settled.holds(one.base_offset, end)
        and (why := why_doubtful(one, log)) is not None
    )


@dataclass(frozen=True, slots=True)
class _Settled:
    """What holes on record and copies have of the segments of 0 bytes."""

    copied: Cover
    both: Cover

    @classmethod
    def of(cls, log: PartitionLog, holes: Iterable[Hole], copies: Copies) -> "_Settled":
        copied = copies() if any(True for _ in _empty(log)) else Cover()
        return cls(copied, Cover.of((*copied.ranges, *_cover(holes).ranges)))

    def holds(self, start: int, next_offset: int) -> bool:
        return self.both.holds(start, next_offset)

    def not_copied(self, start: int, next_offset: int) -> Iterator[OffsetRange]:
        taken = tuple((one.start, one.next_offset) for one in self.copied.ranges)
        for first, end in missed([(start, next_offset)], taken):
            yield OffsetRange(start=first, next_offset=end)


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
