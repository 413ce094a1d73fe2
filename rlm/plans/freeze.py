"""Decides when a partition is frozen: log and remote data contradict each other (H4, H8).

The contradiction is such that an operator must decide. There are two cases. First, remote data of
the leader's own lineage extends beyond the log's end: the log lost records that were copied, or the
epoch file does not belong to this log. Second, a divergence would orphan more than the newest few
segments, or all of them; an emptied disk whose new epoch starts at 0 "orphans" years of data. A
small divergence (unclean election with overlap) freezes nothing: the old segments count up to where
the new epoch begins, and copying continues from there.

An orphan is a FINISHED segment of which nothing is usable because a higher epoch begins at or below
its start. A segment whose offsets newer in-lineage segments hold is already replaced and does not
count, nor does one whose divergence the operator has accepted (`rlm partition adopt`): caused by
the accepted epoch or an older one, or by a later one that replaced it before it had records. Nor
does one that has ended: total retention deletes it soon, and there is nothing to decide about it.
Nothing is copied, trimmed or deleted from a frozen partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage, divergence
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import cover, has_ended
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import NO_LEADER_EPOCH

DEFAULT_MAX_ORPHANS = 3
NONE_ACCEPTED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Why the partition is frozen, for status and logs; `orphans` by segment start offset."""

    reason: str
    orphans: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The leader epoch whose log was accepted, and where that log ended then."""

    epoch: int
    end_offset: int


def freeze(
    ledger: PartitionLedger,
    lineage: Lineage,
    *,
    log_end_offset: int,
    accepted_epoch: int = NONE_ACCEPTED,
    accepted_offset: int = MAX_OFFSET,
    max_orphans: int = DEFAULT_MAX_ORPHANS,
    remote_log_start_offset: int = 0,
    remote_log_start_epoch: int = NO_LEADER_EPOCH,
) -> Frozen | None:
    """The reason to freeze the partition now; None = not frozen.

    `lineage`: the leader's, merged with the ledger's. `accepted_epoch`, `accepted_offset`: an
    operator accepted the log of this leader epoch when it ended there. `remote_log_start_epoch`:
    under which the start was decided.
    """
    remote_next_offset = ledger.highest_end(lineage) or 0
    if remote_next_offset > log_end_offset:
        reason = (
            f"remote data of the leader's own lineage ends at {remote_next_offset}, "
            f"beyond the log's end {log_end_offset}"
        )
        return Frozen(reason=reason)
    if ledger.is_within(lineage):
        return None
    finished = tuple(
        entry.metadata
        for entry in ledger.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        if not has_ended(entry.metadata, remote_log_start_offset, remote_log_start_epoch)
    )
    accepted = Accepted(epoch=accepted_epoch, end_offset=accepted_offset)
    orphans = _orphans(ledger, finished, lineage, accepted)
    usable = ledger.usable(lineage, MAX_OFFSET)
    if orphans and (len(orphans) > max_orphans or not usable):
        starts = tuple(sorted(segment.start_offset for segment in orphans))
        reason = (
            f"{len(orphans)} of {len(finished)} finished segments, from offset {starts[0]} on, "
            f"are outside the leader's lineage (at most {max_orphans} may be)"
        )
        return Frozen(reason=reason, orphans=starts)
    return None


def _orphans(
    ledger: PartitionLedger,
    finished: Sequence[RemoteLogSegmentMetadata],
    lineage: Lineage,
    accepted: Accepted,
) -> tuple[RemoteLogSegmentMetadata, ...]:
    usable = ledger.usable(lineage, MAX_OFFSET)
    used = {one.metadata.segment_id.id for one in usable}
    covered = cover(usable)
    return tuple(
        segment
        for segment in finished
        if segment.segment_id.id not in used
        and diverges(segment, lineage, accepted)
        and not covered.holds(segment.start_offset, segment.next_offset)
    )


def diverges(segment: RemoteLogSegmentMetadata, lineage: Lineage, accepted: Accepted) -> bool:
    """Whether a higher epoch begins at or below the segment's end, and no operator has accepted
    that.

    Where the accepted log ended, a later epoch may have replaced the accepted one in the epoch
    file, which keeps no epoch without records. Records from there on that belong to it are of the
    accepted epoch or later; older ones were outside the log already when it was accepted.
    """
    at = divergence(segment, lineage)
    if at is None:
        return False
    epoch = lineage.epoch_for_offset(at)
    if epoch is not None and epoch <= accepted.epoch:
        return False
    newest_epoch = segment.segment_leader_epochs[-1].epoch
    return not (at >= accepted.end_offset and newest_epoch < accepted.epoch)
