"""Leader-epoch lineage: which epoch wrote which offset, and which remote segments belong to it.

A trim re-bases the first entry of the broker's own file (H8). Only the merge of the epochs in the
remote segments with those that the leader still holds is the whole history, and every decision uses
this merge (H4). This module must not know where lineages are kept. Sources: LeaderEpochFileCache,
RemoteLogManager; G3 and H8 of docs/design.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState

MAX_EPOCH = 2**31 - 1
_epoch_of = attrgetter("epoch")
_start_of = attrgetter("start_offset")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Leader epochs with the first offset written under each; both strictly ascend."""

    entries: tuple[EpochEntry, ...] = ()

    def __post_init__(self) -> None:
        before: EpochEntry | None = None
        for entry in self.entries:
            if entry.epoch < 0 or entry.start_offset < 0:
                raise ValueError(f"epoch {entry.epoch} at offset {entry.start_offset} is negative")
            if before and not (
                before.epoch < entry.epoch and before.start_offset < entry.start_offset
            ):
                raise ValueError(f"lineage does not ascend: {_text(before)} then {_text(entry)}")
            before = entry

    @classmethod
    def of(cls, entries: Iterable[EpochEntry]) -> "Lineage":
        """Lineage of entries that may hold epochs without records (same start as the next one):
        those are dropped.

        ValueError where epochs or offsets descend. Source:
        RemoteLogManager.buildFilteredLeaderEpochMap.
        """
        kept: list[EpochEntry] = []
        for entry in entries:
            if (
                kept
                and kept[-1].epoch < entry.epoch
                and kept[-1].start_offset == entry.start_offset
            ):
                kept.pop()
            kept.append(entry)
        return cls(tuple(kept))

    @property
    def first(self) -> EpochEntry | None:
        return self.entries[0] if self.entries else None

    @property
    def latest_epoch(self) -> int | None:
        return self.entries[-1].epoch if self.entries else None

    def start_of(self, epoch: int) -> int | None:
        """First offset of exactly this epoch, None where the lineage does not have it."""
        at = bisect_left(self.entries, epoch, key=_epoch_of)
        if at < len(self.entries) and self.entries[at].epoch == epoch:
            return self.entries[at].start_offset
        return None

    def higher(self, epoch: int) -> EpochEntry | None:
        """The entry of the lowest epoch above `epoch`."""
        at = bisect_right(self.entries, epoch, key=_epoch_of)
        return self.entries[at] if at < len(self.entries) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """Epoch under which the offset was (or would be) written; None below the first entry."""
        at = bisect_right(self.entries, offset, key=_start_of)
        return self.entries[at - 1].epoch if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; None is Kafka's undefined (-1, -1).

        The greatest epoch at or below the one asked, and the start of the next higher one; the
        latest epoch ends at the log's end; an epoch older than all known ends where the first
        begins.
        Source: LeaderEpochFileCache.endOffsetFor.
        """
        if not self.entries or epoch < 0 or epoch > self.entries[-1].epoch:
            return None
        at = bisect_right(self.entries, epoch, key=_epoch_of)
        if at == len(self.entries):
            return epoch, log_end_offset
        floor = self.entries[at - 1].epoch if at else epoch
        return floor, self.entries[at].start_offset

    def clip(self, start: int, next_offset: int) -> tuple[EpochEntry, ...]:
        """Entries of the offsets [start, next_offset), the first moved up to `start`
        (segmentLeaderEpochs).
        """
        if not 0 <= start < next_offset:
            raise ValueError(f"offsets {start}..{next_offset} are no range")
        first = max(bisect_right(self.entries, start, key=_start_of) - 1, 0)
        last = bisect_left(self.entries, next_offset, key=_start_of)
        return tuple(
            EpochEntry(epoch=entry.epoch, start_offset=max(start, entry.start_offset))
            for entry in self.entries[first:last]
        )

    def from_start(self, log_start_offset: int) -> "Lineage":
        """What is left where records below the offset were deleted: its epoch begins there.

        Source: LeaderEpochFileCache.truncateFromStart.
        """
        gone = bisect_right(self.entries, log_start_offset, key=_start_of)
        if not gone:
            return self
        first = EpochEntry(epoch=self.entries[gone - 1].epoch, start_offset=log_start_offset)
        return Lineage((first, *self.entries[gone:]))

    def up_to(self, epoch: int) -> "Lineage":
        """The entries of this epoch and older ones."""
        return Lineage(self.entries[: bisect_right(self.entries, epoch, key=_epoch_of)])

    def below(self, next_offset: int) -> "Lineage":
        """The lineage as it was at `next_offset`: what is stored with a segment that ends there."""
        return Lineage(self.entries[: bisect_left(self.entries, next_offset, key=_start_of)])


def merge(remote: Lineage, local: Lineage) -> Lineage:
    """The whole history: the leader's own lineage, with remote's below and the true start of its
    first epoch.

    The leader's entries are the truth for all it still holds; only its first may have been re-based
    by a trim, so there a lower remote start wins. Remote entries of older epochs that begin below
    it are kept. Every other remote entry diverged (unclean election, emptied disk) and is dropped.
    Without any local entry remote is all we know.
    """
    if not local.entries:
        return remote
    first = local.entries[0]
    remote_start = remote.start_of(first.epoch)
    if remote_start is not None and remote_start < first.start_offset:
        first = EpochEntry(epoch=first.epoch, start_offset=remote_start)
    older = tuple(
        entry
        for entry in remote.entries
        if entry.epoch < first.epoch and entry.start_offset < first.start_offset
    )
    if not older and first is local.entries[0]:
        return local  # remote adds nothing, as of a partition of one epoch
    return Lineage((*older, first, *local.entries[1:]))


def remote_lineage(segments: Iterable[RemoteLogSegmentMetadata]) -> Lineage:
    """Lineage of the FINISHED segments alone; see `epoch_starts` and `highest_wins`."""
    return highest_wins(epoch_starts(segments))


def epoch_starts(segments: Iterable[RemoteLogSegmentMetadata]) -> dict[int, int]:
    """First offset of every epoch of which FINISHED segments know, whatever history it is of.

    A segment's first entry is clipped to its base, so the lowest start of an epoch is the best
    known one.
    """
    starts: dict[int, int] = {}
    for segment in segments:
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            for entry in segment.segment_leader_epochs:
                starts[entry.epoch] = min(
                    entry.start_offset, starts.get(entry.epoch, entry.start_offset)
                )
    return starts


def highest_wins(starts: Mapping[int, int], newest_epoch: int = MAX_EPOCH) -> Lineage:
    """Lineage of epochs with their starts; where two histories conflict the higher epoch wins.

    `newest_epoch`: later ones are left out, so that none that is dead hides older ones.
    """
    kept: list[EpochEntry] = []
    for epoch in sorted((one for one in starts if one <= newest_epoch), reverse=True):
        if not kept or starts[epoch] < kept[-1].start_offset:
            kept.append(EpochEntry(epoch=epoch, start_offset=starts[epoch]))
    return Lineage(tuple(reversed(kept)))


def usable_end(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> int:
    """Where the segment leaves the leader's history (H4): [start_offset, usable_end) is in it.

    next_offset where nothing diverges, start_offset where nothing is usable. The log's end is the
    caller's to check.
    """
    own = Lineage.of(segment.segment_leader_epochs)
    end = _shared_end(segment, own, lineage)
    conflict = _divergence(segment, own, lineage)
    return end if conflict is None else min(end, max(conflict, segment.start_offset))


def _shared_end(segment: RemoteLogSegmentMetadata, own: Lineage, lineage: Lineage) -> int:
    """Where the segment's epochs and starts stop being the lineage's, from the first shared one."""
    end = segment.start_offset
    for index, entry in enumerate(_shared_epochs(own, lineage)):
        start = lineage.start_of(entry.epoch)
        begins_alike = _may_begin(entry, lineage) if index == 0 else start == entry.start_offset
        if start is None or not begins_alike:
            return end
        own_next, lineage_next = own.higher(entry.epoch), lineage.higher(entry.epoch)
        own_end = own_next.start_offset if own_next else segment.next_offset
        if lineage_next and lineage_next.start_offset < own_end:
            return max(lineage_next.start_offset, segment.start_offset)
        end = own_end
    return end


def _shared_epochs(own: Lineage, lineage: Lineage) -> tuple[EpochEntry, ...]:
    """The segment's epochs from the lineage's first one on."""
    first = lineage.first
    if first is None:
        return ()
    return tuple(entry for entry in own.entries if entry.epoch >= first.epoch)


def _may_begin(entry: EpochEntry, lineage: Lineage) -> bool:
    """The segment's first shared epoch starts within the lineage's; anywhere if that is the
    lineage's first.
    """
    first, start = lineage.first, lineage.start_of(entry.epoch)
    return start is not None and (
        entry.start_offset >= start or entry.epoch == (first and first.epoch)
    )


def divergence(segment: RemoteLogSegmentMetadata, lineage: Lineage) -> int | None:
    """Offset at or below the segment's end where the lineage has a higher epoch than the segment;
    else None.

    The only proof that a segment is unreferenced (H8): an epoch that is merely absent proves
    nothing, so a segment may leave the lineage (`usable_end`) without divergence, and then must
    not be deleted.
    """
    return _divergence(segment, Lineage.of(segment.segment_leader_epochs), lineage)


def _divergence(segment: RemoteLogSegmentMetadata, own: Lineage, lineage: Lineage) -> int | None:
    for entry in lineage.entries:
        if entry.start_offset > segment.end_offset:
            return None
        epoch = own.epoch_for_offset(max(entry.start_offset, segment.start_offset))
        if epoch is not None and entry.epoch > epoch:
            return entry.start_offset
    return None


def _text(entry: EpochEntry) -> str:
    return f"epoch {entry.epoch} at offset {entry.start_offset}"
