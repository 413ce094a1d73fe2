"""Finds the manifests of a partition that a listing of its store has missed while others wrote.

A listing has pages, and a folder is read piece by piece, so an object that is written meanwhile may
be missed, and one that is removed later may be, too.

Services write the manifests of a partition in the order of its offsets, and remove a replaced copy
after the one that takes its place was written (rlm/tasks/copy_order.py). So a listing may lack a
segment and have those above it, and readers would pass it like a gap of compaction (H15). Whatever
lies below a listed segment was written before that listing ended: one listing that begins later has
it, and a gap that is left then is one. What that listing has added may lie above a gap in its turn.
(A copy that is written during one listing and replaced during the next one, both times behind the
page, is missed by both, and until the round after that. One that takes the place of the last copy
behind the page of the very first listing leaves no trace there.)

A manifest that was listed and has gone when it is to be read may have been replaced as well: that
partition is listed again, too.

No gap is below a segment whose leader epoch has the record before it, too, in any segment: a leader
has one log. The end of a segment of an earlier epoch proves nothing: the next leader may have begun
before that, and its first segment be the one that was missed.

An import writes its stop, then segments, then it removes the stop (rlm/imports/stops.py). So a
listing may lack a segment and the stop as well, and have segments behind both (H4). Two more
listings that add nothing show that

- no segment was written between the end of the first and the end of the second listing, as it would
  be in the second or third one: what was listed is what there was;
- no import had a stop there from before the second listing until its end, as that would list it. So
  each import either ended before, and all of it is listed, or began later, and nothing of it is.

Segments that are deleted meanwhile are no matter here. Nothing is known of other partitions.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kip405.contracts import StoreAdmin
from kip405.errors import Invalid
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.plans.coverage import Cover, OffsetRange
from rsm_plugins.layout.keys import TOPIC_CUT, ObjectKind, ParsedName, parse_name

MOST_ADDED = 5
"""How often a partition may have something new before its listing counts as unsettled."""
UNSETTLED = "others wrote to it while its objects were listed, each time anew"
_LISTINGS = 2
_AT_ONCE = 16
_OBJECTS_A_PAGE = 1_000
Identity = tuple[PartitionKey, Uuid]
Added = dict[PartitionKey, list[tuple[str, ParsedName]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relisting:
    """Lists partitions of one store again. `listed`: the manifests that are known. `objects`: what
    the store had. `report` gets how many partitions are listed, and of how many.
    """

    store: StoreAdmin
    cluster_id: str
    listed: Container[Identity]
    objects: int
    report: Callable[[int, int], None]

    async def settling(self, partitions: Sequence[TopicIdPartition]) -> Added:
        """The manifests that are not `listed`; a partition without any has all that there was at
        one time.
        """
        added: Added = {}
        for _ in range(_LISTINGS):
            added |= await self.once([one for one in partitions if one.key not in added])
        return added

    async def once(self, partitions: Sequence[TopicIdPartition]) -> Added:
        """The manifests that one more listing of each has and that are not `listed`."""
        if self._is_whole_faster(partitions):
            return await self._of_store({one.key for one in partitions})
        added: Added = {}
        for at in range(0, len(partitions), _AT_ONCE):
            self.report(at, len(partitions))
            some = partitions[at : at + _AT_ONCE]
            for one in await asyncio.gather(*map(self._of_partition, some)):
                added |= one
        return added

    def _is_whole_faster(self, partitions: Sequence[TopicIdPartition]) -> bool:
        """Of each partition one or two folders are listed, some partitions at once, of a store one
        page after the other. Where a partition lies may not follow from a name that is cut.
        """
        most = _AT_ONCE // 2 * (1 + self.objects // _OBJECTS_A_PAGE)
        return len(partitions) > most or any(len(one.topic) == TOPIC_CUT for one in partitions)

    async def _of_partition(self, partition: TopicIdPartition) -> Added:
        added: Added = {}
        async for stored in self.store.list_objects(self.cluster_id, partition):
            parsed = manifest_name(stored.name)
            if parsed is not None and (parsed.topic_id, parsed.partition) == partition.key:
                self._note(added, stored.name, parsed)
        return added

    async def _of_store(self, keys: set[PartitionKey]) -> Added:
        added: Added = {}
        met: set[PartitionKey] = set()
        async for stored in self.store.list_objects(self.cluster_id):
            parsed = manifest_name(stored.name)
            if parsed is None or (key := identity_of(parsed)[0]) not in keys:
                continue
            if key not in met:
                self.report(len(met), len(keys))
                met.add(key)
            self._note(added, stored.name, parsed)
        return added

    def _note(self, added: Added, name: str, parsed: ParsedName) -> None:
        identity = identity_of(parsed)
        if identity not in self.listed:
            added.setdefault(identity[0], []).append((name, parsed))


class Records:
    """Which records some segments of one partition have, by the leader epochs of these."""

    def __init__(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        ranges: dict[int, list[OffsetRange]] = defaultdict(list)
        for segment in segments:
            for epoch, one in _ranges(segment):
                ranges[epoch].append(one)
        self._covers = {epoch: Cover.of(found) for epoch, found in ranges.items()}

    def has(self, offset: int, epoch: int) -> bool:
        """Whether one of them has the record of this leader at the offset."""
        return self._covers.get(epoch, Cover()).holds(offset, offset + 1)


def above_gaps(
    segments: Iterable[RemoteLogSegmentMetadata], known: Records, start_offset: int
) -> list[RemoteLogSegmentMetadata]:
    """Those of the segments of a partition below which one may be missing: the `known` ones do not
    have the record before it of the same leader. Below `start_offset` nothing is read.
    """
    return [
        one
        for one in segments
        if one.start_offset > start_offset
        and not known.has(one.start_offset - 1, one.segment_leader_epochs[0].epoch)
    ]


def without_end(
    segments: Iterable[RemoteLogSegmentMetadata], known: Records, start_offset: int
) -> list[RemoteLogSegmentMetadata]:
    """Those of the segments of a partition, all of which have gone, whose last record none of the
    `known` ones has: another copy may have taken the place, and was written before they went.
    """
    return [
        one
        for one in segments
        if one.next_offset > start_offset
        and not known.has(one.end_offset, one.segment_leader_epochs[-1].epoch)
    ]


def _ranges(segment: RemoteLogSegmentMetadata) -> Iterator[tuple[int, OffsetRange]]:
    entries = segment.segment_leader_epochs
    starts = [segment.start_offset, *(one.start_offset for one in entries[1:])]
    for entry, start, end in zip(entries, starts, [*starts[1:], segment.next_offset], strict=True):
        yield entry.epoch, OffsetRange(start=start, next_offset=end)


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
