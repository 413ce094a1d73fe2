"""Decides what an attached reader serves of a cluster of which only the stores are left (H4). Pure.

The manifests show the segments, and the segments show leader epochs. What only the settings and the
brokers' logs had is not there: which of two histories the last leader had, and where a remote log
starts whose start was raised after the last copy. The rules, for one partition:

- The history is the one that readers of the remote tier always use (rlm/plans/history.py): by the
  segments, and by what a leader has published, where a backup of the settings has that. Otherwise
  what the newest segment has stored of the history below its end (H8) takes its place.
- Offsets of which there are copies of two histories are doubtful, unless a leader has published a
  history that has both leader epochs: that the higher epoch began there is certain, that the last
  leader had its records is not.
- All offsets from the first one of a segment on are doubtful where its manifest cannot be used:
  nobody knows how far it reaches, and of which history it is.
- Doubtful offsets are refused, never left out, until an operator accepts what the segments show.
- Where others wrote while a partition was listed, each time anew, a segment may have been missed.
  No operator can accept that: it is refused until the partition was listed in peace.
- The remote log starts at the highest start that a manifest or the backup has, so that what was
  deleted does not come back. Without a backup it does not start below the first segment either,
  nor above what is doubtful: readers of that are refused, and not sent to a later start.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kip405.errors import Invalid
from kip405.ids import MAX_OFFSET, Uuid
from kip405.lineage import Lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import Cover, OffsetRange, Ranges, covered, missed
from rlm.plans.history import published_lineage
from rlmm.ledger import Hole, PartitionLedger
from rlmm.settings_records import HistoryRecord, TopicRecord

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Offsets [start, next_offset) that are not served, and why. `is_unsettled`: they are listed
    again soon, and cannot be accepted.
    """

    start: int
    next_offset: int
    why: str
    is_unsettled: bool = False

    @property
    def text(self) -> str:
        """What is not served, in words."""
        are = "are not known yet" if self.is_unsettled else "are doubtful"
        if self.next_offset == MAX_OFFSET:
            return f"offsets from {self.start} on {are}: {self.why}"
        return f"offsets {self.start} to {self.next_offset - 1} {are}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadSegment:
    """A segment whose manifest cannot be used: it begins at `start_offset`. None: at the first
    offset that the others do not have, as what may be missing lies in a gap or at the end.
    `is_unsettled`: it stands for what a listing may have missed.
    """

    start_offset: int | None
    why: str
    is_unsettled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup of the settings has of one partition; without one all of it is empty."""

    remote_log_start_offset: int | None = None
    holes: tuple[Hole, ...] = ()
    published: HistoryRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """How one partition is served. `gaps`: ascending half-open ranges between the remote log start
    and the end that no segment has, and that are neither a recorded hole nor doubtful. `history`:
    what readers take for published, None = nothing.
    """

    remote_log_start_offset: int
    history: HistoryRecord | None = None
    doubts: tuple[Doubt, ...] = ()
    gaps: Ranges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contradiction:
    """Offsets of a copy of one leader epoch that belong to another one by the history."""

    start: int
    next_offset: int
    epochs: frozenset[int]


def plan_partition(
    ledger: PartitionLedger,
    *,
    manifest_start_offset: int,
    unread: Iterable[UnreadSegment],
    backup: Backup,
    is_accepted: bool,
    stored: Lineage | None = None,
) -> PartitionPlan:
    """`manifest_start_offset`: the highest remote log start of any manifest. `is_accepted`: an
    operator has decided that what the segments show is right. `stored`: the lineage that the
    newest segment of the highest leader epoch has, None = not known.
    """
    history = _history(ledger, backup.published, stored, is_accepted=is_accepted)
    lineage = published_lineage(ledger, history)
    left_out = [one for one in unread if one.is_unsettled or not is_accepted]
    start = _start(ledger, lineage, manifest_start_offset, left_out, backup)
    disputed = () if is_accepted else _disputed(ledger, lineage, backup)
    whole_to = partial(_whole_to, ledger, lineage, start, backup.holes)
    found = (*disputed, *_from_unread(left_out, whole_to))
    doubts = tuple(one for one in found if one.next_offset > start)
    return PartitionPlan(
        remote_log_start_offset=start,
        history=history,
        doubts=tuple(sorted(doubts, key=lambda one: one.start)),
        gaps=_gaps(ledger, lineage, start, backup.holes, doubts),
    )


def _history(
    ledger: PartitionLedger,
    published: HistoryRecord | None,
    stored: Lineage | None,
    *,
    is_accepted: bool,
) -> HistoryRecord | None:
    """What counts as published: the record of the backup, unless a segment of a later leader epoch
    knows more than that and all segments together. A freeze stays until an operator accepts what
    the segments show.
    """
    if published is not None and published.frozen is not None:
        if not is_accepted:
            return published
        published = None  # its history is that of a log without these records
    latest = stored.latest_epoch if stored is not None else None
    if stored is None or latest is None:
        return published
    known = published.lineage.latest_epoch if published is not None else None
    if known is not None and known >= latest:
        return published
    record = HistoryRecord(partition=ledger.key, frozen=None, lineage=stored)
    is_news = published_lineage(ledger, record) != published_lineage(ledger, published)
    return record if is_news else published


def _start(
    ledger: PartitionLedger,
    lineage: Lineage,
    manifest_start_offset: int,
    left_out: Iterable[UnreadSegment],
    backup: Backup,
) -> int:
    """A reader that is below the start goes to it, and would pass over what is only left out."""
    known = backup.remote_log_start_offset
    if known is not None:
        return max(known, manifest_start_offset)
    extents = ledger.extents(lineage, MAX_OFFSET)
    first = min((one.start_offset for one in extents), default=manifest_start_offset)
    first = min([first, *(one.start_offset for one in left_out if one.start_offset is not None)])
    return max(first, manifest_start_offset)


def _from_unread(unread: Iterable[UnreadSegment], whole_to: Callable[[], int]) -> Iterator[Doubt]:
    for one in unread:
        start = whole_to() if one.start_offset is None else one.start_offset
        yield Doubt(start=start, next_offset=MAX_OFFSET, why=one.why, is_unsettled=one.is_unsettled)


def _whole_to(ledger: PartitionLedger, lineage: Lineage, start: int, holes: Iterable[Hole]) -> int:
    """The first offset that the segments do not have."""
    gaps = _gaps(ledger, lineage, start, holes, ())
    return gaps[0][0] if gaps else _end(_taken(ledger, lineage), start)


def _disputed(ledger: PartitionLedger, lineage: Lineage, backup: Backup) -> Iterator[Doubt]:
    published = backup.published.lineage.latest_epoch if backup.published else None
    proven = _UNKNOWN_EPOCH if published is None else published
    taken = _taken(ledger, lineage)
    found = [
        one
        for entry in ledger.in_state(_FINISHED)
        for one in _open_contradictions(entry.metadata, lineage, proven, taken)
    ]
    ranges = (OffsetRange(start=one.start, next_offset=one.next_offset) for one in found)
    for merged in Cover.of(ranges).ranges:
        inside = (
            one.epochs
            for one in found
            if one.start < merged.next_offset and merged.start < one.next_offset
        )
        epochs = sorted(frozenset[int]().union(*inside) - {_UNKNOWN_EPOCH})
        yield Doubt(
            start=merged.start,
            next_offset=merged.next_offset,
            why=f"copies of leader epochs {', '.join(map(str, epochs))} contradict each other",
        )


def _open_contradictions(
    segment: RemoteLogSegmentMetadata, lineage: Lineage, proven: int, taken: Ranges
) -> Iterator[_Contradiction]:
    """Those that no leader has settled, and what follows them in the segment and is nowhere else:
    a segment counts up to the first one only.
    """
    found = [one for one in _contradictions(segment, lineage) if max(one.epochs) > proven]
    if not found:
        return
    yield from found
    epochs = frozenset[int]().union(*(one.epochs for one in found))
    left = [(usable_end(segment, lineage), segment.next_offset)]
    for start, next_offset in missed(left, taken):
        yield _Contradiction(start=start, next_offset=next_offset, epochs=epochs)


def _contradictions(
    segment: RemoteLogSegmentMetadata, lineage: Lineage
) -> Iterator[_Contradiction]:
    own = Lineage.of(segment.segment_leader_epochs)
    known = lineage.clip(segment.start_offset, segment.next_offset)
    if known == own.entries:
        return
    starts = {segment.start_offset, *(one.start_offset for one in (*own.entries, *known))}
    cuts = sorted(one for one in starts if segment.start_offset <= one < segment.next_offset)
    for start, next_offset in zip(cuts, (*cuts[1:], segment.next_offset), strict=True):
        epochs = own.epoch_for_offset(start), lineage.epoch_for_offset(start)
        if epochs[0] != epochs[1]:
            named = frozenset(_UNKNOWN_EPOCH if one is None else one for one in epochs)
            yield _Contradiction(start=start, next_offset=next_offset, epochs=named)


def _gaps(
    ledger: PartitionLedger,
    lineage: Lineage,
    start: int,
    holes: Iterable[Hole],
    doubts: Iterable[Doubt],
) -> Ranges:
    taken = _taken(ledger, lineage)
    end = _end(taken, start)
    left = missed([(start, end)] if start < end else [], taken)
    left = missed(left, tuple(sorted((hole.start, hole.end) for hole in holes)))
    return missed(left, tuple((one.start, one.next_offset) for one in _ascending(doubts)))


def _end(taken: Ranges, start: int) -> int:
    return max((one[1] for one in taken), default=start)


def _taken(ledger: PartitionLedger, lineage: Lineage) -> Ranges:
    """What the segments have of the history, ascending."""
    ranges = covered(ledger, lineage, MAX_OFFSET).ranges
    return tuple((one.start, one.next_offset) for one in ranges)


def _ascending(doubts: Iterable[Doubt]) -> tuple[OffsetRange, ...]:
    ranges = (OffsetRange(start=one.start, next_offset=one.next_offset) for one in doubts)
    return Cover.of(ranges).ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """A topic by its segments; `newest_ms`: when the newest one of them was copied."""

    topic_id: Uuid
    name: str
    newest_ms: int


def topics_to_serve(
    stored: Iterable[StoredTopic],
    chosen: Iterable[Uuid],
    decided: Iterable[TopicRecord],
) -> tuple[TopicRecord, ...]:
    """The settings records of the topics, the one that has a name after others of that name (H39).

    The name is that of a chosen topic, else of the newest decision in the backup, `decided`, whose
    records are in their order, else of the topic that was copied last. Topics whose data was to be
    deleted by the backup are left out unless they are chosen. Invalid: a chosen topic is not in the
    stores, or two of them have one name.
    """
    wanted, by_id = set(chosen), {one.topic_id: one for one in stored}
    for topic_id in wanted - by_id.keys():
        raise Invalid(f"--topic-id: the stores have no manifest of a topic {topic_id}")
    known = {record.topic_id: (number, record) for number, record in enumerate(decided)}

    def order(one: StoredTopic) -> tuple[bool, int, int, Uuid]:
        number = known[one.topic_id][0] if one.topic_id in known else -1
        return one.topic_id in wanted, number, one.newest_ms, one.topic_id

    names = [by_id[topic_id].name for topic_id in wanted]
    for name in (one for one in names if names.count(one) > 1):
        raise Invalid(f"--topic-id: two of them are called {name}: choose one")
    return tuple(
        _kept(one)
        for one in sorted(by_id.values(), key=order)
        if one.topic_id in wanted or not _is_deleting(known.get(one.topic_id))
    )


def _is_deleting(known: tuple[int, TopicRecord] | None) -> bool:
    return known is not None and known[1].state == "deleting"


def _kept(topic: StoredTopic) -> TopicRecord:
    """As of a topic that is disabled and whose remote data is kept."""
    return TopicRecord(
        topic_id=topic.topic_id,
        name=topic.name,
        mode="tier",
        state="kept",
        trim=False,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-1,
        local_retention_bytes=-1,
    )


def names_used_twice(topics: Iterable[TopicRecord]) -> Mapping[str, tuple[Uuid, ...]]:
    """The topics of each name that several have; the last one has the name."""
    found: dict[str, list[Uuid]] = {}
    for one in topics:
        found.setdefault(one.name, []).append(one.topic_id)
    return {name: tuple(ids) for name, ids in found.items() if len(ids) > 1}
