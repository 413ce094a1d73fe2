"""Finds the manifests of a partition that a listing of its store has missed while others wrote.

A listing has pages, and a folder is read piece by piece, so an object that is written meanwhile may
be missed, and one that is removed later may be, too.

Services write the manifests of a partition in the order of its offsets, and remove a replaced copy
after the one that takes its place was written (rlm/tasks/copy_order.py). So a listing may lack a
segment and have those above it, and readers would pass it like a gap of compaction (H15). Whatever
lies below a listed segment was written before that listing ended: one listing that begins later has
it, and a gap that is left then is one. What that listing has added may lie above a gap in its turn.

An import writes its stop, then segments, then it removes the stop (rlm/imports/stops.py). So a
listing may lack a segment and the stop as well, and have segments behind both (H4). Two more
listings that add nothing show that

- no segment was written between the end of the first and the end of the second listing, as it would
  be in the second or third one: what was listed is what there was;
- no import had a stop there from before the second listing until its end, as that would list it. So
  each import either ended before, and all of it is listed, or began later, and nothing of it is.

Segments that are deleted meanwhile are no matter here. Nothing is known of other partitions.
"""

from collections.abc import Container, Iterable

from kip405.contracts import StoreAdmin
from kip405.errors import Invalid
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rsm_plugins.layout.keys import ObjectKind, ParsedName, parse_name

MOST_ADDED = 5
"""How often a partition may have something new before its listing counts as unsettled."""
UNSETTLED = "others wrote to it while its objects were listed, each time anew"
_LISTINGS = 2
_NO_EPOCH = -1
Identity = tuple[PartitionKey, Uuid]


async def added_manifests(
    store: StoreAdmin, cluster_id: str, partition: TopicIdPartition, listed: Container[Identity]
) -> list[tuple[str, ParsedName]]:
    """The manifests that are not `listed`; none: it has all that there was at one time."""
    for _ in range(_LISTINGS):
        added = await new_manifests(store, cluster_id, partition, listed)
        if added:
            return added
    return []


async def new_manifests(
    store: StoreAdmin, cluster_id: str, partition: TopicIdPartition, listed: Container[Identity]
) -> list[tuple[str, ParsedName]]:
    """The manifests that one more listing has and that are not `listed`."""
    added: list[tuple[str, ParsedName]] = []
    async for stored in store.list_objects(cluster_id, partition):
        parsed = manifest_name(stored.name)
        if parsed is None or (parsed.topic_id, parsed.partition) != partition.key:
            continue
        if identity_of(parsed) not in listed:
            added.append((stored.name, parsed))
    return added


def above_gaps(
    segments: Iterable[RemoteLogSegmentMetadata],
    known: Iterable[RemoteLogSegmentMetadata],
    start_offset: int,
) -> list[RemoteLogSegmentMetadata]:
    """Those of the segments of a partition below which one may be missing: none that is `known`
    ends where they begin in the same leader epoch. Below `start_offset` nothing is read. Where
    segments overlap, or another leader begins with a segment, nothing need be missing.
    """
    ends = {(one.next_offset, _epochs(one)[-1]) for one in known}
    return [
        one
        for one in segments
        if one.start_offset > start_offset and (one.start_offset, _epochs(one)[0]) not in ends
    ]


def _epochs(segment: RemoteLogSegmentMetadata) -> tuple[int, ...]:
    return tuple(one.epoch for one in segment.segment_leader_epochs) or (_NO_EPOCH,)


def manifest_name(name: str) -> ParsedName | None:
    """The fields of a manifest's name; None for all other objects."""
    try:
        parsed = parse_name(name)
    except Invalid:
        return None
    return parsed if parsed.kind is ObjectKind.MANIFEST else None


def identity_of(parsed: ParsedName) -> Identity:
    """Which segment it is an object of."""
    return PartitionKey(parsed.topic_id, parsed.partition), parsed.segment_id
