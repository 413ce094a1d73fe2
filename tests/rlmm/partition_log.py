"""A ledger partition in memory that loses its end, is compacted, and is restored from a backup.

It is its own reader, and it answers for epochs as Kafka's leader does, or as one that was deposed
and still believes that it leads. Sources: LeaderEpochFileCache.endOffsetFor,
Partition.checkCurrentLeaderEpoch, Cleaner.shouldRetainRecord.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from aiokafka import structs
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from kip405.segments import RemoteLogSegmentState
from rlmm.leader_answers import NO_EPOCH, EpochEnd, EpochQuestion
from rlmm.log_reader import TailRecord
from rlmm.records import LedgerRecord
from tests.rlmm.builders import record, tail_record
from tests.rlmm.ledger_process import PARTITION

SEGMENTS = 9
_STATES = [*RemoteLogSegmentState, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """What the leader has. `whole` is `records` without any compaction; `epochs` are leader epochs
    and their start offsets.
    """

    records: tuple[tuple[LedgerRecord, int], ...] = ()
    """Each with the leader epoch of its batch."""
    whole: tuple[LedgerRecord, ...] = ()
    end: int = 0
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    cleaned_to: int = 0

    def end_of(self, question: EpochQuestion) -> EpochEnd | None:
        """What a broker with this log answers; None = nothing that counts."""
        newest = self.epochs[-1][0]
        asked = question.leader_epoch
        if question.current_leader_epoch > newest or asked > newest:
            return None
        if asked == newest:
            return EpochEnd(asked, self.end)
        next_start = next(start for epoch, start in self.epochs if epoch > asked)
        floor = [epoch for epoch, _ in self.epochs if epoch <= asked]
        return EpochEnd(floor[-1] if floor else asked, next_start)


class PartitionLog:
    """`deposed` answers instead of the leader, while it is there; `away`: nobody answers.

    `breaks`: a reader gets an error when another broker leads. A consumer of aiokafka gets none: it
    looks for the leader itself, and goes on at its position with whoever leads now.
    """

    def __init__(self, dice: random.Random, *, breaks: bool) -> None:
        self.now = _Contents()
        self.deposed: _Contents | None = None
        self.away = False
        self.losses: list[int] = []
        """Where the log was cut."""
        self.is_restored = False
        self.tombstones_gone: list[int] = []
        self._dice = dice
        self._backup: _Contents | None = None
        self._breaks, self._broken = breaks, False
        self._at = 0
        self._now_ms = 0
        self._fetched: list[tuple[int, int]] = []

    def append(self, count: int) -> None:
        """Any records; each has its own timestamp, so no two are the same."""
        for _ in range(count):
            self._now_ms += 1
            number, state = self._dice.randrange(SEGMENTS), self._dice.choice(_STATES)
            one = record(self.now.end, number, state, timestamp_ms=self._now_ms)
            self.now = replace(
                self.now,
                records=(*self.now.records, (one, self.now.epochs[-1][0])),
                whole=(*self.now.whole, one),
                end=self.now.end + 1,
            )

    def elect(self, lost: int) -> None:
        """Another leader, which lacks so many records at the end."""
        before = self.now
        kept = max(before.cleaned_to, before.end - lost)
        if kept < before.end:
            self.losses.append(kept)
        epochs = [one for one in before.epochs if one[1] < kept] or [(0, 0)]
        self.now = replace(
            before,
            records=tuple(one for one in before.records if one[0].offset < kept),
            whole=tuple(one for one in before.whole if one.offset < kept),
            end=kept,
            epochs=(*epochs, (before.epochs[-1][0] + 1, kept)),
        )
        self.deposed, self._broken = before, self._breaks

    def compact(self) -> None:
        """Of each key the newest record stays, below an offset; a tombstone until the cleaning
        after the one that left it alone. The last record is in the active segment.
        """
        if not self.now.records:
            return
        cut = self._dice.randint(0, self.now.records[-1][0].offset)
        newest = {one.key: one.offset for one, _ in self.now.records if one.offset < cut}
        kept = []
        for one, epoch in self.now.records:
            is_due = one.metadata is None and one.offset < self.now.cleaned_to
            if one.offset >= cut or (newest[one.key] == one.offset and not is_due):
                kept.append((one, epoch))
            elif is_due:
                self.tombstones_gone.append(one.offset)
        cleaned_to = max(self.now.cleaned_to, cut)
        self.now = replace(self.now, records=tuple(kept), cleaned_to=cleaned_to)

    def back_up(self) -> None:
        self._backup = self.now

    def restore(self) -> None:
        """The whole cluster, as it was: its next leader has an epoch that was used before."""
        if self._backup is None:
            return
        self.now, self._backup, self.deposed = self._backup, None, None
        self.is_restored = True
        epoch = self.now.epochs[-1][0] + 1
        self.now = replace(self.now, epochs=(*self.now.epochs, (epoch, self.now.end)))

    def has_lost(self, position: int, leader_epoch: int) -> bool:
        """Whether what was read up to the position, under this epoch, is not there any more."""
        end = self.now.end_of(EpochQuestion(leader_epoch, NO_EPOCH))
        return end is None or end.end_offset < position

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        if self.away:
            raise Unavailable("nobody answers")
        end = (self.deposed or self.now).end_of(questions[PARTITION])
        return {} if end is None else {PARTITION: end}

    async def start(self) -> None:
        self._fetched, self._broken = [], False

    async def stop(self) -> None: ...

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(topic_partitions, (0, self.now.end))

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._is_assigned = PARTITION in positions
        self._at = positions.get(PARTITION, 0)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        """A few records: a batch ends anywhere."""
        await asyncio.sleep(0)
        if self._broken:
            raise KafkaConnectionError("the leader has changed")
        if not self._is_assigned:
            return {}
        if self._at > self.now.end:
            raise OffsetOutOfRangeError({structs.TopicPartition(*PARTITION): self._at})
        found = [one for one in self.now.records if one[0].offset >= self._at]
        found = found[: self._dice.randint(1, 4)]
        self._at = found[-1][0].offset + 1 if found else self.now.end
        self._fetched += [(one.offset, epoch) for one, epoch in found]
        return {PARTITION: [tail_record(one) for one, _ in found]} if found else {}

    async def position(self, topic_partition: TopicPartition) -> int:
        return self._at

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        below = [epoch for offset, epoch in self._fetched if offset < position]
        return below[-1] if below else NO_EPOCH
