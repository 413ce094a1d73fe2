"""Decides whether a partition can be read on from where an earlier process stopped. Pure.

What an earlier process made of a partition up to `position` is what this one would make of it, if
both of these hold. No clock has a part in it (H16).

- **Everything below the position is what was read** (H6, H42): the log starts where it did, the
  leader says that the epoch of the last batch that was read goes on to the position or beyond it,
  and the last record that was read is still at its offset. Epochs alone would not do: a cluster
  that is restored from a backup writes other records under the numbers that were used before.
- **Everything above it is there.** Compaction takes away a record where a newer one of its key
  follows, which does no harm, and tombstones some time after them. Who misses a tombstone takes a
  deleted segment for one that is there, for ever. Every record has an offset and only compaction
  takes offsets away, so a range that was read without a gap misses none. At the first gap, also one
  between the last record and the end of the log, the partition is read again from its beginning,
  where compaction has also taken the records that such a tombstone was about.

For the same reason only a process that saw no gap since its own replay leaves anything behind. This
module must not know what the records mean.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kip405.crc import crc32c
from kip405.ids import TopicPartition
from rlmm.leader_answers import NO_EPOCH, EpochEnd, EpochQuestion

Headers = Sequence[tuple[str, bytes]]
_LENGTH = struct.Struct(">i")


class RecordMark(NamedTuple):
    """What tells a record from another one at its offset; `crc` is of key, value and headers."""

    offset: int
    timestamp_ms: int
    crc: int


def mark_of(
    offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> RecordMark:
    """The mark of a record as Kafka delivers it."""
    crc = 0
    for part in (key, value, *(one for name, text in headers for one in (name.encode(), text))):
        crc = crc32c(_LENGTH.pack(-1 if part is None else len(part)) + (part or b""), crc)
    return RecordMark(offset, timestamp_ms, crc)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Everything in [log_start, position) was read, the last batch under `leader_epoch`; `last` is
    the last record of it.
    """

    log_start: int
    position: int
    leader_epoch: int
    last: RecordMark

    def refusal(self, log_start: int, answer: EpochEnd | None) -> str | None:
        """Why the log may not be the one that was read, given where it starts now and the leader's
        answer to a question for the epoch; None = it is.
        """
        if self.leader_epoch == NO_EPOCH:
            return "the epoch of what was read is not known"
        if log_start != self.log_start:
            return f"the log starts at {log_start}, not at {self.log_start}"
        if answer is None:
            return f"no leader confirms epoch {self.leader_epoch} up to {self.position}"
        if answer.leader_epoch != self.leader_epoch:
            return f"epoch {self.leader_epoch} is not there any more"
        if answer.end_offset < self.position:
            return (
                f"epoch {self.leader_epoch} was read up to {self.position}, "
                f"ends at {answer.end_offset}"
            )
        return None


def has_gap(expected: int, offsets: Sequence[int], since: int = 0) -> bool:
    """Whether ascending offsets, which follow `expected` (the offset after the last one before
    them), leave out any at or above `since`.
    """
    if not offsets or offsets[-1] + 1 - expected == len(offsets):
        return False
    seen = sum(1 for one in offsets if one >= since)
    return max(offsets[-1] + 1, since) - max(expected, since) != seen


class Dropped(NamedTuple):
    """A point that is not read on from. `is_lost`: what was read is certainly not there any more;
    otherwise nobody knows.
    """

    point: ResumePoint
    why: str
    is_lost: bool = False


class Resuming:
    """Partitions that are read on from a point, from the first question until the initial replay is
    over. `drop` is called for each one that must be read from its beginning.
    """

    def __init__(
        self,
        points: Mapping[TopicPartition, ResumePoint],
        drop: Callable[[TopicPartition, Dropped], None],
    ) -> None:
        self._pending = dict(points)
        self._trusted: dict[TopicPartition, ResumePoint] = {}
        self._unseen: set[TopicPartition] = set()
        """Of which the last record was not read again yet."""
        self._drop = drop

    def questions(
        self, newest_epoch: Callable[[TopicPartition], int]
    ) -> dict[TopicPartition, EpochQuestion]:
        """Of which epochs the leaders must say where they end; `newest_epoch` is known of a
        partition besides.
        """
        return {
            partition: EpochQuestion(
                point.leader_epoch, max(point.leader_epoch, newest_epoch(partition))
            )
            for partition, point in self._pending.items()
            if point.leader_epoch != NO_EPOCH
        }

    def take_answers(
        self, log_starts: Mapping[TopicPartition, int], answers: Mapping[TopicPartition, EpochEnd]
    ) -> dict[TopicPartition, ResumePoint]:
        """The partitions that are read on from their points."""
        pending, self._pending = self._pending, {}
        taken: dict[TopicPartition, ResumePoint] = {}
        for partition, point in pending.items():
            why = point.refusal(log_starts[partition], answers.get(partition))
            if why is None:
                taken[partition] = point
            else:
                self._drop(partition, Dropped(point, why))
        self._trusted |= taken
        self._unseen |= taken.keys()
        return taken

    def ask_again(self) -> set[TopicPartition]:
        """The partitions of which the last record was not seen yet: the leaders must be asked for
        their points once more.
        """
        again, self._unseen = self._unseen, set()
        self._pending |= {one: self._trusted.pop(one) for one in again}
        return again

    def give_up(self, partition: TopicPartition, why: str) -> None:
        """The partition is not read on any more, where it was."""
        point = self._trusted.pop(partition, None)
        self._unseen.discard(partition)
        if point is not None:
            self._drop(partition, Dropped(point, why))

    def is_read_on(self, partition: TopicPartition) -> bool:
        """Whether the partition is read on from its point, and the initial replay is not over."""
        return partition in self._trusted

    def last_unseen(self, partition: TopicPartition) -> RecordMark | None:
        """The record from which the partition must be read, because it was not seen yet that it is
        still there.
        """
        return self._trusted[partition].last if partition in self._unseen else None

    def is_another(self, partition: TopicPartition, first: RecordMark | None) -> bool:
        """Whether the partition is not read on any more, because the first record that comes, of
        those below the point (None = there is none), is not the last one that was read.
        """
        last = self.last_unseen(partition)
        self._unseen.discard(partition)
        if last is None or first == last:
            return False
        is_lost = first is not None and first.offset == last.offset
        why = "is another one now" if is_lost else "was compacted away"
        point = self._trusted.pop(partition)
        self._drop(partition, Dropped(point, f"the record at {last.offset} {why}", is_lost))
        return True

    def is_refuted(self, partition: TopicPartition, position: int, offsets: Sequence[int]) -> bool:
        """Whether records are missing between the position and the last of these offsets, which
        come next. Then the partition is not read on any more.
        """
        if partition not in self._trusted or not has_gap(position, offsets):
            return False
        point = self._trusted.pop(partition)
        why = f"records from {position} on were compacted away"
        self._drop(partition, Dropped(point, why))
        return True

    def end(self) -> None:
        """The initial replay is over: a gap is no reason to start over any more."""
        self._trusted.clear()
        self._unseen.clear()
