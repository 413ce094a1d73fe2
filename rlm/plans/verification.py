"""What `rlm verify` checks of one partition: the order of its offsets, and that none is missing.

The offsets have KIP-405's names. L is the leader's local log: Lx its start, Ly its last stable
offset, Lz its end. R is the remote log: Rx its start, Ry its end. Lz >= Ly >= Lx and
Ly >= Ry >= Rx must hold. That each offset is in exactly one tier is no usable check (H31), because
local retention keeps records in both tiers. What must hold instead: every offset of [Rx, Lz) is in
a finished, undisputed segment of the leader's lineage, in the leader's log, or in a recorded hole.

A gap that remains is an error of its own even while an unfinished copy may fill it (H15): readers
wait there. What could not be checked is neither clean nor an issue (H38). Pure: the task
supplies the snapshot and what the stores answered.
"""

import enum
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kip405.ids import TopicPartition, Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.plans.coverage import Cover, DoubtfulSegment, OffsetRange, missed
from rlm.plans.problems import human_bytes
from rlmm.ledger import Hole, SegmentEntry, UsableSegment

_MOST_NAMED = 3


class IssueKind(enum.Enum):
    """What is wrong, or worth knowing, in the words that `rlm verify --json` prints."""

    ORDER = "order"
    GAP = "gap"
    FROZEN = "frozen"
    OBJECTS = "objects"
    DAMAGED = "damaged"
    MANIFEST = "manifest"
    UNLISTED = "unlisted"
    HOLE = "hole"
    DISPUTED = "disputed"
    UNFINISHED = "unfinished"
    LEFTOVER = "leftover"


