"""What the tail reads, and what it notices of a log that is not what it has read (H6, H42)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.leader_answers import EpochEnd, EpochQuestion, ReadPosition
from rlmm.log_reader import TailRecord
from rlmm.tail import Tail
from tests.rlmm.leaders import Leaders

PARTITION = TopicPartition("ledger", 0)
OTHER = TopicPartition("ledger", 1)


class Following:
    """A tail that runs over leaders in memory; `got` is what it handed over."""

    def __init__(
        self, leaders: Leaders, remembered: Mapping[TopicPartition, ReadPosition] | None = None
    ) -> None:
        self.leaders = leaders
        self.got: list[tuple[TopicPartition, int, bytes]] = []
        self.tail = Tail(
            connect=leaders.reader,
            topic_partitions=leaders.now,
            deliver=self._take,
            start_over=self._start_over,
            now_ms=lambda: 0,
            epoch_ends=lambda questions: leaders.epoch_ends(questions),
            sleep_ms=lambda _: asyncio.sleep(0),
            remembered=remembered or {},
        )

    def _take(self, record: TailRecord) -> None:
        self.got.append((record.topic_partition, record.offset, record.value or b""))

    def _start_over(self, topic_partition: TopicPartition) -> None:
        self.got = [one for one in self.got if one[0] != topic_partition]

    def values(self, topic_partition: TopicPartition = PARTITION) -> list[bytes]:
        return [value for at, _, value in self.got if at == topic_partition]


@contextlib.asynccontextmanager
async def following(
    leaders: Leaders, remembered: Mapping[TopicPartition, ReadPosition] | None = None
) -> AsyncIterator[Following]:
    made = Following(leaders, remembered)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        background_tasks = [
            group.create_task(one()) for one in (made.tail.run, made.tail.run_verifier)
        ]
        yield made
        for life in background_tasks:
            life.cancel()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - every turn of the loop is an event here
        await asyncio.sleep(0)


def leaders_of(*topic_partitions: TopicPartition, count: int = 1_000) -> Leaders:
    leaders = Leaders(*topic_partitions)
    for leader in leaders.now.values():
        leader.append(count)
    return leaders


async def test_h42_a_log_that_shrank_and_grew_past_the_reader_is_a_loss() -> None:
    """The only copy of FINISHED records was among what is gone; nobody may go on as if not."""
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leader = leaders.now[PARTITION]
        leader.lose(10)
        leader.elect(1)
        leader.append(20, b"new")
        await one.tail.wait_lost()
        assert one.tail.lost[PARTITION] == (
            "ledger-0 has lost records that were read: epoch 0 was read up to 1000, ends at 990"
        )


async def test_h42_an_end_below_what_was_read_is_a_loss_at_once_not_at_the_second_read() -> None:
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leader = leaders.now[PARTITION]
        leader.lose(1)
        leader.elect(1)
        await one.tail.verify([PARTITION])
        assert list(one.tail.lost) == [PARTITION]


async def test_h42_after_an_out_of_range_the_leader_is_asked() -> None:
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        await until(lambda: leaders.asked)
        leaders.now[PARTITION].lose(1)
        await one.tail.wait_lost()


async def test_h42_a_log_that_grew_to_exactly_the_position_is_a_loss() -> None:
    """Nothing is fetched and no end is below: the epoch alone tells."""
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leader = leaders.now[PARTITION]
        leader.lose(5)
        leader.elect(1)
        leader.append(5, b"new")
        assert not one.tail.lost
        await one.tail.verify()
        assert list(one.tail.lost) == [PARTITION]


async def test_h42_out_of_range_is_no_proof_until_a_leader_has_confirmed_it() -> None:
    """A follower that was asked for the leader has less, too."""
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        whole = leaders.now[PARTITION]
        lagging = leaders.depose(PARTITION)
        lagging.lose(10)
        fetches = leaders.fetches
        await until(lambda: leaders.fetches > fetches + 5)
        assert not one.tail.lost
        leaders.now[PARTITION] = whole
        leaders.deposed.clear()
        whole.append(1, b"next")
        await until(lambda: one.values()[-1] == b"next")
        assert not one.tail.lost


async def test_h06_a_new_leader_whose_high_watermark_lags_has_lost_nothing() -> None:
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leader = leaders.now[PARTITION]
        leader.elect(1)
        leader.behind = 10
        await one.tail.verify()
        assert not one.tail.lost
        assert one.tail.doubt() is None
        leader.behind = 0
        leader.append(5, b"next")
        await until(lambda: len(one.got) == 1_005)
        await one.tail.verify()
        assert not one.tail.lost
        assert one.tail.doubt() is None


async def test_h42_a_leader_deposed_before_the_last_batch_proves_nothing_either_way() -> None:
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leaders.depose(PARTITION)
        leaders.now[PARTITION].elect(1)
        leaders.now[PARTITION].append(1, b"next")
        await until(lambda: one.values()[-1] == b"next")
        await one.tail.verify([PARTITION])
        assert not one.tail.lost
        assert one.tail.doubt([PARTITION]) == (
            "no leader of ledger-0 confirms what was read: epoch 0 up to 1000"
        )
        del leaders.deposed[PARTITION]
        await one.tail.verify([PARTITION])
        assert one.tail.doubt() is None


async def test_h42_a_deposed_leader_confirms_no_epoch_that_is_over() -> None:
    """It has the whole epoch, of which the next leader has lost the end."""
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leaders.depose(PARTITION)
        leaders.now[PARTITION].lose(10)
        leaders.now[PARTITION].elect(1)
        leaders.now[PARTITION].append(20, b"new")
        await until(lambda: one.values()[-1] == b"new")
        await one.tail.verify()
        assert "epoch 0 up to 1000" in (one.tail.doubt() or "")
        del leaders.deposed[PARTITION]
        await one.tail.verify()
        assert "ends at 990" in one.tail.lost[PARTITION]


@pytest.mark.parametrize("lost", [0, 10])
async def test_h42_a_deposed_leader_confirms_nothing_of_an_earlier_process(lost: int) -> None:
    """Questions come to it from the first connection on, and the replay is the next leader's."""
    leaders = leaders_of(PARTITION)
    leaders.depose(PARTITION)
    leaders.now[PARTITION].lose(lost)
    leaders.now[PARTITION].elect(1)
    leaders.now[PARTITION].append(20, b"new")
    remembered = {PARTITION: ReadPosition(position=1_000, leader_epoch=0, remembered=True)}
    async with following(leaders, remembered) as one:
        await one.tail.wait_caught_up()
        await one.tail.verify()
        assert one.tail.doubt() is not None
        del leaders.deposed[PARTITION]
        await one.tail.verify()
        assert bool(one.tail.lost_before) == bool(lost)
        assert not one.tail.lost
        assert one.tail.doubt() is None


