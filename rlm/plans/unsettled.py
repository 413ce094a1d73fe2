"""Where a gap in the remote data is no proof of a hole yet (H15): something may still come back.

An attempt that was begun may have its manifest and be adopted (H6); a deletion that was begun, or a
record that is disputed, may turn out to be somebody's late word (H3). Until the leader has settled
such a segment, nobody may be told that its records are gone. Pure.
"""

from kip405.lineage import Lineage
from kip405.states import RemoteLogSegmentState
from rlm.plans.cover import Cover, OffsetRange
from rlmm.ledger import PartitionLedger

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
    readable one holds; SETTLED for none: then what is missing there is missing for good.

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
