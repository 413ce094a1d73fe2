"""Closed segments of 0 bytes: there is nothing to copy, and when that is proven.

The log cleaner leaves them where later records of the same keys superseded all of a segment; a
topic that becomes `delete` afterwards keeps them. A file whose bytes were lost in a crash or by a
failing disk looks the same, and the broker does not notice it: other replicas may still have those
records, so nothing may be trimmed beyond it, nor may readers be told that nothing was there. Proof
is that the range was on the disk for good (recovery point), that the log cleaner has worked on it
(its own checkpoint), and that its indexes are as empty. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rlm.log_dir.partition_log import LocalSegment, PartitionLog
from rlm.plans.cover import Cover, OffsetRange
from rlmm.ledger import Hole


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulSegment:
    """A closed segment of 0 bytes whose records may be lost: [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    path: str
    why: str


def empty_ranges(log: PartitionLog, holes: Iterable[Hole] = ()) -> tuple[OffsetRange, ...]:
    """Offsets of closed segments that are proven to hold no records, ascending.

    `holes` on record, as where an operator accepted a loss, stand for the proof.
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
    """Why a closed segment of 0 bytes may have lost its records; None = it never had any left."""
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
