"""The segments of one partition by leader epoch, with the visibility that Kafka gives each state.

Source: RemoteLogMetadataCache and RemoteLogLeaderEpochState of Kafka 4.3. Whether a segment is
found depends on its state:

| question | COPY_STARTED | COPY_FINISHED | DELETE_STARTED | DELETE_FINISHED |
|---|---|---|---|---|
| segment of an epoch and offset, next segment with aborted transactions | no | yes | no | no |
| list, list of an epoch, size of an epoch | yes | yes | yes | no |
| highest offset of an epoch | no | yes | if it was copied | if it was copied |

Of FINISHED segments that overlap within an epoch, the one that finished later replaces those that
start at or above its start, unless one reaches further. What Kafka remembers of deleted segments is
lost here with their tombstones: the answers are a function of the newest record of each key, so
that compaction cannot change them (H3). So a segment is found again when the one that replaced it
is deleted, and the highest offset of an epoch goes back when the tombstone of its last segment is
written. Pure. This module must not know which epochs belong to the leader's history: the caller
asks for an epoch of its lineage.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_DELETIONS = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, _DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSegment:
    """A segment's state, and the ledger offset of the record that gave it this state."""

    metadata: RemoteLogSegmentMetadata
    offset: int


class LeaderEpochs:
    """Answers questions about one partition; offsets are inclusive ends where Kafka's are."""

    def __init__(self, segments: Iterable[SeenSegment]) -> None:
        self._segments = tuple(sorted(segments, key=lambda seen: seen.offset))

    @cached_property
    def segments(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Every segment that is not deleted, by start offset."""
        listed = (one.metadata for one in self._segments if one.metadata.state is not _DELETED)
        return tuple(sorted(listed, key=lambda metadata: metadata.start_offset))

    def of_epoch(self, leader_epoch: int) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Likewise those with records of the epoch."""
        return tuple(one for one in self.segments if _end_of(one, leader_epoch) is not None)

    def segment(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The FINISHED segment that has the offset under this epoch."""
        state = self._states.get(leader_epoch)
        found = None if state is None else state.floor(offset)
        if found is None:
            return None
        end = _end_of(found, leader_epoch)
        return found if end is not None and offset <= end else None

    def next_segment_with_txn_index(
        self, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The first segment from this offset on that has aborted transactions, as long as one
        segment of the epoch follows the other without a gap.
        """
        found = self.segment(leader_epoch, offset)
        while found is not None and found.txn_index_empty:
            found = self.segment(leader_epoch, found.next_offset)
        return found

    def highest_offset(self, leader_epoch: int) -> int | None:
        """Last offset of the epoch in any segment that was copied, deleted ones included."""
        ends = (
            _end_of(seen.metadata, leader_epoch)
            for seen in self._segments
            if _was_copied(seen.metadata)
        )
        return max((end for end in ends if end is not None), default=None)

    @cached_property
    def _states(self) -> "dict[int, _EpochState]":
        states: dict[int, _EpochState] = {}
        for seen in self._segments:
            if seen.metadata.state is _FINISHED:
                for epoch, start, end in _epoch_ranges(seen.metadata):
                    states.setdefault(epoch, _EpochState()).finish(start, end, seen.metadata)
        return states


class _EpochState:
    """The referenced segments of one epoch by start offset (RemoteLogLeaderEpochState)."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._segments: list[RemoteLogSegmentMetadata] = []
        self._highest = -1

    def finish(self, start: int, end: int, metadata: RemoteLogSegmentMetadata) -> None:
        while self._starts and self._starts[-1] >= start and self._highest <= end:
            self._starts.pop()
            self._segments.pop()
        at = bisect_right(self._starts, start)
        if at and self._starts[at - 1] == start:
            self._segments[at - 1] = metadata
        else:
            self._starts.insert(at, start)
            self._segments.insert(at, metadata)
        self._highest = max(self._highest, end)

    def floor(self, offset: int) -> RemoteLogSegmentMetadata | None:
        at = bisect_right(self._starts, offset)
        return self._segments[at - 1] if at else None


def _epoch_ranges(metadata: RemoteLogSegmentMetadata) -> Iterator[tuple[int, int, int]]:
    """Epoch, first and last offset of each epoch of the segment."""
    entries = metadata.segment_leader_epochs
    ends = (*(entry.start_offset - 1 for entry in entries[1:]), metadata.end_offset)
    for entry, end in zip(entries, ends, strict=True):
        yield entry.epoch, entry.start_offset, end


def _end_of(metadata: RemoteLogSegmentMetadata, leader_epoch: int) -> int | None:
    """Last offset of the epoch in the segment; None where the segment has no such epoch."""
    for epoch, _, end in _epoch_ranges(metadata):
        if epoch == leader_epoch:
            return end
    return None


def _was_copied(metadata: RemoteLogSegmentMetadata) -> bool:
    """Whether the segment was ever FINISHED: from then on it has the size of its indexes."""
    if metadata.state not in _DELETIONS:
        return metadata.state is _FINISHED
    try:
        return metadata.custom().indexes_size_bytes > 0
    except ValueError:
        return False
