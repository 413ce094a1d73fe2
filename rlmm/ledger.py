"""All segments of one user partition as one immutable view, with the queries that plans need. Pure.

Every answer about offsets holds within the leader's merged lineage only (H4): a segment whose epoch
ended earlier counts up to that end; a segment that ends at or beyond the log's end does not count
at all (then the partition is frozen). A disputed segment (H3) is still readable, by its lawful
state where the newest record is not FINISHED, but it never supports the trim bound. This module
must not know the store: the trim verifies that FINISHED objects really exist (H11).
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from kip405.ids import MAX_OFFSET, PartitionKey, Uuid
from kip405.lineage import Lineage, epoch_starts, highest_wins, usable_end
from kip405.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
)
from rlmm.records import LaterRecord, LedgerRecord, PartitionDeleteRecord
from rlmm.replay import Dispute, PartitionState

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_COVERS_KEPT = 2  # the leader's lineage, and that of a reader of the remote tier only


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
class UsableSegment:
    """A FINISHED segment, and the half-open end up to which it belongs to the leader's history."""

    metadata: RemoteLogSegmentMetadata
    next_offset: int
    disputed: bool


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


def _entry(record: LedgerRecord, disputed: str, before: SegmentEntry | None) -> SegmentEntry:
    """The record's entry; the one `before` where nothing has changed since."""
    if (
        before is not None
        and before.metadata is record.metadata
        and (before.offset, before.disputed) == (record.offset, disputed)
    ):
        return before
    if record.metadata is None:
        raise ValueError(f"the record at {record.offset} is a tombstone")
    return SegmentEntry(
        metadata=record.metadata,
        leader_epoch=record.headers.leader_epoch,
        writer=record.headers.writer,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        disputed=disputed,
    )


def entry_of(state: PartitionState, segment_id: Uuid) -> SegmentEntry | None:
    """One entry of the partition's ledger. A whole PartitionLedger costs time for every segment of
    the partition, so that publishes that looked into one would get slower with each segment.
    """
    record, dispute = state.record(segment_id), state.dispute(segment_id)
    return None if record is None else _entry(record, dispute.why if dispute else "", None)