NOTES = frozenset({IssueKind.HOLE, IssueKind.DISPUTED, IssueKind.UNFINISHED, IssueKind.LEFTOVER})
"""Kinds that are listed and need no operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One finding or note about offsets [start_offset, next_offset); -1 = no offsets.

    `segment_id` None and `object_name` empty where it is not about one segment or one object.
    `action` is what an operator should do; empty for notes.
    """

    kind: IssueKind
    partition: TopicPartition
    start_offset: int
    next_offset: int
    text: str
    action: str = ""
    segment_id: Uuid | None = None
    object_name: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind not in NOTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of one partition by KIP-405's names; ends are half-open.

    `last_stable_offset` must have been asked for after the ledger was read: a copy that ends
    meanwhile may reach beyond an older one. Without remote data Ry is Rx.
    """

    local_log_start_offset: int
    last_stable_offset: int
    local_log_end_offset: int
    remote_log_start_offset: int
    remote_log_end_offset: int

    @property
    def named(self) -> tuple[tuple[str, int], ...]:
        """Each with its name in full, in the order of KIP-405."""
        return (
            ("local log end Lz", self.local_log_end_offset),
            ("last stable offset Ly", self.last_stable_offset),
            ("local log start Lx", self.local_log_start_offset),
            ("remote log end Ry", self.remote_log_end_offset),
            ("remote log start Rx", self.remote_log_start_offset),
        )

    def violations(self) -> tuple[str, ...]:
        """Each pair that is out of order, in words; empty = Lz >= Ly >= Lx and Ly >= Ry >= Rx."""
        end, stable, start, remote_end, remote_start = self.named
        pairs = ((end, stable), (stable, start), (stable, remote_end), (remote_end, remote_start))
        return tuple(
            f"{high[0]} = {high[1]} is below {low[0]} = {low[1]}"
            for high, low in pairs
            if high[1] < low[1]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """What is known of one partition at one time; `usable` as PartitionLedger.usable from Rx on.

    `is_enabled` False: the topic's remote data is only kept; the broker's own retention may have
    deleted what was not copied, so nothing is wanted beyond Ry.
    """

    partition: TopicPartition
    offsets: PartitionOffsets
    usable: Collection[UsableSegment]
    entries: Collection[SegmentEntry]
    holes: Collection[Hole]
    doubtful: Collection[DoubtfulSegment]
    frozen: str | None
    is_enabled: bool


def partition_issues(view: PartitionView) -> tuple[Issue, ...]:
    """Everything that needs no store, findings first."""
    found = (*_order(view), *_frozen(view), *_gaps(view), *_holes(view), *_attempts(view))
    return tuple(sorted(found, key=lambda issue: (not issue.is_finding, issue.start_offset)))


def _issue(view: PartitionView, kind: IssueKind, offsets: tuple[int, int], text: str) -> Issue:
    start, end = offsets
    return Issue(
        kind=kind,
        partition=view.partition,
        start_offset=start,
        next_offset=end,
        text=text,
        action=_ACTIONS.get(kind, ""),
    )


_ACTIONS = {
    IssueKind.ORDER: "keep what both tiers have: `rlm freeze` the topic, then compare `rlm status` "
    "with the broker's log",
    IssueKind.FROZEN: "read the reason; `rlm partition adopt` or `discard` ends it",
    IssueKind.GAP: "`rlm partition accept-loss` shows whether a copy or a replica still has them",
    IssueKind.OBJECTS: "restore the object in the store; while the broker still has the "
    "records they are copied again",
    IssueKind.DAMAGED: "restore the object from a version or a backup of the store; while "
    "the broker still has the records they are copied again",
    IssueKind.UNLISTED: "delete nothing; `rlm freeze` the topic, and find out whether the ledger "
    "topic lost records",
    IssueKind.MANIFEST: "keep the objects; compare the manifest with `rlm segments --json`",
}


def _order(view: PartitionView) -> Iterator[Issue]:
    for text in view.offsets.violations():
        yield _issue(view, IssueKind.ORDER, (-1, -1), text)


def _frozen(view: PartitionView) -> Iterator[Issue]:
    if view.frozen is not None:
        text = f"the remote log cannot be read while the partition is frozen: {view.frozen}"
        yield _issue(view, IssueKind.FROZEN, (-1, -1), text)


def _gaps(view: PartitionView) -> Iterator[Issue]:
    """Offsets of [Rx, Lz) that no tier and no recorded hole has."""
    offsets = view.offsets
    until = offsets.local_log_end_offset if view.is_enabled else offsets.remote_log_end_offset
    wanted = [(offsets.remote_log_start_offset, until)]
    for start, end in missed(wanted, _readable(view)):
        yield _issue(view, IssueKind.GAP, (start, end), f"no tier has them{_why(view, start, end)}")


def _readable(view: PartitionView) -> tuple[tuple[int, int], ...]:
    """Ascending disjoint ranges."""
    offsets = view.offsets
    doubtful = tuple((one.base_offset, one.next_offset) for one in view.doubtful)
    local = missed([(offsets.local_log_start_offset, offsets.local_log_end_offset)], doubtful)
    remote = (
        (one.metadata.start_offset, one.next_offset) for one in view.usable if not one.disputed
    )
    holes = ((hole.start, hole.end) for hole in view.holes)
    cover = Cover.of(
        OffsetRange(start=start, next_offset=end) for start, end in (*local, *remote, *holes)
    )
    return tuple((one.start, one.next_offset) for one in cover.ranges)


def _why(view: PartitionView, start: int, end: int) -> str:
    """What the ledger and the log have of a gap."""
    reasons = [
        f"; {one.path} has 0 bytes: {one.why}"
        for one in view.doubtful
        if one.base_offset < end and start < one.next_offset
    ]
    reasons += [
        f"; segment {one.metadata.segment_id.id} that would have them is "
        f"{'disputed' if one.disputed else one.state.name}"
        for one in view.entries
        if (one.disputed or one.state is not _FINISHED)
        and one.metadata.start_offset < end
        and start < one.metadata.next_offset
    ]
    more = len(reasons) - _MOST_NAMED
    return "".join(reasons[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _holes(view: PartitionView) -> Iterator[Issue]:
    offsets = view.offsets
    for hole in view.holes:
        start = max(hole.start, offsets.remote_log_start_offset)
        if start < hole.end:
            yield _issue(view, IssueKind.HOLE, (start, hole.end), f"recorded hole: {hole.cause}")


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def _attempts(view: PartitionView) -> Iterator[Issue]:
    """Disputed entries (H3), and copies and deletions that have not ended."""
    for entry in view.entries:
        metadata = entry.metadata
        if entry.disputed:
            kind, text = IssueKind.DISPUTED, f"disputed, and repaired by cleanup: {entry.disputed}"
        elif entry.state is not _FINISHED:
            kind = IssueKind.UNFINISHED
            text = f"under way, or left for cleanup: its newest record is {entry.state.name}"
        else:
            continue
        yield Issue(
            kind=kind,
            partition=view.partition,
            start_offset=metadata.start_offset,
            next_offset=metadata.next_offset,
            text=text,
            segment_id=metadata.segment_id.id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedSegment:
    """Objects in a store of a segment that the ledger does not list. `objects_stem`: their name
    without the suffix.
    """

    segment_id: Uuid
    start_offset: int
    objects_stem: str
    has_manifest: bool
    size_bytes: int


def unlisted_issue(
    partition: TopicPartition, segment: UnlistedSegment, remote_log_start_offset: int
) -> Issue:
    """With its manifest, a segment above the remote log start was finished once: the ledger has
    lost its record (H6). Anything else is what a deletion or an old attempt left, which nobody
    reads.
    """
    is_lost = segment.has_manifest and segment.start_offset >= remote_log_start_offset
    kind = IssueKind.UNLISTED if is_lost else IssueKind.LEFTOVER
    manifest = "with its manifest" if segment.has_manifest else "without a manifest"
    return Issue(
        kind=kind,
        partition=partition,
        start_offset=-1,
        next_offset=-1,
        text=f"the ledger does not list this segment from offset {segment.start_offset}, which is "
        f"in the store {manifest}, {human_bytes(segment.size_bytes)}",
        action=_ACTIONS.get(kind, ""),
        segment_id=segment.segment_id,
        object_name=segment.objects_stem,
    )


def segment_issue(
    partition: TopicPartition, segment: UsableSegment, kind: IssueKind, object_name: str, text: str
) -> Issue:
    """A finding about one object of a segment; its offsets are those that readers lose."""
    return Issue(
        kind=kind,
        partition=partition,
        start_offset=segment.metadata.start_offset,
        next_offset=segment.next_offset,
        text=text,
        action=_ACTIONS[kind],
        segment_id=segment.metadata.segment_id.id,
        object_name=object_name,
    )


def confirmed(first: Iterable[Issue], again: Iterable[Issue]) -> tuple[Issue, ...]:
    """Issues of a second snapshot, without the findings that the first one does not have: what two
    snapshots do not both show was in motion.
    """
    known = {_identity(issue) for issue in first}
    return tuple(one for one in again if not one.is_finding or _identity(one) in known)


def _identity(issue: Issue) -> tuple[IssueKind, int]:
    """A gap's end moves with the log's; the values in a text may."""
    return issue.kind, issue.start_offset
