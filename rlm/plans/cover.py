"""Which offsets remote segments hold: disjoint ranges inside the leader's lineage.

The ledger says how far each segment counts (H4); this says what that leaves uncovered. Must not
know of holes' causes or of states.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from rlmm.ledger import UsableSegment


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
    """What the undisputed ones among a ledger's usable segments hold."""
    return Cover.of(
        OffsetRange(start=one.metadata.start_offset, next_offset=one.next_offset)
        for one in usable
        if not one.disputed
    )
