"""Decides what the answers of leaders and replicas prove about records and ends. Pure.

**Whether a partition's leader still has the records that were read from it (H42).** A reader that
goes only by offsets does not notice when a log loses its end and then grows past the reader's
position. So the reader keeps the leader epoch of the last batch that it read, and asks the leader
where that epoch ends (OffsetForLeaderEpoch). For a reader that has read up to `position` under
`leader_epoch`, the answers prove this:

- **The epoch ends below the position: records are certainly lost.** The log of the answering broker
  parted from what was read, and only a leader answers. A leader that merely lags cannot give this
  answer: what was read was below the high watermark, a clean election keeps it, and the answer
  comes from the log and its epochs, not from the high watermark.
- **The leader has no such epoch, but newer ones: records are lost.** Other records have replaced
  them. (A replica that was created after compaction had removed every record of the epoch gives the
  same answer. A reader that follows the log is never so far behind; for what an earlier process
  remembered, or a replay had read, this answer is not held against the leader.)
- **The leader knows only older epochs: nothing is proven.** It was deposed before the last batch
  was written and has not noticed. The same holds for a partition for which no broker answers. The
  doubt remains until a leader answers: meanwhile nothing may be deleted or trimmed, and no barrier
  is passed. It must not answer for an epoch that it knows either: its log goes on to where it was
  deposed, so it would confirm what the next leader never had. So each question names the newest
  epoch that was read (current_leader_epoch), and Kafka refuses it where the broker has not heard of
  that epoch (UNKNOWN_LEADER_EPOCH). A broker that has heard of a newer one refuses too
  (FENCED_LEADER_EPOCH), but nothing speaks against its answer, and it is asked again without.
- **The epoch ends at or above the position: nothing is lost.** By the rules of the log (one leader
  writes an epoch, epochs ascend) everything below is the same too.

An end offset (ListOffsets) below the position proves nothing by itself: it may come from a deposed
leader. It is a reason to ask for the epoch at once.

**Whether an end offset comes from the leader or from a deposed leader (H17).** A leader that was
paused answers with its old high watermark before it learns of the election; a leader that is cut
off from the controller does so for as long as that lasts. A request with an epoch does not help:
no client knows the newer epoch yet. But a record counts as written once it is in as many replicas
as min.insync.replicas. So at least one of any (replicas - min.insync.replicas + 1) replicas has it,
and knows the epoch it was written under: it got the record from a leader of that epoch. If so many
replicas, the leader among them, were asked after the question arose and none knows a newer epoch
than the leader's, then everything written before is below the leader's end. With one replica, or
where all replicas must have a record, the leader alone is enough.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kip405.errors import Unavailable
from kip405.ids import TopicPartition

NO_EPOCH = -1
# Base offset, size of the batch after its first 12 bytes, leader epoch.
_HEAD = struct.Struct(">qii")
_PREFIX_BYTES = 12


class EpochQuestion(NamedTuple):
    """Where does `leader_epoch` end? Nobody is to answer who has not heard of
    `current_leader_epoch`, the newest epoch that is known.
    """

    leader_epoch: int
    current_leader_epoch: int


class EpochEnd(NamedTuple):
    """A leader's answer: its epoch at or below the requested one, and where that epoch ends."""

    leader_epoch: int
    end_offset: int