class PartitionLedger:
    """Immutable view of one partition; answers are computed once per lineage and then kept."""

    def __init__(
        self,
        key: PartitionKey,
        *,
        entries: Mapping[Uuid, SegmentEntry],
        disputes: Mapping[Uuid, Dispute],
        newest_epoch: int,
        version: int,
        deletion: PartitionDeleteRecord | None = None,
        later: tuple[LaterRecord, ...] = (),
        inherited: "tuple[_Cover, ...]" = (),
    ) -> None:
        self.key = key
        self.entries = entries
        self.disputes = disputes
        self.newest_epoch = newest_epoch
        """Newest leader epoch seen in any record of the partition, -1 = none."""
        self.version = version
        """Changes with every record of the partition."""
        self.deletion = deletion
        """The newest record of the deletion of the whole partition."""
        self.later = later
        """Records that only a later version of this software understands."""
        self._inherited = inherited
        self._covers: tuple[_Cover, ...] = ()

    @classmethod
    def empty(cls, key: PartitionKey) -> "PartitionLedger":
        return cls(key, entries={}, disputes={}, newest_epoch=-1, version=0)

    @classmethod
    def of(
        cls, key: PartitionKey, state: PartitionState, previous: "PartitionLedger | None" = None
    ) -> "PartitionLedger":
        """Snapshot of what a reader knows now; what the `previous` one worked out is used again."""
        disputes, known = state.disputes, previous.entries if previous else {}
        entries = {
            segment: _entry(
                record, disputes[segment].why if segment in disputes else "", known.get(segment)
            )
            for segment, record in state.records.items()
        }
        return cls(
            key,
            entries=entries,
            disputes=disputes,
            newest_epoch=state.newest_epoch,
            version=state.version,
            deletion=state.deletion,
            later=tuple(state.later.values()),
            inherited=previous._worked_out() if previous else (),
        )

    def in_state(self, *states: RemoteLogSegmentState) -> tuple[SegmentEntry, ...]:
        """Entries in any of the states, by start offset."""
        found = [entry for entry in self.entries.values() if entry.state in states]
        return tuple(sorted(found, key=lambda entry: (entry.metadata.start_offset, entry.offset)))

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
        return epoch_starts(metadata for metadata, _ in self._readable)

    @property
    def _readable(self) -> tuple[tuple[RemoteLogSegmentMetadata, bool], ...]:
        """FINISHED segments, and whether each is disputed: a zombie's record hides no data (H3)."""
        newest = tuple(
            (entry.metadata, bool(entry.disputed))
            for entry in self.entries.values()
            if entry.state is _FINISHED
        )
        lawful = tuple(
            (dispute.lawful.metadata, True)
            for dispute in self.disputes.values()
            if dispute.newest.state is not _FINISHED
            and dispute.lawful is not None
            and dispute.lawful.metadata is not None
            and dispute.lawful.state is _FINISHED
        )
        return newest + lawful

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
        sizes = [
            entry.metadata.segment_size_bytes
            for entry in self.entries.values()
            if entry.state is _FINISHED
        ]
        return SegmentTotal(segments=len(sizes), size_bytes=sum(sizes))

    @cached_property
    def readable_end(self) -> int:
        """Where the last FINISHED segment ends, in whatever lineage; 0 without any."""
        return max((metadata.next_offset for metadata, _ in self._readable), default=0)

    def usable(
        self, lineage: Lineage, log_end_offset: int, remote_log_start_offset: int = 0
    ) -> tuple[UsableSegment, ...]:
        """FINISHED segments with records in the lineage at or above the remote start, by start
        offset.
        """
        return tuple(
            found
            for found in self._cover(lineage).segments
            if remote_log_start_offset < found.next_offset <= log_end_offset
        )

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
        pieces = [
            (found.metadata.start_offset, found.next_offset)
            for found in self.usable(lineage, log_end_offset, start)
            if not found.disputed and found.metadata.segment_id.id not in without
        ]
        pieces += [(hole.start, hole.end) for hole in holes]
        cursor = start
        for piece_start, piece_end in sorted(pieces):
            if piece_start > cursor:
                break
            cursor = max(cursor, piece_end)
        return cursor

    def highest_end(
        self, lineage: Lineage, log_end_offset: int = MAX_OFFSET, *, disputed: bool = False
    ) -> int | None:
        """Half-open end of the highest undisputed in-lineage FINISHED segment, None without any.

        Without a log end this is the remote end that H4 compares with the broker's. `disputed`
        counts disputed ones too: how far there is something to read (H3).
        """
        cover = self._cover(lineage)
        if not cover.has_disputed and cover.reach and cover.reach[-1] <= log_end_offset:
            return cover.reach[-1]
        ends = [
            found.next_offset
            for found in self.usable(lineage, log_end_offset)
            if disputed or not found.disputed
        ]
        return max(ends, default=None)

    def usable_segment_for(
        self, lineage: Lineage, log_end_offset: int, offset: int
    ) -> UsableSegment | None:
        """The segment that holds the offset, or the first one after the hole it lies in; of several
        that hold it the one that reaches furthest. None: nothing from there on.
        """
        return self._cover(lineage).lookup(offset, log_end_offset)

    def _cover(self, lineage: Lineage) -> "_Cover":
        found = _of_lineage(self._covers, lineage)
        if found is None:
            found = _Cover.of(self._readable, lineage, _of_lineage(self._inherited, lineage))
            self._covers = (found, *self._covers[: _COVERS_KEPT - 1])
        return found

    def _worked_out(self) -> "tuple[_Cover, ...]":
        """Covers for the next ledger to begin with."""
        older = (one for one in self._inherited if _of_lineage(self._covers, one.lineage) is None)
        return (*self._covers, *older)[:_COVERS_KEPT]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cover:
    """FINISHED segments of one lineage by start offset; `reach[i]` is the highest end of 0..i.

    What an earlier cover knows of a segment is found by the identity of its metadata.
    """

    lineage: Lineage
    segments: tuple[UsableSegment, ...]
    starts: tuple[int, ...]
    reach: tuple[int, ...]
    has_disputed: bool

    @classmethod
    def of(
        cls,
        readable: Iterable[tuple[RemoteLogSegmentMetadata, bool]],
        lineage: Lineage,
        before: "_Cover | None",
    ) -> "_Cover":
        """`before`: of the same lineage, under an earlier ledger."""
        known = {id(one.metadata): one for one in before.segments} if before else {}
        segments = []
        for metadata, disputed in readable:
            found = known.get(id(metadata))
            end = usable_end(metadata, lineage) if found is None else found.next_offset
            if end <= metadata.start_offset:
                continue
            if found is None or found.disputed != disputed:
                found = UsableSegment(metadata=metadata, next_offset=end, disputed=disputed)
            segments.append(found)
        segments.sort(
            key=lambda usable: (
                usable.metadata.start_offset,
                usable.next_offset,
                usable.metadata.segment_id.id,
            )
        )
        return cls(
            lineage=lineage,
            segments=tuple(segments),
            starts=tuple(usable.metadata.start_offset for usable in segments),
            reach=tuple(accumulate((usable.next_offset for usable in segments), max)),
            has_disputed=any(usable.disputed for usable in segments),
        )

    def lookup(self, offset: int, log_end_offset: int) -> UsableSegment | None:
        at = bisect_right(self.starts, offset)
        best = self._holding(offset, log_end_offset, at)
        if best is not None:
            return best
        after = (found for found in self.segments[at:] if found.next_offset <= log_end_offset)
        return next(after, None)

    def _holding(self, offset: int, log_end_offset: int, before: int) -> UsableSegment | None:
        best: UsableSegment | None = None
        for index in range(before - 1, -1, -1):
            if self.reach[index] <= offset:
                break
            found = self.segments[index]
            holds = offset < found.next_offset <= log_end_offset
            if holds and (best is None or _preference(found) > _preference(best)):
                best = found
        return best


def _of_lineage(covers: Iterable[_Cover], lineage: Lineage) -> _Cover | None:
    return next((one for one in covers if one.lineage == lineage), None)


def _preference(found: UsableSegment) -> tuple[bool, int]:
    """Undisputed first, then the one that reaches furthest."""
    return not found.disputed, found.next_offset
