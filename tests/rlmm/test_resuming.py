"""What is read on from where an earlier process stopped, and what is read from its beginning."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.leader_answers import NO_EPOCH, EpochEnd, EpochQuestion
from rlmm.log_reader import TailRecord
from rlmm.replay import LedgerState
from rlmm.resuming import RecordMark, ResumePoint, has_gap, mark_of
from tests.rlmm.builders import FINISHED, KEY, STARTED, mark, point, record, tail_record, uuid
from tests.rlmm.histories import Log, compact, fold, histories, tombstones
from tests.rlmm.ledger_process import NUMBER, PARTITION, Process

EPOCH = 3


@pytest.mark.parametrize(
    ("read", "log_start", "answer", "why"),
    [
        ((0, 10, 3), 0, EpochEnd(3, 10), None),
        ((0, 10, 3), 0, EpochEnd(3, 11), None),
        ((0, 10, 3), 0, EpochEnd(3, 9), "ends at 9"),
        ((0, 10, 3), 0, EpochEnd(2, 50), "epoch 3 is not there any more"),
        ((0, 10, 3), 0, None, "no leader confirms epoch 3 up to 10"),
        ((0, 10, 3), 4, EpochEnd(3, 10), "the log starts at 4, not at 0"),
        ((4, 10, 3), 0, EpochEnd(3, 10), "the log starts at 0, not at 4"),
        ((0, 10, NO_EPOCH), 0, EpochEnd(NO_EPOCH, 10), "the epoch of what was read is not known"),
    ],
)
def test_h42_a_point_stands_only_in_the_log_that_was_read(
    read: tuple[int, int, int], log_start: int, answer: EpochEnd | None, why: str | None
) -> None:
    begin, position, epoch = read
    last = RecordMark(position - 1, 0, 0)
    made = ResumePoint(log_start=begin, position=position, leader_epoch=epoch, last=last)
    refusal = made.refusal(log_start, answer)
    assert (refusal is None) == (why is None)
    assert (why or "") in (refusal or "")


@given(
    offsets=st.sets(st.integers(0, 30)).map(sorted),
    before=st.integers(0, 30),
    since=st.integers(0, 40),
)
def test_a_gap_is_an_offset_that_is_left_out(offsets: list[int], before: int, since: int) -> None:
    expected = max(0, offsets[0] - before) if offsets else before
    end = offsets[-1] if offsets else expected
    missing = set(range(expected, end)) - set(offsets)
    assert has_gap(expected, offsets) == bool(missing)
    assert has_gap(expected, offsets, since=since) == any(one >= since for one in missing)


def test_h42_records_that_differ_in_any_part_have_different_marks() -> None:
    parts: list[tuple[Any, ...]] = [
        (1, 5, b"k", b"v", (("h", b"x"),)),
        (2, 5, b"k", b"v", (("h", b"x"),)),
        (1, 6, b"k", b"v", (("h", b"x"),)),
        (1, 5, b"kv", b"", (("h", b"x"),)),
        (1, 5, b"k", b"w", (("h", b"x"),)),
        (1, 5, b"k", b"", (("h", b"x"),)),
        (1, 5, b"k", None, (("h", b"x"),)),
        (1, 5, None, b"v", (("h", b"x"),)),
        (1, 5, b"k", b"v", (("h", b"y"),)),
        (1, 5, b"k", b"v", (("g", b"x"),)),
        (1, 5, b"k", b"v", (("hx", b""),)),
        (1, 5, b"k", b"v", ()),
    ]
    marks = [mark_of(*one) for one in parts]
    assert len({*marks}) == len(parts)
    assert mark_of(*parts[0]) == marks[0]


class LedgerLog:
    """One ledger partition as its leader has it: what compaction has left, and where it ends."""

    def __init__(self, records: Log, end: int) -> None:
        self.records = records
        self.end = end
        self.begin = 0
        self.epochs: dict[TopicPartition, EpochEnd] = {PARTITION: EpochEnd(EPOCH, end)}
        self.is_away = False
        self.at = 0
        self.starts: list[int] = []

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        if self.is_away:
            raise Unavailable("no broker answers")
        return {one: self.epochs[one] for one in questions if one in self.epochs}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(topic_partitions, (self.begin, self.end))

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.at = positions[PARTITION]
        self.starts.append(self.at)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        """Three records at most: a batch ends anywhere."""
        await asyncio.sleep(0)
        found = [tail_record(one) for one in self.records if one.offset >= self.at][:3]
        self.at = found[-1].offset + 1 if found else self.end
        return {PARTITION: found} if found else {}

    async def position(self, topic_partition: TopicPartition) -> int:
        return self.at

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        return EPOCH if position else NO_EPOCH


async def left_by(log: Log, position: int) -> tuple[ResumePoint, LedgerState]:
    """What a process leaves that has read up to the position."""
    seen = tuple(one for one in log if one.offset < position)
    async with Process(LedgerLog(seen, position)).running() as former:
        left, ledger = former.tail.resume_point(PARTITION), former.manager.freeze(NUMBER)
        assert ledger is not None
        assert left == point(position, EPOCH, mark(tail_record(seen[-1])))
        return left, LedgerState.of(ledger)


async def resumed(log: Log, position: int, now: LedgerLog) -> Process[LedgerLog]:
    process = Process(now)
    process.resume(*await left_by(log, position))
    async with process.running():
        return process


ATTEMPT = (
    record(0, 1, STARTED),
    record(1, 1, FINISHED, previous=0),
    record(2, 2, STARTED),
    record(3, 1, None, previous=1),
    record(4, 3, STARTED),
)


async def test_a_process_that_resumes_reads_only_what_is_new() -> None:
    process = await resumed(ATTEMPT, 3, LedgerLog(ATTEMPT, 5))
    assert (process.began, process.delivered, process.log.starts) == ([], 2, [2])
    assert process.state() == fold(ATTEMPT)
    nothing_new = await resumed(ATTEMPT, 5, LedgerLog(ATTEMPT, 5))
    assert (nothing_new.began, nothing_new.delivered) == ([], 0)
    assert nothing_new.state() == fold(ATTEMPT)
    again = nothing_new.tail.resume_point(PARTITION)
    assert again == point(5, EPOCH, mark(tail_record(ATTEMPT[4])))


@pytest.mark.parametrize("end", [4, 5])
async def test_h03_a_tombstone_that_was_compacted_away_revives_no_segment(end: int) -> None:
    """In the middle of what is new, and as the last record, where no other follows it."""
    history = ATTEMPT[:end]
    left = LedgerLog(compact(history, end), end)
    process = await resumed(history, 3, left)
    assert process.began == ["records from 3 on were compacted away"]
    assert process.log.starts == [2, 0]
    assert process.state() == fold(history)
    assert uuid(1) not in process.state()[KEY]


@given(log=histories, data=st.data())
def test_h03_whatever_was_compacted_since_the_state_is_that_of_the_log(
    log: Log, data: st.DataObject
) -> None:
    position = data.draw(st.integers(min(1, len(log)), len(log)))
    before = compact(log, data.draw(st.integers(0, position)))
    if not any(one.offset < position for one in before):
        return
    cut = data.draw(st.integers(0, len(log)))
    kept = data.draw(st.frozensets(st.sampled_from(sorted(tombstones(log)) or [0])))
    now = LedgerLog(compact(log, cut, kept), len(log))
    assert asyncio.run(resumed(before, position, now)).state() == fold(log)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"epochs": {PARTITION: EpochEnd(EPOCH, 2)}}, "epoch 3 was read up to 3, ends at 2"),
        ({"epochs": {PARTITION: EpochEnd(1, 9)}}, "epoch 3 is not there any more"),
        ({"epochs": {}}, "no leader confirms epoch 3 up to 3"),
        ({"is_away": True}, "no leader confirms epoch 3 up to 3"),
        ({"begin": 1}, "the log starts at 1, not at 0"),
    ],
)
async def test_h42_a_log_that_is_not_the_one_that_was_read_is_read_from_its_beginning(
    change: dict[str, Any], why: str
) -> None:
    """The end was lost and other records took its place, or nobody can say that it was not."""
    others = (ATTEMPT[0], record(1, 8, STARTED), record(2, 9, STARTED))
    now = LedgerLog(others, 3)
    for name, value in change.items():
        setattr(now, name, value)
    process = Process(now)
    process.resume(*await left_by(ATTEMPT, 3))
    async with process.running():
        assert process.began == [why]
        assert process.log.starts == [now.begin]
        assert process.state() == fold(others[now.begin :])


async def test_h42_what_was_read_on_from_is_asked_for_as_if_it_had_been_read() -> None:
    process = Process(LedgerLog(ATTEMPT, 5))
    process.resume(*await left_by(ATTEMPT, 5))
    async with process.running():
        await process.tail.verify()
        assert not process.tail.lost
        process.log.epochs[PARTITION] = EpochEnd(EPOCH, 4)
        await process.tail.verify()
        assert list(process.tail.lost) == [PARTITION]
        assert process.tail.resume_point(PARTITION) is None


@pytest.mark.parametrize("was_known", [True, False])
def test_h03_a_restored_ledger_knows_no_more_than_the_former_did(was_known: bool) -> None:
    """Who does not know whether a key ever had a record takes a FINISHED out of nowhere for good,
    and the end of a replay that read nothing of the past teaches nobody.
    """
    former = LedgerState()
    former.apply(record(0, 1, STARTED))
    former.go_live(absence_is_known=was_known)
    manager = Process(LedgerLog((), 0)).manager
    manager.restore(NUMBER, former)
    manager.go_live(0)
    manager.apply(tail_record(record(1, 5, FINISHED, previous=0)))
    assert bool(manager.ledger(KEY).disputes) == was_known


def test_h03_what_is_read_again_has_no_version_that_it_had_before() -> None:
    """Caches by `PartitionLedger.version` would keep what is not there any more."""
    former = LedgerState()
    former.apply(record(0, 1, STARTED))
    former.apply(record(1, 1, FINISHED, previous=0))
    manager = Process(LedgerLog((), 0)).manager
    manager.restore(NUMBER, former)
    seen = [manager.ledger(KEY)]
    for _ in range(3):
        manager.start_over(NUMBER)
        for offset in (5, 6):
            manager.apply(tail_record(record(offset, 2, STARTED)))
            seen.append(manager.ledger(KEY))
    assert len({view.version for view in seen}) == len(seen)


async def until(process: Process[Any], position: int) -> None:
    while process.tail.position(PARTITION) < position:  # noqa: ASYNC110 - turns of the loop
        await asyncio.sleep(0)


async def test_h03_who_missed_records_leaves_nothing_to_the_next() -> None:
    """A process that was stopped for days has missed a tombstone, and does not know of what."""
    log = LedgerLog(ATTEMPT[:2], 2)
    async with Process(log).running() as process:
        assert process.tail.resume_point(PARTITION) is not None
        log.records, log.end = (*ATTEMPT[:2], *ATTEMPT[2:3]), 3
        await until(process, 3)
        assert process.tail.resume_point(PARTITION) is not None
        log.records, log.end = (*ATTEMPT[:3], ATTEMPT[4]), 5
        await until(process, 5)
        assert process.tail.resume_point(PARTITION) is None


async def test_a_log_that_was_compacted_before_it_was_read_is_no_gap() -> None:
    log = LedgerLog(ATTEMPT[1:3], 4)
    async with Process(log).running() as process:
        await until(process, 4)
        left = process.tail.resume_point(PARTITION)
        assert left == point(4, EPOCH, mark(tail_record(ATTEMPT[2])))
        log.records, log.end = (*ATTEMPT[1:3], ATTEMPT[4]), 5
        await until(process, 5)
        assert process.tail.resume_point(PARTITION) is not None
