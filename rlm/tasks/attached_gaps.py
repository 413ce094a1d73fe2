"""Which partitions an attached reader lists again before it serves them, and which it has lost.

A segment that was read since the last round that was served may lie above one that the listing has
missed (rlm/tasks/settled_listing.py), also one that a round has read that failed: what was missed
then may have been replaced since. Where a segment has gone, also of such a round, another copy may
have taken its place: below any other one, or at the end. Of one whose manifest was never read
nobody knows where it ended.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import next_turn
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.tasks.attached_starts import RemoteStarts
from rlm.tasks.settled_listing import Identity, Records, above_gaps, without_end
from rlmm.ledger import PartitionLedger

Listed = Sequence[Set[Identity]]
"""The manifests that were listed, by store."""
Gone = Mapping[PartitionKey, Set[Uuid]]
Unread = Mapping[Identity, TopicIdPartition]
"""Manifests that could not be read, with the partitions that their names have."""
Vanished = Mapping[PartitionKey, Mapping[Uuid, TopicIdPartition]]
Ledgers = Mapping[PartitionKey, PartitionLedger]


@dataclass(slots=True, kw_only=True)
class GapSearch:
    """Of one round. `ledgers`: what is served. `read`: the manifests that were read since then,
    also by rounds that failed; it grows. `starts`: by the manifests that are served,
    `decided_start`: by an operator's backup. `unsettled`: partitions that the last round has not
    settled.
    """

    ledgers: Ledgers
    read: Mapping[PartitionKey, Mapping[Uuid, StoredSegment]]
    starts: RemoteStarts
    decided_start: Callable[[PartitionKey], int]
    unsettled: Set[PartitionKey]
    _seen: set[Uuid] = field(default_factory=set, init=False)
    """Segments below which the listings since have had everything, or that have gone since then."""

    async def to_list(
        self, keys: Iterable[PartitionKey], listed: Listed, gone: Gone, vanished: Vanished
    ) -> list[TopicIdPartition]:
        """Those of the partitions that may lack something."""
        found: list[TopicIdPartition] = []
        for key in keys:
            unread = vanished.get(key, {})
            opened = (*self._open(key, listed, gone), *unread)
            unseen = [one for one in opened if one not in self._seen]
            if unseen:
                self._seen.update(unseen)
                found.append(self._name(key, unread.values()))
            await next_turn()
        return found

    def _open(self, key: PartitionKey, listed: Listed, gone: Gone) -> Iterator[Uuid]:
        ledger, read = self.ledgers.get(key), self.read.get(key, {})
        ended = gone.get(key, frozenset())
        new = {own_id for own_id in read if is_in(listed, key, own_id)}
        known = [*kept(ledger, ended), *(read[one].metadata for one in new)]
        lost = [read[one].metadata for one in read.keys() - new]
        lost += [ledger.entries[one].metadata for one in ended] if ledger is not None else []
        is_open = bool(lost) or key in self.unsettled
        fresh = known if is_open else [read[one].metadata for one in new]
        records = Records(known)
        starts = [read[one].remote_log_start_offset for one in new]
        if len(known) > len(new):  # otherwise all that has this start has gone
            starts.append(self.starts.of(key))
        start = max([self.decided_start(key), *starts])
        for one in (*above_gaps(fresh, records, start), *without_end(lost, records, start)):
            yield one.segment_id.id

    def _name(self, key: PartitionKey, unread: Iterable[TopicIdPartition]) -> TopicIdPartition:
        for one in self.read.get(key, {}).values():
            return one.metadata.topic_id_partition
        if key not in self.ledgers:
            return next(iter(unread))
        return next(iter(self.ledgers[key].entries.values())).metadata.topic_id_partition


async def read_and_listed(
    read: Mapping[PartitionKey, Mapping[Uuid, StoredSegment]], listed: Listed
) -> dict[PartitionKey, list[StoredSegment]]:
    """What was read, in this round or in one that failed, and has its manifest still."""
    found: dict[PartitionKey, list[StoredSegment]] = {}
    for key, segments in read.items():
        there = [one for own_id, one in segments.items() if is_in(listed, key, own_id)]
        if there:
            found[key] = there
        await next_turn()
    return found


def is_in(listed: Listed, key: PartitionKey, segment_id: Uuid) -> bool:
    """Whether one of the stores has the manifest."""
    return any((key, segment_id) in one for one in listed)


def vanished_manifests(unread: Iterable[Unread], before: Unread, listed: Listed) -> Vanished:
    """Those that had gone in this round when they were to be read, and those that could not be
    read `before` and have gone since.
    """
    found: dict[PartitionKey, dict[Uuid, TopicIdPartition]] = {}
    since = {one: name for one, name in before.items() if not is_in(listed, *one)}
    for one in (*unread, since):
        for (key, segment_id), partition in one.items():
            found.setdefault(key, {})[segment_id] = partition
    return found


async def gone_segments(ledgers: Ledgers, listed: Listed) -> dict[PartitionKey, set[Uuid]]:
    """Segments that are served and have no manifest any more."""
    found: dict[PartitionKey, set[Uuid]] = {}
    for key, ledger in ledgers.items():
        gone = {one for one in ledger.entries if not is_in(listed, key, one)}
        if gone:
            found[key] = gone
        await next_turn()
    return found


def kept(
    ledger: PartitionLedger | None, gone: Collection[Uuid]
) -> Iterator[RemoteLogSegmentMetadata]:
    """The segments that are served and have not gone."""
    if ledger is not None:
        for segment_id, entry in ledger.entries.items():
            if segment_id not in gone:
                yield entry.metadata
