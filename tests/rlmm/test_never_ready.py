"""A ledger that is shorter than what is to be read of it, and the process must become ready (H42).

Nothing comes of such a log, and at its very end not even an error does.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

import pytest
from aiokafka import structs
from aiokafka.errors import LeaderNotAvailableError, OffsetOutOfRangeError

from kip405.ids import TopicPartition
from rlmm.leader_answers import ReadPosition
from rlmm.log_reader import TailRecord
from tests.rlmm.histories import fold
from tests.rlmm.ledger_process import PARTITION, Process
from tests.rlmm.test_resuming import ATTEMPT, EPOCH, left_by
from tests.rlmm.test_rewritten_ledger_end import READ, ElectedLog

REMEMBERED = {PARTITION: ReadPosition(position=READ, leader_epoch=EPOCH, remembered=True)}
LOST = f"{PARTITION} has lost records that were read: epoch 3 was read up to 4, ends at "


class ShortLog(ElectedLog):
    """Another leader has kept `kept` records and writes nothing. `ends`: what the first
    answers say, and `bounds_error` what the next ones are; `meanwhile` happens during the others.
    """

    def __init__(self, kept: int, *ends: int) -> None:
        super().__init__()
        self.records, self.end, self.next_epoch_at = ATTEMPT[:kept], kept, kept
        self.ends = list(ends)
        self.bounds_error: Exception | None = None
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.is_deposed = True

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        if not self.ends and self.bounds_error is not None:
            raise self.bounds_error
        end = self.ends.pop(0) if self.ends else self.end
        if not self.ends and self.meanwhile is not None:
            await self.meanwhile()
        return dict.fromkeys(topic_partitions, (0, end))

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.is_assigned = PARTITION in positions
        if self.is_assigned:
            super().assign(positions)

    async def read(self, timeout_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        await asyncio.sleep(0)
        if not self.is_assigned:
            return {}
        if self.at > self.end:
            raise OffsetOutOfRangeError({structs.TopicPartition(*PARTITION): self.at})
        return await super().read(timeout_ms)


@contextlib.asynccontextmanager
async def reading(process: Process[ShortLog]) -> AsyncIterator[None]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(one()) for one in (process.tail.run, process.tail.run_verifier)]
        yield
        for one in tasks:
            one.cancel()


async def turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize("remembered", [{}, REMEMBERED])
@pytest.mark.parametrize("kept", [2, READ - 1])
async def test_h42_a_point_behind_the_end_is_asked_for_until_the_leader_answers(
    kept: int, remembered: Mapping[TopicPartition, ReadPosition]
) -> None:
    """A deposed leader has confirmed it. The log ends below its last record (OFFSET_OUT_OF_RANGE),
    or exactly there (nothing at all).
    """
    process = Process(ShortLog(kept), remembered)
    process.resume(*await left_by(ATTEMPT, READ))
    async with reading(process):
        await turns()
        assert not process.began
        process.log.is_deposed = False
        await process.tail.wait_caught_up()
        await process.tail.verify()
        assert process.began == [f"epoch 3 was read up to 4, ends at {kept}"]
        process.manager.go_live(0)
        assert process.state() == fold(process.log.records)
        assert process.tail.lost_before == {PARTITION: f"{LOST}{kept}"}
        assert not process.tail.lost


@pytest.mark.parametrize("remembered", [{}, REMEMBERED])
async def test_h42_an_end_that_is_lost_during_the_replay_is_not_waited_for(
    remembered: Mapping[TopicPartition, ReadPosition],
) -> None:
    process = Process(ShortLog(3, READ), remembered)
    async with reading(process):
        await process.tail.wait_caught_up()
        await process.tail.verify()
        assert process.log.starts == [0, 0]
        assert (process.tail.doubt() is not None) == bool(remembered)
        assert (process.tail.resume_point(PARTITION) is None) == bool(remembered)
        process.log.is_deposed = False
        await process.tail.verify()
        assert process.tail.lost_before == ({PARTITION: f"{LOST}3"} if remembered else {})
        assert process.tail.doubt() is None


async def test_a_leader_that_is_away_for_a_moment_begins_no_replay_again() -> None:
    """Nothing is known of the end then: the log is waited for."""
    log = ShortLog(3, READ)
    log.bounds_error = LeaderNotAvailableError()
    process = Process(log)
    async with reading(process):
        await turns()
        log.records, log.end = ATTEMPT[:READ], READ
        await process.tail.wait_caught_up()
        assert log.starts == [0]


async def test_h42_a_loss_that_is_found_while_a_partition_is_read_on_begins_it_again() -> None:
    """Its last record was there; more was to come of it than there is now."""
    log = ShortLog(READ, READ + 2)
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    log.bounds_error = LeaderNotAvailableError()
    async with reading(process):
        await turns()
        log.records, log.end, log.next_epoch_at = ATTEMPT[:3], 3, 3
        log.is_deposed, log.bounds_error = False, None
        await process.tail.verify()
        await process.tail.wait_caught_up()
        assert process.log.starts == [READ - 1, 0]
        assert process.tail.lost_before == {PARTITION: f"{LOST}3"}
        assert not process.tail.lost


async def test_h42_a_loss_that_is_found_during_the_bounds_begins_the_replay_again() -> None:
    """The bounds are of the leader before, and the partition is not followed from the start."""
    log = ShortLog(READ, READ + 2)
    process = Process(log)
    process.resume(*await left_by(ATTEMPT, READ))
    log.bounds_error = LeaderNotAvailableError()

    async def answer() -> None:
        log.is_deposed = False
        await process.tail.verify()

    async with reading(process):
        await turns()
        log.records, log.end, log.next_epoch_at = ATTEMPT[:3], 3, 3
        log.ends, log.bounds_error, log.meanwhile = [3, READ + 2], None, answer
        await process.tail.wait_caught_up()
        assert process.tail.lost_before == {PARTITION: f"{LOST}3"}
        assert not process.tail.lost
