"""Plans which finished segments a ledger gets back from the manifests in the stores (H6). Pure.

The rule, for one partition:

- Only what the ledger lacks is added. A segment that has any record is as that record says, and
  nothing is added of a partition whose deletion is recorded.
- Only segments whose objects were just seen whole are added. A deletion removes the manifest first,
  so a segment whose deletion had begun does not come back.
- Overlapping copies and copies of dead histories are added too, as they were in the ledger: which
  of them readers get follows from their leader epochs (rlmm/ledger.py).
- What ended below the remote log start is added too: nobody can read it there, and expiration
  deletes it in order. The start itself is in the settings topic. Where a manifest knows a higher
  one, the settings have lost records too, and nothing of the partition is added: it would bring
  back what retention or somebody's DeleteRecords has ended (H2). Where the settings have lost the
  start, all is added: without one, nothing is read, trimmed or deleted before an operator sets it
  (`rlm topics adopt-log-start`), and that is where the segments begin.
- Nothing is added of a topic that the settings do not know: its deletion is finished, or it was
  never tiered here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kip405.ids import MAX_OFFSET, TopicIdPartition
from kip405.lineage import remote_lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import Cover, OffsetRange, has_ended, missed
from rlmm.ledger import Hole, PartitionLedger

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment by its manifest. `broken`: what its objects lack, empty = they are whole.

    `remote_log_start_offset` is what the manifest says: the start when the segment was copied.
    """

    metadata: RemoteLogSegmentMetadata
    remote_log_start_offset: int
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """What ledger and settings know of a partition. `remote_log_start_offset` None = nothing."""

    ledger: PartitionLedger
    is_topic_known: bool
    remote_log_start_offset: int | None
    remote_log_start_epoch: int
    holes: tuple[Hole, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRebuild:
    """What a partition gets back, and what it does not.

    `added`: by start offset, to be published under `leader_epoch`. `ended`, `diverged`: how many of
    them lie below the remote log start, or outside the history that all segments together show.
    `known`: how many the ledger has already. `gaps`: half-open ranges of offsets above the remote
    log start that no segment has; brokers may have them. `refused`: why nothing is added, None = it
    is. `is_start_lost`: the settings have no remote log start; the one given is where the first
    segment begins.
    """

    partition: TopicIdPartition
    leader_epoch: int
    added: tuple[RemoteLogSegmentMetadata, ...]
    known: int
    broken: tuple[StoredSegment, ...]
    remote_log_start_offset: int
    ended: int = 0
    diverged: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    refused: str | None = None
    is_start_lost: bool = False


def plan_rebuild(
    partition: TopicIdPartition,
    stored: Sequence[StoredSegment],
    known: KnownPartition,
    *,
    needs_start: bool = False,
) -> PartitionRebuild:
    """What the ledger lacks of one partition; nothing with `needs_start` where there is none."""
    new = [one for one in stored if one.metadata.segment_id.id not in known.ledger.entries]
    whole = [one.metadata for one in new if not one.broken]
    refused = refusal(stored, known, needs_start=needs_start) if new else None
    added = () if refused else tuple(sorted(whole, key=_order))
    finished = (*finished_of(known.ledger), *added)
    start = known.remote_log_start_offset
    if start is None:
        start = min((one.start_offset for one in finished), default=0)
    return PartitionRebuild(
        partition=partition,
        leader_epoch=epoch_for(added, known.ledger),
        added=added,
        known=len(stored) - len(new),
        broken=tuple(one for one in new if one.broken),
        remote_log_start_offset=start,
        ended=sum(has_ended(one, start, known.remote_log_start_epoch) for one in added),
        diverged=len(_outside(added, finished)),
        gaps=_gaps(finished, start, known.holes),
        refused=refused,
        is_start_lost=known.remote_log_start_offset is None and refused is None,
    )


def epoch_for(added: Iterable[RemoteLogSegmentMetadata], ledger: PartitionLedger) -> int:
    """The leader epoch under which records are added: the newest that the partition shows."""
    epochs = (entry.epoch for one in added for entry in one.segment_leader_epochs)
    return max([ledger.newest_epoch, *epochs])


def refusal(
    stored: Iterable[StoredSegment], known: KnownPartition, *, needs_start: bool
) -> str | None:
    """Why nothing may be added of a partition; None = it may."""
    if not known.is_topic_known:
        return "the settings do not know the topic: it was deleted, or was never tiered here"
    if known.ledger.deletion_problem is not None:
        return known.ledger.deletion_problem
    start = known.remote_log_start_offset
    if start is None:
        why = "the settings have no remote log start of it, so deleted records might come back"
        return why if needs_start else None
    highest = max((one.remote_log_start_offset for one in stored), default=start)
    if highest > start:
        return (
            f"the settings have the remote log start {start}, a manifest has {highest}: the "
            "settings have lost records too"
        )
    return None


def _order(metadata: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return metadata.start_offset, metadata.end_offset


def finished_of(ledger: PartitionLedger) -> tuple[RemoteLogSegmentMetadata, ...]:
    """The finished segments, of whatever history."""
    return tuple(entry.metadata for entry in ledger.in_state(_FINISHED))


def _outside(
    added: Iterable[RemoteLogSegmentMetadata], finished: Sequence[RemoteLogSegmentMetadata]
) -> tuple[RemoteLogSegmentMetadata, ...]:
    lineage = remote_lineage(finished)
    return tuple(one for one in added if usable_end(one, lineage) <= one.start_offset)


def _gaps(
    finished: Sequence[RemoteLogSegmentMetadata], start: int, holes: Iterable[Hole]
) -> tuple[tuple[int, int], ...]:
    """Between the remote log start and the end of the last segment."""
    lineage = remote_lineage(finished)
    ranges = [(one.start_offset, usable_end(one, lineage)) for one in finished]
    ranges = [(first, end) for first, end in ranges if first < end]
    end = max((end for _, end in ranges), default=start)
    covered = Cover.of(
        OffsetRange(start=first, next_offset=min(end, MAX_OFFSET)) for first, end in ranges
    )
    empty = tuple(sorted((hole.start, hole.end) for hole in holes))
    taken = tuple((one.start, one.next_offset) for one in covered.ranges)
    return missed(missed([(start, end)] if start < end else [], taken), empty)
