"""Which aborted transactions of a segment are aborted in the leader's history, too (H9).

A segment's list was made by the leader that copied it: each entry ends at an abort marker, which
may lie far behind the segment. Where that leader's epoch ended early (an unclean election), what is
marked behind is of a dead history: in the leader's one such a transaction went on and may have been
committed since, and one that the dead history committed may have been aborted. Who wrote on knows:
the list of the segment that holds that end has every transaction that was open there and was
aborted later. Pure.
"""

from collections.abc import Iterable, Sequence

from kip405.batches import walk
from kip405.indexes import AbortedTransaction
from kip405.lineage import Lineage
from rlmm.ledger import SegmentEntry, UsableSegment


def shared_end(
    usable: UsableSegment, entry: SegmentEntry | None, lineage: Lineage, log_end_offset: int
) -> int | None:
    """Up to where the copying leader's log is the leader's history; None = nothing contradicts.

    By the epoch under which the segment was published, and by where the segment itself was cut.
    """
    ends = []
    if usable.next_offset < usable.metadata.next_offset:
        ends.append(usable.next_offset)
    latest = lineage.latest_epoch
    if entry is not None and latest is not None and entry.leader_epoch < latest:
        found = lineage.end_offset_for(entry.leader_epoch, log_end_offset)
        if found is not None and lineage.start_of(found[0]) is not None:
            ends.append(max(found[1], usable.next_offset))
    return min(ends, default=None)


def decided_below(
    aborted: Iterable[AbortedTransaction], end: int
) -> tuple[AbortedTransaction, ...]:
    """Those whose marker is in the shared history."""
    return tuple(one for one in aborted if one.last_offset < end)


def open_at(aborted: Iterable[AbortedTransaction], end: int) -> tuple[AbortedTransaction, ...]:
    """Those that were open at the offset, and aborted behind it."""
    return tuple(one for one in aborted if one.first_offset < end <= one.last_offset)


def has_transactions(records: Sequence[bytes | memoryview]) -> bool:
    """Whether any of these whole batches has records of a transaction. Corrupt for other bytes."""
    batches = b"".join(records)
    return any(header.is_transactional and not header.is_control for _, header in walk(batches))
