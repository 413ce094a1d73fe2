"""Plans which segments of dead histories may go: replaced, for long, and few (H8). Pure.

After an unclean election the old leader's last segments are in no history any more. Kafka deletes
what is unreferenced; a broker that was trimmed cannot say what is (H8), so here a segment goes only
by positive proof:

- The leader's merged lineage has a higher epoch that begins at or below the segment's end, and
  none of its offsets is in the lineage. An epoch that is only absent proves nothing.
- The leader's own epoch file still reaches down to the segment's start. Below, the lineage is what
  copies say, and where the file was cut before anybody saw it, copies of a dead history say it.
- Each of its offsets above the remote log start is in other finished segments, inside the lineage,
  undisputed, whose records are older than the grace by the brokers' clock. So is its own record,
  and that of a segment with the leader's newest epoch: a log that was elected again has old copies
  at once, and the one before it may come back.
- No more than the newest few segments are such orphans. Else an operator must first accept the
  leader's history (`rlm partition adopt`), as an emptied disk looks the same.

What has ended below the remote log start is expiry's (`expiry.py`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kip405.ids import MAX_OFFSET, Uuid
from kip405.lineage import Lineage, divergence, usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import Cover, OffsetRange
from rlm.plans.freeze import Accepted, diverges
from rlmm.ledger import PartitionLedger, SegmentEntry

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreferencedView:
    """One snapshot of a partition. `local`: what the leader's epoch file still contains of the
    merged `lineage`. `orphans`: of `orphans_of`. `copying`: segment ids of live copy attempts.
    `now_ms`: that of `retention_now`. `accepted`: the history that an operator accepted.
    """

    ledger: PartitionLedger
    lineage: Lineage
    local: Lineage
    orphans: tuple[SegmentEntry, ...]
    remote_log_start_offset: int
    copying: Collection[Uuid]
    accepted: Accepted
    now_ms: int
    grace_ms: int
    max_orphans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreferencedPlan:
    """Segments that go, by start offset, and the segments that have their offsets instead.

    `held`: why none goes although some could; None = nothing is held.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    replacements: tuple[RemoteLogSegmentMetadata, ...] = ()
    held: str | None = None


def plan_unreferenced(view: UnreferencedView) -> UnreferencedPlan:
    """What may go now."""
    unaccepted = [
        one for one in view.orphans if diverges(one.metadata, view.lineage, view.accepted)
    ]
    if len(unaccepted) > view.max_orphans:
        held = (
            f"{len(unaccepted)} segments are of another history than the leader's, at most "
            f"{view.max_orphans} are deleted without rlm partition adopt"
        )
        return UnreferencedPlan(segments=(), held=held)
    replacements = _replacements(view)
    covered = _cover(replacements, view)
    segments = tuple(one.metadata for one in view.orphans if _may_go(one, view, covered))
    needed = tuple(one for one in replacements if any(_overlap(one, each) for each in segments))
    return UnreferencedPlan(segments=segments, replacements=needed)


def orphans_of(ledger: PartitionLedger, lineage: Lineage) -> tuple[SegmentEntry, ...]:
    """Finished segments that a higher epoch has replaced, by start offset; there are few, if any,
    and they change only with the ledger and the lineage.
    """
    used = {one.metadata.segment_id.id for one in ledger.usable(lineage, MAX_OFFSET)}
    found = (
        entry
        for segment_id, entry in ledger.entries.items()
        if segment_id not in used
        and entry.state is _FINISHED
        and is_orphan(entry.metadata, lineage)
    )
    return tuple(sorted(found, key=lambda entry: entry.metadata.start_offset))


def _overlap(one: RemoteLogSegmentMetadata, other: RemoteLogSegmentMetadata) -> bool:
    return one.start_offset < other.next_offset and other.start_offset < one.next_offset


def is_orphan(metadata: RemoteLogSegmentMetadata, lineage: Lineage) -> bool:
    """Whether a higher epoch has replaced the segment, and nothing of it is in the lineage."""
    has_diverged = divergence(metadata, lineage) is not None
    return has_diverged and usable_end(metadata, lineage) <= metadata.start_offset


def is_replaced(metadata: RemoteLogSegmentMetadata, view: UnreferencedView) -> bool:
    """Whether the reason to delete a segment still holds, whatever its own record says now."""
    return (
        is_orphan(metadata, view.lineage)
        and _is_within(metadata, view.local)
        and _is_covered(metadata, view, _cover(_replacements(view), view))
    )


def _cover(segments: Iterable[RemoteLogSegmentMetadata], view: UnreferencedView) -> Cover:
    return Cover.of(
        OffsetRange(start=one.start_offset, next_offset=usable_end(one, view.lineage))
        for one in segments
    )


def _is_covered(metadata: RemoteLogSegmentMetadata, view: UnreferencedView, covered: Cover) -> bool:
    start = view.remote_log_start_offset
    return metadata.next_offset > start and covered.holds(
        max(metadata.start_offset, start), metadata.next_offset
    )


def _may_go(entry: SegmentEntry, view: UnreferencedView, covered: Cover) -> bool:
    return (
        not entry.disputed
        and entry.metadata.segment_id.id not in view.copying
        and _is_old(entry, view)
        and _is_within(entry.metadata, view.local)
        and _is_covered(entry.metadata, view, covered)
    )


def _replacements(view: UnreferencedView) -> tuple[RemoteLogSegmentMetadata, ...]:
    """The segments that readers get, for longer than the grace; none where the leader's newest
    epoch has no such segment: an epoch has one history, so only then has it lasted that long.
    """
    found = tuple(
        one.metadata
        for one in view.ledger.usable(view.lineage, MAX_OFFSET)
        if not one.disputed and _is_old(view.ledger.entries[one.metadata.segment_id.id], view)
    )
    newest = view.lineage.latest_epoch
    has_lasted = any(one.segment_leader_epochs[-1].epoch == newest for one in found)
    return found if has_lasted else ()


def _is_within(metadata: RemoteLogSegmentMetadata, local: Lineage) -> bool:
    """Whether the epoch file reaches down to the segment's start: then it alone proves the rest."""
    first = local.first
    return first is not None and first.start_offset <= metadata.start_offset


def _is_old(entry: SegmentEntry, view: UnreferencedView) -> bool:
    """By the time at which a broker appended its newest record."""
    return view.now_ms - entry.timestamp_ms >= view.grace_ms