AskEpochEnds = Callable[
    [Mapping[TopicPartition, EpochQuestion]], Awaitable[dict[TopicPartition, EpochEnd]]
]
"""Where leaders end these epochs, of those that know; Unavailable where no broker answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPosition:
    """Everything below `position` was read, the last batch of it under `leader_epoch`.

    `remembered`: an earlier process of this service read it. `replayed`: it was read in a replay,
    far behind the leader, who may have no record of the epoch left.
    """

    position: int
    leader_epoch: int
    remembered: bool = False
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedReads:
    """What a process leaves to the next one: how far it has read, and whether records were lost.

    `lost_topics`: which topics lost them; empty with a loss = an older version did not write it.
    """

    read_positions: Mapping[TopicPartition, ReadPosition]
    lost: str | None
    lost_topics: frozenset[str] = frozenset()


NOTHING_READ = RememberedReads(read_positions={}, lost=None)


class FetchedEpochs:
    """Where leader epochs begin in what one consumer has fetched, from the headers of the
    batches.
    """

    def __init__(self) -> None:
        self._began: dict[TopicPartition, list[tuple[int, int]]] = {}

    def note(self, partition: TopicPartition, batches: bytes) -> None:
        """Take in the batches of one answer; the last one may be cut short."""
        began = self._began.setdefault(partition, [])
        position = 0
        while len(batches) - position >= _HEAD.size:
            base_offset, length, leader_epoch = _HEAD.unpack_from(batches, position)
            if not began or began[-1][1] != leader_epoch:
                began.append((base_offset, leader_epoch))
            if length <= 0:
                return
            position += _PREFIX_BYTES + length

    def before(self, partition: TopicPartition, position: int) -> int:
        """Epoch of the last batch that begins below `position`, NO_EPOCH where none was fetched.

        What lies before that batch is forgotten: a consumer goes ahead only.
        """
        began = self._began.get(partition, [])
        while len(began) > 1 and began[1][0] < position:
            began.pop(0)
        return began[0][1] if began and began[0][0] < position else NO_EPOCH


class ReadPositions:
    """How far every partition was read, and which part of it leaders have yet to confirm."""

    def __init__(self, remembered: Mapping[TopicPartition, ReadPosition]) -> None:
        self._newest: dict[TopicPartition, ReadPosition] = {}
        self._unproven = {partition: [read] for partition, read in remembered.items()}
        self._doubts: dict[TopicPartition, str] = {}
        self.lost: dict[TopicPartition, str] = {}
        """Partitions that no longer hold what was read of them, and how that is known."""
        self.lost_before: dict[TopicPartition, str] = {}
        """Likewise what an earlier process had read: what is there now was read from the start."""

    def advance(self, partition: TopicPartition, read: ReadPosition, *, is_replay: bool) -> None:
        """More was read. Where another epoch began, a leader has to confirm the end of the former:
        in a replay too, of which another leader may have answered one part than the next. What is
        read by one answer is one leader's history, whatever epochs it has.
        """
        before = self._newest.get(partition)
        if before is not None and before.leader_epoch != read.leader_epoch:
            unproven = replace(before, replayed=is_replay)
            self._unproven.setdefault(partition, []).append(unproven)
        self._newest[partition] = read

    def remember(self, partition: TopicPartition, read: ReadPosition) -> None:
        """An earlier process has read so far. What is known already, or says more of the same
        epoch, is not asked for twice.
        """
        before = self._unproven.get(partition, [])
        same = [one for one in before if one.leader_epoch == read.leader_epoch and one.remembered]
        if read.leader_epoch == NO_EPOCH or any(one.position >= read.position for one in same):
            return
        others = [one for one in before if one not in same]
        self._unproven[partition] = [*others, replace(read, remembered=True)]

    def lose_before(self, partition: TopicPartition, why: str) -> None:
        """What an earlier process had read is certainly not there any more."""
        self.lost_before.setdefault(partition, f"{partition} has lost records: {why}")

    def start_over(self, partition: TopicPartition) -> None:
        """The partition is read from its beginning. What was read of it is as what an earlier
        process has read: where the leader no longer has it, records are lost.
        """
        newest = self._newest.pop(partition, None)
        reads = [*self._unproven.pop(partition, ()), *([newest] if newest else [])]
        for read in reads:
            self.remember(partition, read)
        if partition in self.lost:
            self.lost_before[partition] = self.lost.pop(partition)

    def has_unproven(self, partition: TopicPartition) -> bool:
        """Whether another epoch began, and no leader has confirmed the end of the former yet."""
        return bool(self._unproven.get(partition))

    def question(self, partition: TopicPartition) -> ReadPosition | None:
        """What the leader is to confirm next; None where nothing is known that could be asked."""
        read = next(iter(self._unproven.get(partition, ())), None) or self._newest.get(partition)
        return None if read is None or read.leader_epoch == NO_EPOCH else read

    def newest_epoch(self, partition: TopicPartition) -> int:
        """The newest epoch under which anything was read, by an earlier process too."""
        newest = self._newest.get(partition)
        read = [*self._unproven.get(partition, ()), *([newest] if newest else [])]
        return max((one.leader_epoch for one in read), default=NO_EPOCH)

    def epoch_question(self, partition: TopicPartition, read: ReadPosition) -> EpochQuestion:
        """What a leader is asked to confirm this."""
        return EpochQuestion(read.leader_epoch, self.newest_epoch(partition))

    def take_answer(
        self,
        partition: TopicPartition,
        read: ReadPosition,
        answer: EpochEnd | None,
        *,
        read_to: int,
    ) -> bool:
        """Take in an answer to `read` (None = there was none); whether more is to be asked. This
        process has read everything below `read_to`. What an earlier one has read beyond that is
        not confirmed: the log that is read may be shorter than that of the leader that answers,
        which is deposed then, or has not told yet that all replicas have the rest.
        """
        if answer is None or NO_EPOCH in answer:
            self._doubts[partition] = (
                f"no leader of {partition} confirms what was read: epoch {read.leader_epoch} up to "
                f"{read.position}"
            )
            return False
        self._doubts.pop(partition, None)
        why = _why_lost(read, answer)
        if why is not None:
            lost = self.lost_before if read.remembered else self.lost
            lost.setdefault(partition, f"{partition} has lost records that were read: {why}")
        unproven = self._unproven.get(partition, [])
        if read not in unproven or (why is None and read_to < read.position):
            return False
        unproven.remove(read)
        if not unproven:
            del self._unproven[partition]
        return why is None or read.remembered

    def doubt(self, partitions: Iterable[TopicPartition]) -> str | None:
        """Why it is not known whether these partitions still hold what was read of them."""
        if not (self._doubts or self._unproven):
            return None  # nearly always, and asked several times for each partition of a leader
        for partition in partitions:
            if partition in self._doubts:
                return self._doubts[partition]
            for read in self._unproven.get(partition, ()):
                if read.remembered:
                    return (
                        f"{partition}: an earlier process has read epoch {read.leader_epoch} up to "
                        f"{read.position}, which is not confirmed yet"
                    )
                return f"{partition}: epoch {read.leader_epoch} is over, its end not confirmed yet"
        return None

    def newest(self, partition: TopicPartition) -> ReadPosition | None:
        """How far the partition was read, None where its epoch is not known."""
        read = self._newest.get(partition)
        return None if read is None or read.leader_epoch == NO_EPOCH else read

    def worth_remembering(self) -> dict[TopicPartition, ReadPosition]:
        """What the next process is to ask for: how far every partition was read, or the end of an
        epoch that is not confirmed yet, of which a newer position says nothing.
        """
        read = {partition: self.newest(partition) for partition in self._newest}
        unproven = {partition: reads[0] for partition, reads in self._unproven.items() if reads}
        found = {**read, **unproven}
        return {partition: one for partition, one in found.items() if one is not None}


def _why_lost(read: ReadPosition, answer: EpochEnd) -> str | None:
    if answer.end_offset < read.position:
        return f"epoch {read.leader_epoch} was read up to {read.position}, ends at {answer[1]}"
    is_far_behind = read.remembered or read.replayed
    if answer.leader_epoch < read.leader_epoch and not is_far_behind:
        return f"epoch {read.leader_epoch} was read up to {read.position}, is not there any more"
    return None


class LogEnd(NamedTuple):
    """The end of a partition on one broker (the leader's high watermark, another replica's log
    end), and the leader epoch that this broker knows.
    """

    end_offset: int
    leader_epoch: int


class ReplicaVotes:
    """The answers, as they arrive, to one question for the end of a partition."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        leader: int,
        replicas: frozenset[int],
        min_insync_replicas: int,
    ) -> None:
        self._topic_partition = partition
        self._leader = leader
        self._others_needed = max(0, len(replicas) - max(1, min_insync_replicas))
        self._others = replicas - {leader}
        self._epochs: dict[int, int] = {}
        self._end: LogEnd | None = None
        self._silent: dict[int, str] = {}

    @property
    def others(self) -> frozenset[int]:
        """Whom to ask beside the leader."""
        return self._others if self._others_needed else frozenset()

    def take(self, node: int, answer: LogEnd) -> None:
        """What a replica answered."""
        if node == self._leader:
            self._end = answer
        else:
            self._epochs[node] = answer.leader_epoch

    def refuse(self, node: int, why: str) -> None:
        """A replica gave no answer."""
        self._silent[node] = why

    @property
    def has_end(self) -> bool:
        """The leader has answered."""
        return self._end is not None

    @property
    def is_decided(self) -> bool:
        """Nothing that may still come can change the result for the better."""
        if self._leader in self._silent:
            return True
        has_enough = len(self._epochs) >= self._others_needed
        is_all = len(self._epochs) + len(self._silent.keys() & self._others) == len(self._others)
        return self._end is not None and (has_enough or is_all)

    def end(self) -> int:
        """The end offset behind everything that was written before the question; Unavailable where
        it is not known.
        """
        what = f"end offset of {self._topic_partition}"
        if self._end is None:
            raise Unavailable(f"{what}: {self._silent.get(self._leader, 'no leader')}")
        newer = [node for node, epoch in self._epochs.items() if epoch > self._end.leader_epoch]
        if newer:
            raise Unavailable(f"{what}: broker {newer[0]} knows a newer leader than {self._leader}")
        if len(self._epochs) < self._others_needed:
            silent = "; ".join(f"broker {node}: {why}" for node, why in self._silent.items())
            raise Unavailable(f"{what}: too few replicas confirm the leader's epoch ({silent})")
        return self._end.end_offset
