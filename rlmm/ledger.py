"""All segments of one user partition as one immutable view, with the queries that plans need. Pure.

Every answer about offsets holds within the leader's merged lineage only (H4): a segment whose epoch
ended earlier counts up to that end; a segment that ends at or beyond the log's end does not count
at all (then the partition is frozen). A disputed segment (H3) is still readable, by its lawful
state where the newest record is not FINISHED, but it never supports the trim bound. This module
must not know the store: the trim verifies that FINISHED objects really exist (H11).

Views of one partition share what has not changed between them. Segments stay packed and are decoded
for whoever asks, so two answers about one segment are equal, not the same object.
"""

from collections.abc import Container, ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import merge
from typing import Final

from kip405.ids import MAX_OFFSET, PartitionKey, Uuid
from kip405.lineage import Lineage, highest_wins
from kip405.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
)
from rlmm.cover import Cover, Readable, UsableExtent, UsableSegment
from rlmm.packed import (
    ID_BYTES,
    Names,
    epochs_of,
    extent_of,
    metadata_of,
    offset_of,
    origin_of,
)
from rlmm.records import LaterRecord, PartitionDeleteRecord
from rlmm.replay import NO_DISPUTES, Dispute, Disputes, PartitionState
from rlmm.segment_store import NO_SEGMENTS, Chunk, Segments, Summary

__all__ = [
    "Hole",
    "PartitionLedger",
    "SegmentEntry",
    "SegmentTotal",
    "UsableExtent",
    "UsableSegment",
    "entry_of",
]

_COVERS_KEPT = 2  # the leader's lineage, and that of a reader of the remote tier only
_DECODED_CHUNKS: Final = 256
"""Chunks of which the entries are kept for the next look at their partition."""
_EMPTY_KEPT: Final = 1 << 14

SortedPart = list[tuple[int, int, bytes]]
"""Start offset of each segment, offset of its record, and the packed record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """Newest record of one segment; `disputed` says why this reader considers it illegal, empty =
    legal.
    """

    metadata: RemoteLogSegmentMetadata
    leader_epoch: int
    writer: Uuid
    offset: int
    timestamp_ms: int
    disputed: str = ""

    @property
    def state(self) -> RemoteLogSegmentState:
        return self.metadata.state


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTotal:
    """How many segments there are, and their bytes."""

    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Hole:
    """Offsets [start, end) that are in no tier, and why (H15)."""

    start: int
    end: int
    cause: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"offsets {self.start}..{self.end} are no hole")


def _entry(packed: bytes, names: Names) -> SegmentEntry:
    origin = origin_of(packed, names)
    return SegmentEntry(
        metadata=metadata_of(packed, names),
        leader_epoch=origin.leader_epoch,
        writer=origin.writer,
        offset=origin.offset,
        timestamp_ms=origin.timestamp_ms,
    )


@lru_cache(maxsize=_DECODED_CHUNKS)
def _entries(chunk: Chunk, names: Names) -> tuple[SegmentEntry, ...]:
    return tuple(_entry(packed, names) for packed in chunk.items)


def entry_of(state: PartitionState, segment_id: Uuid) -> SegmentEntry | None:
    """One entry of the partition's ledger, without a view of all."""
    packed, dispute = state.segments.get(segment_id.raw), state.dispute(segment_id)
    return None if packed is None else _with_dispute(_entry(packed, state.names), dispute)


def _with_dispute(entry: SegmentEntry, dispute: Dispute | None) -> SegmentEntry:
    return entry if dispute is None else replace(entry, disputed=dispute.why)


