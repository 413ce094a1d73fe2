"""Reads the metadata topics continuously, every partition from the beginning.

One reader works at a time: a consumer whose partitions are assigned by hand, without a group. A
failure ends the reader, never the tail: after a back-off a new reader continues at the offset after
the last delivered record, unless the partition has lost records that were read (`leader_answers`
says when that is certain). The leaders are asked for this at every connection (so after every
OFFSET_OUT_OF_RANGE too), when the epoch of new records changes, and whenever `verify` is called. A
partition that lost records is not followed any further: this process's state of it is not what the
partition holds.

A partition may be read on from where an earlier process stopped, as long as that is proven
(`resuming`); where it is not, or not any more, it is read from its beginning. This module must not
know what records mean.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NoReturn

import structlog
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from kip405.acls import topic_acl
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.clients import error_text
from rlmm.leader_answers import NO_EPOCH, AskEpochEnds, ReadPosition, ReadPositions
from rlmm.log_reader import Reader, TailRecord
from rlmm.resuming import Dropped, RecordMark, ResumePoint, Resuming, has_gap, mark_of
from rlmm.waiting import OffsetWaiters

_POLL_MS = 250
_BACKOFF_MS = (100, 250, 500, 1_000, 2_000)
log = structlog.get_logger(__name__)


def _mark(record: TailRecord) -> RecordMark:
    return mark_of(record.offset, record.timestamp_ms, record.key, record.value, record.headers)


class _FollowedChanged(Exception):
    """A partition is no longer followed, or from another position on."""


class Tail:
    """`deliver` is called for each record, synchronously, in the order of its partition;
    `start_over` says that the partition is delivered from its beginning, what came before is to be
    forgotten.

    `remembered`: how far an earlier process of this service had read. `now_ms`: a clock that is
    never set.
    """

    def __init__(
        self,
        *,
        connect: Callable[[], Reader],
        topic_partitions: Iterable[TopicPartition],
        deliver: Callable[[TailRecord], None],
        start_over: Callable[[TopicPartition], None],
        epoch_ends: AskEpochEnds,
        now_ms: Callable[[], int],
        sleep_ms: Callable[[int], Awaitable[None]],
        remembered: Mapping[TopicPartition, ReadPosition],
    ) -> None:
        self._connect = connect
        self._topic_partitions = tuple(topic_partitions)
        self._deliver = deliver
        self._epoch_ends = epoch_ends
        self._start_over = start_over
        self._now_ms = now_ms
        self._sleep_ms = sleep_ms
        self._remembered = remembered
        self._read_positions = ReadPositions(remembered)
        self._next: dict[TopicPartition, int] = {}
        self._begin: dict[TopicPartition, int] = {}
        self._initial_end: dict[TopicPartition, int] = {}
        self._replay_began_ms = 0
        self.replay_ms = 0
        """How long the initial replay took that came to its end."""
        self._resuming = Resuming({}, lambda *_: None)
        self._refuted: set[TopicPartition] = set()
        self._is_continued = False
        self._last: dict[TopicPartition, RecordMark] = {}
        self._gapped: set[TopicPartition] = set()
        self._waiters: OffsetWaiters[TopicPartition] = OffsetWaiters()
        self._caught_up = asyncio.Event()
        self._lost = asyncio.Event()
        self._unverified = asyncio.Event()
        self._failures = 0
        self._out_of_range = False

    @property
    def lost(self) -> Mapping[TopicPartition, str]:
        """Partitions of which records are gone that were read, or were to be read, and why that is
        known. What was made of them is not what is there, for as long as this process lives.
        """
        return self._read_positions.lost

    @property
    def lost_before(self) -> Mapping[TopicPartition, str]:
        """Partitions that no longer hold what an earlier process of this service had read. What
        this one reads is what is there.
        """
        return self._read_positions.lost_before

    def doubt(self, topic_partitions: Iterable[TopicPartition] | None = None) -> str | None:
        """Why it is not known whether the partitions (all) still hold what was read."""
        return self._read_positions.doubt(
            self._topic_partitions if topic_partitions is None else topic_partitions
        )

    @property
    def read_positions(self) -> dict[TopicPartition, ReadPosition]:
        """What of every partition is worth remembering across restarts."""
        return self._read_positions.worth_remembering()

    def forget(self, topic: str) -> None:
        """Before `run`: an earlier process has read another topic of this name."""
        kept = {one: read for one, read in self._remembered.items() if one.topic != topic}
        self._read_positions = ReadPositions(kept)

    def resume(
        self,
        points: Mapping[TopicPartition, ResumePoint],
        dropped: Callable[[TopicPartition, str], None],
    ) -> None:
        """Before `run`: read these partitions on from there. `dropped` is called for each one that
        must be read from its beginning, with the reason.
        """

        def drop(topic_partition: TopicPartition, what: Dropped) -> None:
            self.remember(topic_partition, what.point)
            if what.is_lost:
                self._read_positions.lose_before(topic_partition, what.why)
            self._forget(topic_partition)
            dropped(topic_partition, what.why)

        self._resuming = Resuming(points, drop)

    def remember(self, topic_partition: TopicPartition, point: ResumePoint) -> None:
        """An earlier process has read so far, and nothing is read on from there."""
        read = ReadPosition(position=point.position, leader_epoch=point.leader_epoch)
        self._read_positions.remember(topic_partition, read)

    def resume_point(self, topic_partition: TopicPartition) -> ResumePoint | None:
        """Where a later process may read on; None where there is no record, where this process may
        have missed one, or where no leader has confirmed the end of an epoch yet that it has read:
        the point names the newest epoch only.
        """
        position = self.position(topic_partition)
        read = self._read_positions.newest(topic_partition)
        last = self._last.get(topic_partition)
        if self._read_positions.has_unproven(topic_partition):
            return None
        is_whole = self._caught_up.is_set() and topic_partition not in self._gapped
        if not is_whole or topic_partition in self.lost or read is None:
            return None
        if read.position != position or last is None:
            return None
        return ResumePoint(
            log_start=self._begin[topic_partition],
            position=position,
            leader_epoch=read.leader_epoch,
            last=last,
        )

    async def wait_caught_up(self) -> None:
        """Return once everything that was there at the start was read."""
        await self._caught_up.wait()

    async def wait_lost(self) -> None:
        """Return once something is lost."""
        await self._lost.wait()

    def position(self, topic_partition: TopicPartition) -> int:
        """Next offset to be read; 0 before the start."""
        return self._next.get(topic_partition, 0)

    async def wait_passed(self, topic_partition: TopicPartition, end: int) -> None:
        """Return once every record below `end` was delivered."""
        if self.position(topic_partition) < end:
            await self._waiters.wait(topic_partition, end)

    async def verify(self, topic_partitions: Iterable[TopicPartition] | None = None) -> None:
        """Ask the leaders of the partitions (all) whether they still hold what was read.

        Their answers show in `lost` and `doubt`. Unavailable where no broker answers at all.
        """
        pending = self._topic_partitions if topic_partitions is None else tuple(topic_partitions)
        while asked := {one: read for one in pending if (read := self._question(one))}:
            answers = await self._epoch_ends(
                {one: self._read_positions.epoch_question(one, read) for one, read in asked.items()}
            )
            pending = tuple(
                one
                for one, read in asked.items()
                if self._read_positions.take_answer(
                    one, read, answers.get(one), read_to=self.position(one)
                )
            )
        self._say_lost()

    def _question(self, topic_partition: TopicPartition) -> ReadPosition | None:
        """What the leader is to confirm next. For what an earlier process has read it is asked only
        once this process has read as far: before, the newest epoch may not be known yet, without
        which a deposed leader would confirm it.
        """
        read = self._read_positions.question(topic_partition)
        is_early = read is not None and read.remembered and not self._is_replayed(topic_partition)
        return None if is_early else read

    def _is_replayed(self, topic_partition: TopicPartition) -> bool:
        """Everything was read that was there at the start."""
        end = self._initial_end.get(topic_partition)
        is_seen = self._resuming.last_unseen(topic_partition) is None
        return end is not None and is_seen and self._next.get(topic_partition, 0) >= end

    async def run_verifier(self) -> NoReturn:
        """Verify whenever the tail has seen a reason to, until cancelled. Apart from `run`, so that
        a leader that hangs holds up no other partition's records.
        """
        while True:
            await self._unverified.wait()
            self._unverified.clear()
            try:
                await self.verify()
            except Unavailable as error:  # the next call of `verify` settles it
                log.warning("tail_not_verified", error=str(error))

    def _say_lost(self) -> None:
        lost = {**self._read_positions.lost_before, **self._read_positions.lost}
        if lost and not self._lost.is_set():
            self._lost.set()
            for topic_partition, why in lost.items():
                log.error("metadata_lost", **topic_partition._asdict(), why=why)

    async def run(self) -> NoReturn:
        """Follow the log until cancelled."""
        while True:
            try:
                await self._follow()
            except _FollowedChanged:
                continue
            except OffsetOutOfRangeError as error:
                self._out_of_range = True
                await self._fail("tail_out_of_range", error)
            except (KafkaError, OSError, TimeoutError) as error:
                await self._fail("tail_restarts", error)

    async def _fail(self, event: str, error: BaseException) -> None:
        delay = _BACKOFF_MS[min(self._failures, len(_BACKOFF_MS) - 1)]
        self._failures += 1
        topics = sorted({topic_partition.topic for topic_partition in self._topic_partitions})
        needs = [topic_acl("Read", topic) for topic in topics]
        log.warning(event, error=error_text(error, *needs), retry_in_ms=delay)
        await self._sleep_ms(delay)

    def _followed(self) -> tuple[TopicPartition, ...]:
        return tuple(
            topic_partition
            for topic_partition in self._topic_partitions
            if topic_partition not in self._read_positions.lost
        )

    async def _follow(self) -> NoReturn:
        reader = self._connect()
        try:
            await reader.start()
            self._unverified.set()
            self._begin_again()
            await self._take_bounds(reader)
            followed = self._followed()
            reader.assign(
                {topic_partition: self._read_from(topic_partition) for topic_partition in followed}
            )
            self._check_caught_up()
            while True:
                await self._poll(reader)
                is_caught_up = self._caught_up.is_set()
                if is_caught_up:
                    self._failures = 0
                if followed != self._followed() or (self.lost and not is_caught_up):
                    raise _FollowedChanged
        finally:
            await reader.stop()

    def _read_from(self, topic_partition: TopicPartition) -> int:
        """The offset after the last delivered record; or the last one of an earlier process."""
        last = self._resuming.last_unseen(topic_partition)
        return self._next[topic_partition] if last is None else last.offset

    def _begin_again(self) -> None:
        """The initial replay is read over one connection: what came over a former one may be
        another leader's history, and records may have been compacted away meanwhile. Partitions
        that are read on from a point are read on: the epoch and a gap tell. A point of which the
        last record did not come is asked for again: a deposed leader may have confirmed it.
        """
        is_continued, self._is_continued = self._is_continued, False
        if self._caught_up.is_set() or (is_continued and not self.lost):
            return
        for topic_partition, why in tuple(self.lost.items()):
            self._resuming.give_up(topic_partition, why)
        for topic_partition in self._resuming.ask_again():
            self._next.pop(topic_partition, None)
        begun = [one for one in self._next if not self._resuming.is_read_on(one)]
        for topic_partition in begun:
            self._forget(topic_partition)
        if begun:
            log.warning("replay_begins_again", partitions=len(begun))
        self._refuted.clear()
        self._initial_end = {}

    def _forget(self, topic_partition: TopicPartition) -> None:
        """The partition is read from its beginning."""
        self._next.pop(topic_partition, None)
        self._last.pop(topic_partition, None)
        self._gapped.discard(topic_partition)
        self._read_positions.start_over(topic_partition)
        self._start_over(topic_partition)

    async def _take_bounds(self, reader: Reader) -> None:
        if self._initial_end and not self._out_of_range:
            return
        if not self._initial_end:
            self._replay_began_ms = self._now_ms()
        bounds = await reader.bounds(self._topic_partitions)
        if not self._initial_end:
            self._begin = {topic_partition: begin for topic_partition, (begin, _) in bounds.items()}
            await self._resume()
        for topic_partition, (begin, _) in bounds.items():
            position = self._next.setdefault(topic_partition, begin)
            if begin > position:
                self._read_positions.lost[topic_partition] = (
                    f"records {position}..{begin} of {topic_partition} were removed before being "
                    "read"
                )
        if not self._initial_end:
            self._initial_end = {
                topic_partition: end for topic_partition, (_, end) in bounds.items()
            }
        self._out_of_range = False
        self._say_lost()

    async def _resume(self) -> None:
        """Take those positions of which the leaders confirm that they are still there."""
        asked = self._resuming.questions(self._read_positions.newest_epoch)
        try:
            answers = await self._epoch_ends(asked) if asked else {}
        except Unavailable as error:
            log.warning("tail_not_verified", error=str(error))
            answers = {}
        for topic_partition, point in self._resuming.take_answers(self._begin, answers).items():
            self._next[topic_partition] = point.position
            self._last[topic_partition] = point.last
            read = ReadPosition(position=point.position, leader_epoch=point.leader_epoch)
            self._read_positions.advance(topic_partition, read, is_replay=True)

    def _is_refuted(self, topic_partition: TopicPartition, offsets: Sequence[int]) -> bool:
        """Before records are delivered: whether the partition must be read from its beginning
        instead. An offset that is missing may have been a tombstone's.
        """
        position = self._next[topic_partition]
        if self._resuming.is_refuted(topic_partition, position, offsets):
            self._refuted.add(topic_partition)
            return True
        if has_gap(position, offsets, since=self._initial_end[topic_partition]):
            self._gapped.add(topic_partition)
        return False

    async def _poll(self, reader: Reader) -> None:
        batches = await reader.read(_POLL_MS)
        for topic_partition, records in batches.items():
            self._take(reader, topic_partition, records)
        for topic_partition in self._behind():
            position = await reader.position(topic_partition)
            self._take_position(reader, topic_partition, position)
        if not batches and not self._caught_up.is_set():
            await self._refuse_short_logs(reader)
        for topic_partition in self._waiters.partitions:
            self._waiters.wake(topic_partition, self.position(topic_partition))
        self._check_caught_up()

    async def _refuse_short_logs(self, reader: Reader) -> None:
        """Nothing came: a log may have lost its end since the replay began. Where it ends below
        what is to be read of it, nothing would ever come, and no error tells.
        """
        behind = self._behind()
        try:
            bounds = await reader.bounds(behind) if behind else {}
        except KafkaError:
            return  # a partition without a leader: what the others have is read meanwhile
        for topic_partition, (_, end) in bounds.items():
            last = self._resuming.last_unseen(topic_partition)
            needed = max(self._initial_end[topic_partition], last.offset + 1 if last else 0)
            if end < needed:
                raise OffsetOutOfRangeError({topic_partition: needed})

    def _take(
        self, reader: Reader, topic_partition: TopicPartition, records: Sequence[TailRecord]
    ) -> None:
        """Deliver what comes next; what an earlier process has read is only compared."""
        if topic_partition in self._refuted:
            return
        position = self._next[topic_partition]
        known = list(takewhile(lambda record: record.offset < position, records))
        if self._is_another(topic_partition, known[0] if known else None):
            return
        new = records[len(known) :]
        if self._is_refuted(topic_partition, [record.offset for record in new]):
            return
        for record in new:
            self._deliver(record)
            self._next[topic_partition] = record.offset + 1
        if new:
            self._last[topic_partition] = _mark(new[-1])
        self._advance(reader, topic_partition)

    def _take_position(
        self, reader: Reader, topic_partition: TopicPartition, position: int
    ) -> None:
        """The reader asks for this next: there is no record from the last one up to it."""
        last = self._resuming.last_unseen(topic_partition)
        if last is not None:
            if position > last.offset:
                self._is_another(topic_partition, None)
            return
        is_ahead = position > self._next[topic_partition]
        if is_ahead and self._is_refuted(topic_partition, [position]):
            return
        self._next[topic_partition] = max(self._next[topic_partition], position)
        self._advance(reader, topic_partition)

    def _is_another(self, topic_partition: TopicPartition, first: TailRecord | None) -> bool:
        """Whether the partition must be read from its beginning, because the last record that an
        earlier process has read does not come first.
        """
        if self._resuming.last_unseen(topic_partition) is None:
            return False
        if not self._resuming.is_another(topic_partition, _mark(first) if first else None):
            return False
        self._refuted.add(topic_partition)
        self._say_lost()
        return True

    def _advance(self, reader: Reader, topic_partition: TopicPartition) -> None:
        """Remember how far the partition is read; another epoch is a reason to verify. A reader
        goes on at its position with whoever leads now: one that has written other records below it
        is told from its predecessor by the epoch alone.
        """
        position = self._next[topic_partition]
        epoch = reader.epoch_before(topic_partition, position)
        if epoch == NO_EPOCH:
            return
        is_replay = position <= self._initial_end[topic_partition]
        read_position = ReadPosition(position=position, leader_epoch=epoch)
        self._read_positions.advance(topic_partition, read_position, is_replay=is_replay)
        if self._read_positions.has_unproven(topic_partition):
            self._unverified.set()

    def _behind(self) -> list[TopicPartition]:
        """Partitions that a caller waits for: the last records of a compacted log may be gone, and
        only the position shows it.
        """
        if self._caught_up.is_set():
            waited_for = self._waiters.partitions
            return [one for one in self._followed() if one in waited_for]
        return [
            topic_partition
            for topic_partition in self._followed()
            if topic_partition not in self._refuted and not self._is_replayed(topic_partition)
        ]

    def _check_caught_up(self) -> None:
        """Partitions that were refuted are read from their beginnings together, over another
        connection, once all others are at their ends.
        """
        if self._caught_up.is_set() or not all(
            one in self._refuted or self._is_replayed(one) for one in self._topic_partitions
        ):
            return
        if self._refuted:
            self._next |= {one: self._begin[one] for one in self._refuted}
            self._refuted.clear()
            self._is_continued = True
            raise _FollowedChanged
        self._resuming.end()
        self.replay_ms = self._now_ms() - self._replay_began_ms
        self._caught_up.set()
        self._unverified.set()
