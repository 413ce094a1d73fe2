"""Decides about objects of a store that the ledger does not list: adopt, register or leave. Pure.

The objects were listed before the ledger was read past a barrier (H12). Nothing is deleted by it,
and never for want of a record (H6):

- A whole segment whose manifest proves it is **adopted**: its COPY_SEGMENT_FINISHED is published
  again, by the rules of `ledger_rebuild.py`, and only where it fits the history that the ledger
  shows: all of its offsets belong to it, and no listed segment loses any.
- Objects without a manifest that are older than a grace of days are **registered**, if finished
  segments hold all records that they may have, by their bytes: the ledger gets a
  COPY_SEGMENT_STARTED for them. Then they are a broken attempt like any other. The leader's cleanup
  asks the store again after its own grace, raises an alarm if there is a manifest, deletes them in
  the order of G4, and audits it.
- Everything else is **left** and named: objects that are too young or may be the only copy,
  segments of another history, segments with a manifest but without all objects, partitions of which
  nothing is adopted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.lineage import remote_lineage, usable_end
from kip405.segments import (
    CustomMetadata,
    EpochEntry,
    Layout,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlm.plans.ledger_rebuild import (
    KnownPartition,
    PartitionRebuild,
    StoredSegment,
    epoch_for,
    finished_of,
    plan_rebuild,
    refusal,
)

_NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Objects of one segment without a manifest. `modified_ms`: the newest, by the store's clock.
    `entropy_bits` and `layout`: those of their names. `log_size_bytes`: the object with the
    records alone, `size_bytes` all.
    """

    store_id: Uuid
    partition: TopicIdPartition
    segment_id: Uuid
    start_offset: int
    entropy_bits: int
    size_bytes: int
    log_size_bytes: int
    modified_ms: int
    layout: Layout = Layout.KAFKA


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """Objects count as abandoned if they are older than `grace_ms` at `now_ms`."""

    now_ms: int
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReconcile:
    """`found.added` is adopted, `registered` handed to cleanup. Left are `contradicting`, `young`,
    `unreplaced` (perhaps the only copy), and what `found` leaves out.
    """

    found: PartitionRebuild
    contradicting: tuple[RemoteLogSegmentMetadata, ...]
    registered: tuple[Leftover, ...]
    young: tuple[Leftover, ...]
    unreplaced: tuple[Leftover, ...]


def plan_reconcile(
    partition: TopicIdPartition,
    stored: Sequence[StoredSegment],
    leftovers: Iterable[Leftover],
    known: KnownPartition,
    age: Age,
) -> PartitionReconcile:
    """What becomes of the objects of one partition that the ledger does not list."""
    found = plan_rebuild(partition, stored, known, needs_start=True)
    fitting = _fitting(found.added, finished_of(known.ledger))
    unlisted = [one for one in leftovers if one.segment_id not in known.ledger.entries]
    why = refusal(stored, known, needs_start=True) if unlisted else None
    refused = found.refused or why
    old = [one for one in unlisted if age.now_ms - one.modified_ms >= age.grace_ms]
    replaced = [one for one in old if _is_replaced(one, known)]
    return PartitionReconcile(
        found=replace(
            found,
            added=fitting,
            refused=refused,
            leader_epoch=epoch_for(fitting, known.ledger),
        ),
        contradicting=tuple(one for one in found.added if one not in fitting),
        registered=() if refused else tuple(replaced),
        young=tuple(one for one in unlisted if one not in old),
        unreplaced=tuple(one for one in old if one not in replaced),
    )


def _is_replaced(leftover: Leftover, known: KnownPartition) -> bool:
    """Whether finished segments of the ledger's history have all records that it may hold.

    Its end is in no name, so they must follow each other from its first record, and those that
    begin there or later must have at least its bytes.
    """
    finished = finished_of(known.ledger)
    lineage = remote_lineage(finished)
    first = at = max(leftover.start_offset, known.remote_log_start_offset or 0)
    size_bytes = 0
    for one in sorted(finished, key=lambda one: one.start_offset):
        end = usable_end(one, lineage)
        if one.start_offset <= at < end:
            if one.start_offset >= first and end == one.next_offset:
                size_bytes += one.segment_size_bytes
            at = end
    return at > first and size_bytes >= leftover.log_size_bytes


def _fitting(
    added: Sequence[RemoteLogSegmentMetadata], finished: Sequence[RemoteLogSegmentMetadata]
) -> tuple[RemoteLogSegmentMetadata, ...]:
    """Those that fit what is listed and each other; all at once, where they do."""
    if not _breaks(added, finished):
        return tuple(added)
    taken: list[RemoteLogSegmentMetadata] = []
    for one in added:
        if not _breaks([one], [*finished, *taken]):
            taken.append(one)
    return tuple(taken)


def _breaks(
    added: Iterable[RemoteLogSegmentMetadata], finished: Sequence[RemoteLogSegmentMetadata]
) -> bool:
    """Whether a new one is not wholly in the history that all of them show together, or one that
    was has offsets there no longer.
    """
    new = tuple(added)
    before, after = remote_lineage(finished), remote_lineage([*finished, *new])
    return any(usable_end(one, after) != one.next_offset for one in new) or any(
        usable_end(one, after) < usable_end(one, before) for one in finished
    )


def registration(leftover: Leftover, *, leader_epoch: int, now_ms: int) -> RemoteLogSegmentMetadata:
    """The COPY_SEGMENT_STARTED of objects that nobody knows: one offset, since the rest is unknown,
    and a broker that is none, so that every service waits for its grace.
    """
    custom = CustomMetadata(
        store_id=leftover.store_id, entropy_bits=leftover.entropy_bits, layout=leftover.layout
    )
    start = leftover.start_offset
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=leftover.partition, id=leftover.segment_id
        ),
        start_offset=start,
        end_offset=start,
        broker_id=_NOBODY,
        max_timestamp_ms=_NOBODY,
        event_timestamp_ms=now_ms,
        segment_leader_epochs=(EpochEntry(epoch=max(leader_epoch, 0), start_offset=start),),
        segment_size_bytes=0,
        custom_metadata=custom.encode(),
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    )