class _Entries(Mapping[Uuid, SegmentEntry]):
    """The segments of one view by id, decoded when they are asked for."""

    def __init__(self, readable: Readable, names: Names) -> None:
        self._segments = readable.segments
        self._disputes = readable.disputes.by_segment
        self._names = names

    def __getitem__(self, segment_id: Uuid) -> SegmentEntry:
        packed = self._segments.get(segment_id.raw)
        if packed is None:
            raise KeyError(segment_id)
        return self.decoded(packed)

    def decoded(self, packed: bytes) -> SegmentEntry:
        """The entry of a packed segment of this view."""
        dispute = self._disputes.get(Uuid(packed[:ID_BYTES])) if self._disputes else None
        return _with_dispute(_entry(packed, self._names), dispute)

    def __contains__(self, segment_id: object) -> bool:
        return isinstance(segment_id, Uuid) and self._segments.get(segment_id.raw) is not None

    def __iter__(self) -> Iterator[Uuid]:
        return (Uuid(packed[:ID_BYTES]) for packed in self._segments)

    def __len__(self) -> int:
        return self._segments.count

    def values(self) -> ValuesView[SegmentEntry]:
        return _Values(self)

    def items(self) -> ItemsView[Uuid, SegmentEntry]:
        return _Items(self)

    def each(self) -> Iterator[SegmentEntry]:
        """All entries, in the order of the ids."""
        for chunk in self._segments.chunks:
            entries = _entries(chunk, self._names)
            if not self._disputes:
                yield from entries
                continue
            for entry in entries:
                yield _with_dispute(entry, self._disputes.get(entry.metadata.segment_id.id))


class _Values(ValuesView[SegmentEntry]):
    _mapping: _Entries

    def __iter__(self) -> Iterator[SegmentEntry]:
        return self._mapping.each()


class _Items(ItemsView[Uuid, SegmentEntry]):
    _mapping: _Entries

    def __iter__(self) -> Iterator[tuple[Uuid, SegmentEntry]]:
        return ((entry.metadata.segment_id.id, entry) for entry in self._mapping.each())


