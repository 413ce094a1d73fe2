"""The segments that are held open: what a bounded retention may delete before it is copied (H14).

What the broker deletes is copied from the open files, with the log and the lineage of the snapshot
in which it still was: the broker has cut its epoch file meanwhile. A hold is of one leader epoch.
Under the next one the partition's log may have been cut, so nothing of it may be copied (H4, H13).
rlm.log_dir.held_segments opens the files; rlm.tasks.bounded_retention decides which, and when they
are let go.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog

from kip405.ids import PartitionKey
from rlm.log_dir.held_segments import HeldFiles, SegmentFiles
from rlm.log_dir.scanner import LocalSegment
from rlm.remote_log.snapshots import PartitionSnapshot
from rsm_plugins.threads import Threads

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hold:
    """What one snapshot showed; the paths in its log are those of the held files."""

    snapshot: PartitionSnapshot
    files: tuple[HeldFiles, ...]

    @property
    def whole(self) -> tuple[LocalSegment, ...]:
        return tuple(one.segment for one in self.files if one.is_whole)


class SegmentHolds:
    """The held segments of the partitions that we lead."""

    def __init__(self, files: SegmentFiles, threads: Threads) -> None:
        self._files = files
        self._threads = threads
        self._holds: dict[PartitionKey, tuple[_Hold, ...]] = {}
        self._dropped: deque[HeldFiles] = deque()

    @property
    def keys(self) -> Collection[PartitionKey]:
        """The partitions of which something is held."""
        return self._holds.keys()

    @property
    def count(self) -> int:
        return sum(len(hold.whole) for holds in self._holds.values() for hold in holds)

    @property
    def room(self) -> int:
        """How many more segments may be held."""
        return max(0, self._files.most_segments - self.count)

    def bases(self, key: PartitionKey) -> frozenset[int]:
        """Base offsets of the held segments of a partition."""
        return frozenset(one.base_offset for hold in self._holds.get(key, ()) for one in hold.whole)

    async def hold(self, snapshot: PartitionSnapshot, bases: Collection[int]) -> int:
        """Open the closed segments of the snapshot with these base offsets, which are not held
        yet; how many of them could be opened.
        """
        if not self._are_of_its_epoch(snapshot):
            return 0
        segments = tuple(one for one in snapshot.log.segments if one.base_offset >= min(bases))
        opened = await self._threads.run(self._files.open, segments, frozenset(bases))
        if not any(one.is_whole for one in opened):
            self._dropped += opened
            return 0
        held_log = replace(snapshot.log, segments=tuple(one.segment for one in opened))
        hold = _Hold(snapshot=replace(snapshot, log=held_log), files=opened)
        self._holds[snapshot.key] = (*self._holds.get(snapshot.key, ()), hold)
        return len(hold.whole)

    def missing(self, snapshot: PartitionSnapshot) -> tuple[LocalSegment, ...]:
        """The held segments below the broker's log, which it has deleted, oldest first. It raises
        its log start first: of what lies below, the files may still be seen.
        """
        if not self._are_of_its_epoch(snapshot):
            return ()
        first = min((one.base_offset for one in snapshot.log.segments), default=0)
        start = snapshot.watermarks.log_start_offset
        found = [one for hold in self._holds.get(snapshot.key, ()) for one in hold.whole]
        missing = (one for one in found if one.base_offset < first or _ends_below(one, start))
        return tuple(sorted(missing, key=lambda one: one.base_offset))

    def source(self, snapshot: PartitionSnapshot, segment: LocalSegment) -> PartitionSnapshot:
        """The snapshot from which a segment is copied: that of its hold, if it is held."""
        for hold in self._holds.get(snapshot.key, ()):
            if any(one is segment for one in hold.whole):
                return replace(snapshot, log=hold.snapshot.log, lineage=hold.snapshot.lineage)
        return snapshot

    def drop(self, key: PartitionKey, bases: Collection[int]) -> None:
        """These need not be held any more. Their transaction indexes stay while earlier segments
        are held, whose lists of aborted transactions need them (H9).
        """
        left = []
        for hold in self._holds.pop(key, ()):
            kept = []
            for one in hold.files:
                if one.is_whole and one.segment.base_offset in bases:
                    files, rest = one.divided()
                    self._dropped.append(files)
                    kept.append(rest)
                else:
                    kept.append(one)
            hold = replace(hold, files=tuple(kept))
            if hold.whole:
                left.append(hold)
            else:
                self._dropped += hold.files
        if left:
            self._holds[key] = tuple(left)

    def forget(self, key: PartitionKey) -> None:
        """Nothing of the partition may be copied from open files any more."""
        holds = self._holds.pop(key, ())
        self._dropped += [one for hold in holds for one in hold.files]
        if holds:
            log.warning(
                "held_segments_let_go",
                partition=str(holds[0].snapshot.led.topic_id_partition),
                leader_epoch=holds[0].snapshot.led.leader_epoch,
                segments=sum(len(hold.whole) for hold in holds),
            )

    async def close_dropped(self) -> None:
        """Close the files of what was dropped. The file system frees the blocks of a deleted file
        then, which may take long. The oldest first: a copy that still reads does not notice that
        the aborted transactions of later segments are gone, but that its own file is (H9).
        """
        while self._dropped:
            await self._threads.run(self._dropped.popleft().close)

    def _are_of_its_epoch(self, snapshot: PartitionSnapshot) -> bool:
        """False: what is held is of a later leadership. What is of an earlier one is forgotten: the
        log may have been cut since (H4, H13).
        """
        epoch = snapshot.led.leader_epoch
        epochs = {hold.snapshot.led.leader_epoch for hold in self._holds.get(snapshot.key, ())}
        if any(one < epoch for one in epochs):
            self.forget(snapshot.key)
        return all(one <= epoch for one in epochs)


def _ends_below(segment: LocalSegment, offset: int) -> bool:
    return segment.next_offset is not None and segment.next_offset <= offset
