"""What an answer about an epoch's end proves (H42), and which epochs were fetched."""

import struct
from dataclasses import replace

import pytest

from kip405.ids import TopicPartition
from rlmm.leader_answers import EpochEnd, FetchedEpochs, ReadPosition, ReadPositions

PARTITION = TopicPartition("ledger", 0)
MARK = ReadPosition(position=100, leader_epoch=5)


def batch(base_offset: int, leader_epoch: int, size_bytes: int = 61) -> bytes:
    head = struct.pack(">qii", base_offset, size_bytes - 12, leader_epoch)
    return head + bytes(size_bytes - len(head))


@pytest.mark.parametrize(
    ("answer", "is_lost"),
    [
        (EpochEnd(5, 100), False),
        (EpochEnd(5, 101), False),
        (EpochEnd(5, 99), True),
        (EpochEnd(5, 0), True),
        (EpochEnd(4, 100), True),
        (EpochEnd(4, 99), True),
    ],
)
def test_h42_an_epoch_that_ends_below_what_was_read_is_a_loss(
    answer: EpochEnd, is_lost: bool
) -> None:
    read_positions = ReadPositions({})
    read_positions.advance(PARTITION, MARK, is_replay=False)
    read_positions.take_answer(PARTITION, MARK, answer, read_to=MARK.position)
    assert (PARTITION in read_positions.lost) is is_lost
    assert read_positions.doubt([PARTITION]) is None


@pytest.mark.parametrize("answer", [None, EpochEnd(-1, -1)])
def test_h42_no_answer_is_a_doubt_until_there_is_one(answer: EpochEnd | None) -> None:
    read_positions = ReadPositions({})
    read_positions.advance(PARTITION, MARK, is_replay=False)
    read_positions.take_answer(PARTITION, MARK, answer, read_to=MARK.position)
    assert not read_positions.lost
    assert read_positions.doubt([PARTITION]) is not None
    read_positions.take_answer(PARTITION, MARK, EpochEnd(5, 100), read_to=MARK.position)
    assert read_positions.doubt([PARTITION]) is None


def test_h42_each_epoch_that_is_over_is_asked_for_before_the_newest() -> None:
    read_positions = ReadPositions({})
    newer = ReadPosition(position=110, leader_epoch=6)
    newest = ReadPosition(position=120, leader_epoch=8)
    for read_position in (MARK, newer, newest):
        read_positions.advance(PARTITION, read_position, is_replay=False)
    for read_position in (MARK, newer, newest):
        assert read_positions.question(PARTITION) == read_position
        end = EpochEnd(read_position.leader_epoch, read_position.position)
        read_positions.take_answer(PARTITION, read_position, end, read_to=newest.position)
    assert read_positions.doubt([PARTITION]) is None


def test_h42_a_process_that_ends_leaves_what_was_not_confirmed() -> None:
    """Another process has only this to find the loss by."""
    former = ReadPosition(position=90, leader_epoch=4, remembered=True)
    newer = ReadPosition(position=110, leader_epoch=6)
    read_positions = ReadPositions({PARTITION: former})
    read_positions.advance(PARTITION, MARK, is_replay=True)
    for unconfirmed in (former, MARK):
        read_positions.advance(PARTITION, newer, is_replay=False)
        assert read_positions.worth_remembering() == {PARTITION: unconfirmed}
        end = EpochEnd(unconfirmed.leader_epoch, 200)
        read_positions.take_answer(PARTITION, unconfirmed, end, read_to=newer.position)
    assert read_positions.worth_remembering() == {PARTITION: newer}
    unknown = ReadPositions({})
    unknown.advance(PARTITION, ReadPosition(position=1, leader_epoch=-1), is_replay=True)
    assert unknown.worth_remembering() == {}


@pytest.mark.parametrize("read_to", [89, 90])
def test_h42_what_an_earlier_process_had_read_is_confirmed_once_this_one_has_read_it(
    read_to: int,
) -> None:
    """A deposed leader may answer, while what is read is a shorter log."""
    former = ReadPosition(position=90, leader_epoch=4, remembered=True)
    read_positions = ReadPositions({PARTITION: former})
    read_positions.take_answer(PARTITION, former, EpochEnd(4, 90), read_to=read_to)
    assert (read_positions.doubt([PARTITION]) is None) is (read_to == 90)
    read_positions.take_answer(PARTITION, former, EpochEnd(4, 89), read_to=read_to)
    assert PARTITION in read_positions.lost_before
    assert read_positions.doubt([PARTITION]) is None


@pytest.mark.parametrize("answer", [EpochEnd(MARK.leader_epoch, 99), EpochEnd(0, 99)])
def test_h42_a_replay_that_another_leader_has_gone_on_with_is_a_loss(answer: EpochEnd) -> None:
    read_positions, newer = replayed()
    asked = read_positions.question(PARTITION)
    assert asked == replace(MARK, replayed=True)
    assert read_positions.epoch_question(PARTITION, asked).current_leader_epoch == 6
    read_positions.take_answer(PARTITION, asked, answer, read_to=newer.position)
    assert "ends at 99" in read_positions.lost[PARTITION]


@pytest.mark.parametrize("answer", [EpochEnd(MARK.leader_epoch, 100), EpochEnd(0, 120)])
def test_h42_of_an_epoch_in_a_replay_the_leader_may_have_no_record_left(answer: EpochEnd) -> None:
    read_positions, newer = replayed()
    asked = read_positions.question(PARTITION)
    assert asked is not None
    assert read_positions.take_answer(PARTITION, asked, answer, read_to=newer.position)
    assert not read_positions.lost
    assert read_positions.question(PARTITION) == newer


def replayed() -> tuple[ReadPositions, ReadPosition]:
    """Two answers of a replay, of two epochs; and what was read by the second."""
    read_positions = ReadPositions({})
    newer = ReadPosition(position=110, leader_epoch=6)
    read_positions.advance(PARTITION, MARK, is_replay=True)
    read_positions.advance(PARTITION, newer, is_replay=True)
    return read_positions, newer


def test_the_epochs_of_batches_are_those_of_their_headers() -> None:
    fetched = FetchedEpochs()
    assert fetched.before(PARTITION, 5) == -1
    fetched.note(PARTITION, batch(0, 3) + batch(4, 3, 200) + batch(10, 7))
    assert fetched.before(PARTITION, 0) == -1
    assert fetched.before(PARTITION, 1) == 3
    assert fetched.before(PARTITION, 10) == 3
    assert fetched.before(PARTITION, 11) == 7
    fetched.note(PARTITION, batch(12, 7) + batch(20, 9)[:16] + b"")
    assert fetched.before(PARTITION, 20) == 7
    assert fetched.before(PARTITION, 21) == 9
    fetched.note(PARTITION, batch(30, 10)[:15])
    assert fetched.before(PARTITION, 40) == 9
