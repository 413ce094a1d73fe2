"""A ledger whose end another leader has replaced while nobody could be asked for it (H42)."""

from collections.abc import Mapping

import pytest
from aiokafka.errors import KafkaConnectionError

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.leader_answers import NO_EPOCH, EpochEnd, EpochQuestion
from rlmm.log_reader import TailRecord
from rlmm.replay import LedgerState
from tests.rlmm.builders import FINISHED, STARTED, record
from tests.rlmm.histories import fold
from tests.rlmm.ledger_process import NUMBER, PARTITION, Process
from tests.rlmm.test_resuming import ATTEMPT, EPOCH, LedgerLog, left_by, until

NEXT = EPOCH + 1
READ = 4
OTHERS = (
    *ATTEMPT[:2],
    record(2, 8, STARTED),
    record(3, 8, FINISHED, previous=0),
    record(4, 9, STARTED),
    record(5, 9, FINISHED, previous=0),
)


class ElectedLog(LedgerLog):
    """`is_deposed`: questions for epochs come to the former leader, fetches to the next one.
    `kept_later`: at the second fetch the connection breaks, unless `breaks` is False, and another
    leader has kept so many.
    """

    def __init__(self) -> None:
        super().__init__(ATTEMPT[:READ], READ)
        self.next_epoch_at = READ
        self.is_deposed = False
        self.kept_later: int | None = None
        self.breaks = True

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        if self.at and self.kept_later is not None:
            self.elect(self.kept_later)
            self.kept_later = None
            if self.breaks:
                raise KafkaConnectionError
        return await super().read(timeout_ms)

    def elect(self, kept: int) -> None:
        """A leader that had so many records, and has written others since."""
        self.records = (*ATTEMPT[:kept], *OTHERS[kept:])
        self.end, self.next_epoch_at = len(OTHERS), kept

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        if self.is_away:
            raise Unavailable("no broker answers")
        epoch, current_epoch = questions[PARTITION]
        if self.is_deposed and current_epoch == NEXT:
            return {}
        if epoch == NEXT:
            return {PARTITION: EpochEnd(NEXT, self.end)}
        return {PARTITION: EpochEnd(EPOCH, READ if self.is_deposed else self.next_epoch_at)}

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        if position > self.next_epoch_at:
            return NEXT
        return EPOCH if position else NO_EPOCH


@pytest.mark.parametrize("kept", [2, READ])
async def test_h42_nothing_is_left_while_the_end_of_an_epoch_is_unconfirmed(kept: int) -> None:
    log = ElectedLog()
    async with Process(log).running() as process:
        assert process.tail.resume_point(PARTITION) is not None
        log.is_away = True
        log.elect(kept)
        await until(process, len(OTHERS))
        assert not process.tail.lost
        assert process.tail.resume_point(PARTITION) is None
        log.is_away = False
        await process.tail.verify()
        assert bool(process.tail.lost) == (kept < READ)
        point = process.tail.resume_point(PARTITION)
        assert (point is None) == (kept < READ)
        assert point is None or point.leader_epoch == NEXT


async def test_h42_a_point_that_a_deposed_leader_confirmed_is_asked_for_again() -> None:
    log = ElectedLog()
    log.elect(READ)
    log.is_deposed = True
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    async with process.running():
        assert process.log.starts == [READ - 1]
        assert process.tail.doubt()
        log.is_deposed = False
        await process.tail.verify()
        assert not process.tail.lost
        assert process.tail.doubt() is None
        assert process.state() == fold(log.records)


@pytest.mark.parametrize("is_deposed", [True, False])
async def test_h42_a_point_whose_last_record_is_another_one_is_a_loss(is_deposed: bool) -> None:
    """A deposed leader confirms the epoch; or the cluster was restored from a backup, and numbers
    its epochs as before.
    """
    log = ElectedLog()
    log.elect(2)
    log.is_deposed = is_deposed
    log.next_epoch_at = READ
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    async with process.running():
        assert process.began == ["the record at 3 is another one now"]
        assert log.starts == [3, 0]
        assert process.state() == fold(log.records)
        assert process.tail.lost_before == {
            PARTITION: f"{PARTITION} has lost records: the record at 3 is another one now"
        }
        assert not process.tail.lost