class PartitionLedger:
    """Immutable view of one partition; answers are computed once per lineage and then kept."""

    def __init__(
        self,
        key: PartitionKey,
        *,
        names: Names,
        segments: Segments,
        disputes: Disputes,
        newest_epoch: int,
        version: int,
        deletion: PartitionDeleteRecord | None = None,
        later: tuple[LaterRecord, ...] = (),
        inherited: tuple[Cover, ...] = (),
    ) -> None:
        self.key = key
        self.newest_epoch = newest_epoch
        """Newest leader epoch seen in any record of the partition, -1 = none."""
        self.version = version
        """Changes with every record of the partition."""
        self.deletion = deletion
        """The newest record of the deletion of the whole partition."""
        self.later = later
        """Records that only a later version of this software understands."""
        self._names = names
        self._readable = Readable(segments=segments, disputes=disputes)
        self._entries = _Entries(self._readable, names)
        self._inherited = inherited
        self._covers: tuple[Cover, ...] = ()

    @classmethod
    def empty(cls, key: PartitionKey) -> "PartitionLedger":
        """That of a partition without any record; every step of an idle partition asks for it."""
        return _empty(key)

    @classmethod
    def of(
        cls, key: PartitionKey, state: PartitionState, previous: "PartitionLedger | None" = None
    ) -> "PartitionLedger":
        """Snapshot of what a reader knows now; what the `previous` one worked out is used again."""
        return cls(
            key,
            names=state.names,
            segments=state.segments.freeze(),
            disputes=state.all_disputes,
            newest_epoch=state.newest_epoch,
            version=state.version,
            deletion=state.deletion,
            later=tuple(state.later.values()),
            inherited=previous._worked_out() if previous else (),
        )

    @property
    def entries(self) -> Mapping[Uuid, SegmentEntry]:
        """Newest record of each segment, without tombstones."""
        return self._entries

    @property
    def disputes(self) -> Mapping[Uuid, Dispute]:
        """What this reader considers illegal (H3)."""
        return self._readable.disputes.by_segment

    def in_state(
        self, *states: RemoteLogSegmentState, up_to: int = MAX_OFFSET
    ) -> tuple[SegmentEntry, ...]:
        """Entries in any of the states that end at or below `up_to` (half-open), by start
        offset.
        """
        found = self._readable.segments.in_states(tuple(map(int, states)))
        if up_to < MAX_OFFSET:
            found = (one for one in found if extent_of(one).next_offset <= up_to)
        entries = map(self._entries.decoded, found)
        return tuple(sorted(entries, key=lambda one: (one.metadata.start_offset, one.offset)))

    def sorted_parts(self, *states: RemoteLogSegmentState) -> Iterator[SortedPart]:
        """The entries of `in_state` in parts of a few hundred, each sorted, for `in_order`: where
        there are very many, others may have their turn between two parts.
        """
        for part in self._readable.segments.parts_in_states(tuple(map(int, states))):
            yield sorted((extent_of(one).start_offset, offset_of(one), one) for one in part)

    def in_order(self, parts: Iterable[SortedPart]) -> Iterator[SegmentEntry]:
        """The entries of all parts in the order of `in_state`, each decoded when it is its turn."""
        return (self._entries.decoded(packed) for _, _, packed in merge(*parts))

    @cached_property
    def _summary(self) -> Summary:
        return self._readable.segments.summary()

    @cached_property
    def remote_lineage(self) -> Lineage:
        """The leader epochs that the FINISHED segments show; merge it with the leader's own
        before use.
        """
        return highest_wins(self._epoch_starts)

    def remote_lineage_up_to(self, epoch: int) -> Lineage:
        """The same, of this epoch and older ones only: no later epoch hides them."""
        return highest_wins(self._epoch_starts, epoch)

    @cached_property
    def _epoch_starts(self) -> Mapping[int, int]:
        """First offset of every epoch of which FINISHED segments know, also those that a zombie's
        record denies (H3).
        """
        starts = dict(self._summary.epoch_starts)
        for packed in self._readable.disputes.hidden.values():
            for epoch, start in epochs_of(packed):
                starts[epoch] = min(start, starts.get(epoch, start))
        return starts

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the partition is in the ledger but tombstones."""
        return not self.entries and self.deletion is None and not self.later

    @property
    def is_deleted(self) -> bool:
        """Whether the deletion of the whole partition is finished."""
        return self.deletion_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

    @property
    def deletion_state(self) -> RemotePartitionDeleteState | None:
        """How far the deletion of the whole partition has come; None = there is none."""
        deletion = self.deletion.metadata if self.deletion else None
        return None if deletion is None else deletion.state

    @property
    def deletion_problem(self) -> str | None:
        """Why nothing of the partition may be trimmed or deleted here: a process of another version
        deletes the whole partition, so copies that are there now may be gone a moment later.
        """
        if self.deletion is None:
            return self.later_problem
        return f"the deletion of the whole partition is recorded, at offset {self.deletion.offset}"

    @property
    def later_problem(self) -> str | None:
        """Why nothing of the partition may be trimmed or deleted by this version of the software,
        whoever else may: it does not understand everything that is recorded.
        """
        if not self.later:
            return None
        newest = max(self.later, key=lambda record: record.offset)
        return (
            f"a later version of this software has written a record ({newest.kind}) at offset "
            f"{newest.offset}; install that version here too"
        )

    @cached_property
    def finished_total(self) -> SegmentTotal:
        """Number and bytes of the segments whose newest record is FINISHED."""
        return SegmentTotal(
            segments=self._summary.finished, size_bytes=self._summary.finished_bytes
        )

    @property
    def deleting_segments(self) -> int:
        """Number of the segments whose newest record is DELETE_SEGMENT_STARTED."""
        return self._summary.counts[RemoteLogSegmentState.DELETE_SEGMENT_STARTED]

    @cached_property
    def readable_end(self) -> int:
        """Where the last FINISHED segment ends, in whatever lineage; 0 without any."""
        hidden = self._readable.disputes.hidden.values()
        return max(self._summary.finished_end, *(extent_of(one).next_offset for one in hidden), 0)

    def usable(
        self, lineage: Lineage, log_end_offset: int, remote_log_start_offset: int = 0
    ) -> tuple[UsableSegment, ...]:
        """FINISHED segments with records in the lineage at or above the remote start, by start
        offset.
        """
        return self._cover(lineage).usable(log_end_offset, remote_log_start_offset)

    def extents(
        self, lineage: Lineage, log_end_offset: int, remote_log_start_offset: int = 0
    ) -> tuple[UsableExtent, ...]:
        """The same segments, not decoded."""
        return tuple(self._cover(lineage).extents(log_end_offset, remote_log_start_offset))

    def extents_since(
        self,
        newest_ms: int,
        lineage: Lineage,
        log_end_offset: int,
        remote_log_start_offset: int = 0,
    ) -> Iterator[UsableExtent]:
        """The same in turn, without most of those whose newest record is older. The first question
        to a lineage looks at each segment once, later ones at what has changed since.
        """
        cover = self._cover(lineage)
        return cover.extents_since(newest_ms, log_end_offset, remote_log_start_offset)

    def covered(
        self, lineage: Lineage, log_end_offset: int, without: Container[Uuid] = ()
    ) -> Iterator[tuple[int, int]]:
        """Half-open ranges of the undisputed ones, but for some; they may touch and overlap."""
        return self._cover(lineage).ranges(log_end_offset, without)

    def is_within(self, lineage: Lineage) -> bool:
        """Whether every FINISHED segment has records of the lineage."""
        hidden = self._readable.disputes.hidden
        return not hidden and self._cover(lineage).count == self.finished_total.segments

    def contiguous_end(
        self,
        lineage: Lineage,
        log_end_offset: int,
        start: int,
        holes: Iterable[Hole] = (),
        *,
        without: Container[Uuid] = (),
    ) -> int:
        """Where the unbroken, undisputed cover that begins at `start` ends (half-open); `start`
        where there is none.

        Recorded holes count as covered: contiguity restarts behind them (H15). Segments `without`
        are left out, as those whose objects are gone (H11).
        """
        ranges = [(hole.start, hole.end) for hole in holes]
        return self._cover(lineage).contiguous_end(log_end_offset, start, ranges, without)

    def highest_end(
        self, lineage: Lineage, log_end_offset: int = MAX_OFFSET, *, disputed: bool = False
    ) -> int | None:
        """Half-open end of the highest undisputed in-lineage FINISHED segment, None without any.

        Without a log end this is the remote end that H4 compares with the broker's. `disputed`
        counts disputed ones too: how far there is something to read (H3).
        """
        cover = self._cover(lineage)
        if not cover.has_disputed and cover.reach and cover.reach <= log_end_offset:
            return cover.reach
        return cover.highest_end(log_end_offset, disputed=disputed)

    def usable_segment_for(
        self, lineage: Lineage, log_end_offset: int, offset: int
    ) -> UsableSegment | None:
        """The segment that holds the offset, or the first one after the hole it lies in; of several
        that hold it the one that reaches furthest. None: nothing from there on.
        """
        return self._cover(lineage).lookup(offset, log_end_offset)

    def _cover(self, lineage: Lineage) -> Cover:
        found = _of_lineage(self._covers, lineage)
        if found is None:
            before = _of_lineage(self._inherited, lineage)
            found = Cover.of(self._readable, lineage, self._names, before)
            self._covers = (found, *self._covers[: _COVERS_KEPT - 1])
        return found

    def _worked_out(self) -> tuple[Cover, ...]:
        """Covers for the next ledger to begin with."""
        older = (one for one in self._inherited if _of_lineage(self._covers, one.lineage) is None)
        return (*self._covers, *older)[:_COVERS_KEPT]


@lru_cache(maxsize=_EMPTY_KEPT)
def _empty(key: PartitionKey) -> PartitionLedger:
    return PartitionLedger(
        key,
        names=Names(),
        segments=NO_SEGMENTS,
        disputes=NO_DISPUTES,
        newest_epoch=-1,
        version=0,
    )


def _of_lineage(covers: Iterable[Cover], lineage: Lineage) -> Cover | None:
    return next((one for one in covers if one.lineage == lineage), None)
