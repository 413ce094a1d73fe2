"""When the tail has caught up, whom it wakes, what it makes of bounds; over a scripted reader."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping

import pytest
from aiokafka.errors import KafkaConnectionError, OffsetOutOfRangeError

from kip405.ids import TopicPartition
from rlmm.leader_answers import NO_EPOCH, EpochEnd, EpochQuestion
from rlmm.log_reader import TailRecord
from rlmm.tail import Tail

PARTITION = TopicPartition("ledger", 0)


class Script:
    """Answers what the test says; every connection has the bounds of its turn."""

    def __init__(self, *bounds: tuple[int, int]) -> None:
        self.bounds_by_connection = list(bounds)
        self.answers: asyncio.Queue[list[int] | Exception] = asyncio.Queue()
        self.reached = 0
        self.assigned: list[int] = []
        self.got: list[int] = []
        self.now_ms = 0

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def bounds(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(topic_partitions, self.bounds_by_connection.pop(0))

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.assigned += positions.values()

    async def read(self, max_wait_ms: int) -> dict[TopicPartition, list[TailRecord]]:
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return {PARTITION: [_record(offset) for offset in answer]} if answer else {}

    async def position(self, topic_partition: TopicPartition) -> int:
        return self.reached

    def epoch_before(self, topic_partition: TopicPartition, position: int) -> int:
        return NO_EPOCH


def _record(offset: int) -> TailRecord:
    return TailRecord(
        topic_partition=PARTITION, offset=offset, timestamp_ms=0, key=b"k", value=b"v", headers=()
    )


@contextlib.asynccontextmanager
async def following(script: Script) -> AsyncIterator[Tail]:
    async def nobody(
        questions: Mapping[TopicPartition, EpochQuestion],
    ) -> dict[TopicPartition, EpochEnd]:
        return {}

    tail = Tail(
        connect=lambda: script,
        topic_partitions=[PARTITION],
        deliver=lambda one: script.got.append(one.offset),
        start_over=lambda _: script.got.clear(),
        now_ms=lambda: script.now_ms,
        epoch_ends=nobody,
        sleep_ms=lambda _: asyncio.sleep(0),
        remembered={},
    )
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        life = group.create_task(tail.run())
        yield tail
        life.cancel()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_h17_the_replay_is_over_with_the_last_record_that_was_there_at_the_start() -> None:
    script = Script((0, 10))
    async with following(script) as tail:
        caught_up = asyncio.ensure_future(tail.wait_caught_up())
        script.answers.put_nowait(list(range(9)))
        await settle()
        assert not caught_up.done()
        script.answers.put_nowait([9])
        await settle()
        assert caught_up.done()


async def test_h17_the_replay_of_a_compacted_log_ends_where_its_position_does() -> None:
    """The last records are gone: only the position tells."""
    script = Script((0, 10))
    async with following(script) as tail:
        caught_up = asyncio.ensure_future(tail.wait_caught_up())
        script.answers.put_nowait(list(range(8)))
        await settle()
        assert not caught_up.done()
        script.reached = 10
        script.answers.put_nowait([])
        await settle()
        assert caught_up.done()
        assert tail.position(PARTITION) == 10


async def test_h17_the_replay_of_an_empty_log_is_over_at_once() -> None:
    script = Script((0, 0))
    async with following(script) as tail:
        caught_up = asyncio.ensure_future(tail.wait_caught_up())
        script.answers.put_nowait([])
        await settle()
        assert caught_up.done()
        assert tail.position(PARTITION) == 0


async def test_h17_a_waiting_caller_is_woken_by_the_record_itself() -> None:
    script = Script((0, 0))
    async with following(script) as tail:
        waiting = asyncio.ensure_future(tail.wait_passed(PARTITION, 2))
        await settle()
        script.answers.put_nowait([0])
        await settle()
        assert not waiting.done()
        script.answers.put_nowait([1])
        await settle()
        assert waiting.done()


async def test_h06_records_removed_before_they_were_read_are_a_loss() -> None:
    script = Script((0, 2), (5, 10))
    async with following(script) as tail:
        script.answers.put_nowait([0, 1])
        script.answers.put_nowait(OffsetOutOfRangeError())
        await settle()
        assert tail.lost[PARTITION] == "records 2..5 of ledger-0 were removed before being read"


async def test_h06_a_begin_at_the_position_is_no_loss() -> None:
    script = Script((0, 2), (2, 10))
    async with following(script) as tail:
        script.answers.put_nowait([0, 1])
        script.answers.put_nowait(OffsetOutOfRangeError())
        await settle()
        assert not tail.lost
        assert script.assigned == [0, 2]


@pytest.mark.parametrize("error", [OffsetOutOfRangeError(), KafkaConnectionError()])
async def test_h42_a_replay_that_broke_off_is_read_from_its_beginning(error: Exception) -> None:
    """What came over the former connection may be of another leader, whose end is lost. The time
    that counts is that of the replay that came to its end.
    """
    script = Script((0, 10), (3, 12), (9, 9))
    script.now_ms = 1_000
    async with following(script) as tail:
        script.answers.put_nowait([0, 1, 2, 3])
        await settle()
        script.now_ms = 2_000
        script.answers.put_nowait(error)
        await settle()
        assert (script.got, script.assigned) == ([], [0, 3])
        script.answers.put_nowait(list(range(3, 11)))
        await settle()
        script.now_ms = 5_000
        script.answers.put_nowait([11])
        await settle()
        assert script.got == list(range(3, 12))
        assert tail.replay_ms == 3_000
        script.answers.put_nowait(KafkaConnectionError())
        await settle()
        assert script.got == list(range(3, 12))
        assert script.assigned == [0, 3, 12]