async def test_h42_an_epoch_that_was_read_and_is_not_there_is_a_loss() -> None:
    """The replica that was elected never had epoch 1 and is longer than what was read."""
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        other = leaders.depose(PARTITION)
        leaders.now[PARTITION] = leaders.deposed.pop(PARTITION)
        leaders.now[PARTITION].elect(1)
        leaders.now[PARTITION].append(10)
        await until(lambda: one.tail.position(PARTITION) == 1_010)
        other.append(50, b"other")
        other.elect(2)
        leaders.now[PARTITION] = other
        await one.tail.verify()
        assert "is not there any more" in one.tail.lost[PARTITION]


async def test_h42_the_former_epoch_stays_in_doubt_until_its_end_is_confirmed() -> None:
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leaders.away.add(PARTITION)
        leaders.now[PARTITION].elect(1)
        leaders.now[PARTITION].append(1)
        await until(lambda: one.tail.position(PARTITION) == 1_001)
        assert "epoch 0" in (one.tail.doubt([PARTITION]) or "")
        leaders.away.clear()
        await one.tail.verify()
        assert one.tail.doubt() is None
        assert leaders.asked[-2:] == [
            (PARTITION, EpochQuestion(0, 1)),
            (PARTITION, EpochQuestion(1, 1)),
        ]


async def test_h42_what_an_earlier_process_had_read_is_asked_for_at_the_start() -> None:
    """The power failed for broker and service together: what is there looks whole."""
    leaders = leaders_of(PARTITION, OTHER, count=990)
    leaders.now[PARTITION].elect(1)
    leaders.now[OTHER].elect(1)
    remembered = {
        PARTITION: ReadPosition(position=1_000, leader_epoch=0, remembered=True),
        OTHER: ReadPosition(position=990, leader_epoch=0, remembered=True),
    }
    async with following(leaders, remembered) as one:
        await one.tail.wait_lost()
        assert list(one.tail.lost_before) == [PARTITION]
        assert not one.tail.lost
        await one.tail.wait_caught_up()
        leaders.now[PARTITION].append(1, b"next")
        await until(lambda: one.values()[-1] == b"next" and one.tail.doubt() is None)


async def test_h42_an_epoch_that_was_compacted_away_meanwhile_is_no_loss() -> None:
    leaders = leaders_of(PARTITION)
    leaders.now[PARTITION].elect(2)
    remembered = {PARTITION: ReadPosition(position=900, leader_epoch=1, remembered=True)}
    async with following(leaders, remembered) as one:
        await one.tail.wait_caught_up()
        await one.tail.verify()
        assert not one.tail.lost_before
        assert one.tail.doubt() is None


async def test_h42_a_lost_partition_is_left_and_the_others_go_on() -> None:
    leaders = leaders_of(PARTITION, OTHER)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        leaders.now[PARTITION].lose(10)
        leaders.now[PARTITION].elect(1)
        await one.tail.wait_lost()
        leaders.now[PARTITION].append(20, b"new")
        leaders.now[OTHER].append(1, b"next")
        await until(lambda: one.values(OTHER)[-1] == b"next")
        assert b"new" not in one.values(PARTITION)


async def test_a_history_of_epochs_is_read_without_a_question_for_each() -> None:
    leaders = leaders_of(PARTITION, count=10)
    for epoch in range(1, 50):
        leaders.now[PARTITION].elect(epoch)
        leaders.now[PARTITION].append(1)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()
        await one.tail.verify()
        assert {question for _, question in leaders.asked} == {EpochQuestion(49, 49)}


async def test_no_broker_to_ask_is_unavailable_and_the_tail_goes_on() -> None:
    leaders = leaders_of(PARTITION)
    async with following(leaders) as one:
        await one.tail.wait_caught_up()

        async def refuse(
            questions: Mapping[TopicPartition, EpochQuestion],
        ) -> dict[TopicPartition, EpochEnd]:
            raise Unavailable("no broker")

        leaders.epoch_ends = refuse  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            await one.tail.verify()
        leaders.now[PARTITION].elect(1)
        leaders.now[PARTITION].append(1, b"next")
        await until(lambda: one.values()[-1] == b"next")
        assert one.tail.doubt() is not None