@pytest.mark.parametrize("what", ["end", "middle"])
async def test_h03_a_point_whose_last_record_was_compacted_away_is_no_loss(what: str) -> None:
    """A newer record of its key follows, here or where the log is no longer than it was."""
    log = LedgerLog(ATTEMPT, len(ATTEMPT))
    log.records = (*ATTEMPT[:2], *ATTEMPT[3:])
    if what == "end":
        log.records, log.end = ATTEMPT[:2], 3
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, 3))
    async with process.running():
        assert process.began == ["the record at 2 was compacted away"]
        assert process.state() == fold(log.records)
        await process.tail.verify()
        assert not process.tail.lost_before


async def test_h03_what_another_replica_has_not_compacted_yet_is_read_over() -> None:
    """The former leader had compacted the records between the last one and the position."""
    former = LedgerLog(ATTEMPT[:2], READ)
    async with Process(former).running() as process:
        left, ledger = process.tail.resume_point(PARTITION), process.manager.freeze(NUMBER)
    assert left is not None
    assert ledger is not None
    assert (left.last.offset, left.position) == (1, READ)
    log = LedgerLog(ATTEMPT, len(ATTEMPT))
    process = Process(log)
    process.resume(left, LedgerState.of(ledger))
    async with process.running():
        assert (process.began, process.delivered, log.starts) == ([], 1, [1])


@pytest.mark.parametrize("kept", [2, 3])
async def test_h42_no_state_is_of_two_leaders_whose_connection_broke_in_the_replay(
    kept: int,
) -> None:
    """Three records were read when it broke; the next leader has them, or only two of them."""
    log = ElectedLog()
    log.kept_later = kept
    async with Process(log).running() as process:
        assert log.starts == [0, 0]
        assert process.state() == fold(log.records)
        await process.tail.verify()
        assert bool(process.tail.lost_before) == (kept == 2)
        assert not process.tail.lost
        point = process.tail.resume_point(PARTITION)
        assert point is not None
        assert (point.position, point.leader_epoch) == (len(OTHERS), NEXT)


@pytest.mark.parametrize("kept", [2, 3])
async def test_h42_no_state_is_of_two_leaders_that_one_reader_has_read(kept: int) -> None:
    """A consumer goes on at its position with whoever leads now, and no error tells. Three of six
    records were read before; the next leader has them, or only two of them.
    """
    log = ElectedLog()
    log.records, log.end = (*ATTEMPT[:READ], *OTHERS[READ:]), len(OTHERS)
    log.next_epoch_at = log.end
    log.kept_later, log.breaks = kept, False
    async with Process(log).running() as process:
        assert process.tail.resume_point(PARTITION) is None
        await process.tail.verify()
        assert log.starts == [0]
        assert bool(process.tail.lost) == (kept == 2)
        assert process.tail.doubt() is None
        if not process.tail.lost:
            assert process.state() == fold(log.records)
            assert process.tail.resume_point(PARTITION) is not None


async def test_h42_a_refused_point_is_as_what_an_earlier_process_had_read() -> None:
    """The snapshot may know more than the file of read positions, or there is no such file."""
    log = ElectedLog()
    log.elect(2)
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    async with process.running():
        assert process.began == ["epoch 3 was read up to 4, ends at 2"]
        await process.tail.verify()
        assert "epoch 3 was read up to 4, ends at 2" in process.tail.lost_before[PARTITION]
        assert not process.tail.lost


@pytest.mark.parametrize("kept", [2, READ])
async def test_h42_a_point_that_nobody_confirmed_is_asked_for_again(kept: int) -> None:
    log = ElectedLog()
    log.elect(kept)
    log.is_away = True
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    async with process.running():
        assert process.began == ["no leader confirms epoch 3 up to 4"]
        assert process.tail.resume_point(PARTITION) is None
        log.is_away = False
        await process.tail.verify()
        assert bool(process.tail.lost_before) == (kept < READ)


async def test_h42_a_partition_that_is_read_again_is_asked_for_what_was_read_on_from() -> None:
    """A gap shows that it must be read again, and a deposed leader has confirmed the point."""
    log = ElectedLog()
    log.elect(READ)
    log.records = (*log.records[:4], *log.records[5:])
    log.is_deposed = True
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    async with process.running():
        assert process.began == ["records from 4 on were compacted away"]
        assert process.state() == fold(log.records)
        assert process.tail.resume_point(PARTITION) is None
        log.is_deposed = False
        await process.tail.verify()
        assert not process.tail.lost_before
        assert process.tail.resume_point(PARTITION) is not None
