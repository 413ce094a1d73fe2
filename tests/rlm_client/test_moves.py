"""Whatever a program does to its position in mid-read, records go on just there, in order."""

import asyncio

import pytest
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.errors import NoOffsetForPartitionError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rlm_client.test_border import BOTH, TIERED, written
from tests.rlm_client.world import PARTITION, Reader, World, answer_commits, reading
from tiered_reads.values import ReadMode

_NEW_ID = bytes(16 * [9])

MOVES = st.one_of(
    st.tuples(st.just("seek"), st.integers(0, 40)),
    st.tuples(st.just("beginning"), st.just(0)),
    st.tuples(st.just("rebalance"), st.just(0)),
    st.tuples(st.just("pause"), st.just(0)),
    st.tuples(st.just("trim"), st.integers(0, 60)),
    st.tuples(st.just("copy"), st.integers(0, 60)),
    st.tuples(st.just("learn"), st.just(0)),
    st.tuples(st.just("away"), st.integers(1, 2)),
    st.tuples(st.just("refusing"), st.integers(1, 2)),
    st.tuples(st.just("take"), st.integers(1, 5)),
)


class _Program:
    """Takes records, and knows which one is to come next."""

    def __init__(self, world: World, reader: Reader) -> None:
        self.world = world
        self.reader = reader
        self.next_offset = 0
        self.committed = 0
        self._answering: list[asyncio.Task[None]] = []

    async def does(self, what: str, number: int) -> None:
        fetcher, subscription = self.reader.fetcher, self.reader.subscription
        match what:
            case "seek":
                self.next_offset = min(number, self.world.end)
                fetcher.seek_to(PARTITION, self.next_offset)
            case "beginning":
                self.next_offset = 0
                fetcher.request_offset_reset([PARTITION], OffsetResetStrategy.EARLIEST)
            case "rebalance":
                subscription.unsubscribe()
                subscription.assign_from_user([PARTITION])
                work = answer_commits(subscription, self.committed)
                self._answering.append(asyncio.create_task(work))
                self.next_offset = self.committed
            case "pause":
                paused = PARTITION in subscription.paused_partitions()
                (subscription.resume if paused else subscription.pause)(PARTITION)
            case "trim" | "copy":
                getattr(self.world, what)(number)
            case "learn":
                self.world.learn()
            case "take":
                await self.takes(number)
                self.committed = self.next_offset
            case _:
                setattr(self.world, what, number)

    async def takes(self, most: int | None = None) -> None:
        found = await self.reader.take(0.005, most)
        expected = [one for one in self.world.given if one >= self.next_offset]
        assert found == expected[: len(found)]
        if found:
            self.next_offset = found[-1] + 1

    async def ends(self) -> None:
        if PARTITION in self.reader.subscription.paused_partitions():
            self.reader.subscription.resume(PARTITION)
        self.world.copy(self.world.end)
        self.world.learn()
        async with asyncio.timeout(120):
            while self.next_offset <= self.world.given[-1]:
                await self.takes()
        for one in self._answering:
            one.cancel()


@pytest.mark.parametrize("mode", TIERED)
@settings(max_examples=15, deadline=None)
@given(moves=st.lists(MOVES, max_size=12))
def test_records_go_on_where_the_program_has_moved_to(
    mode: ReadMode, moves: list[tuple[str, int]]
) -> None:
    async def story() -> None:
        world = written(8, kafka_start=6, remote_end=21)
        world.append(3)
        async with reading(world, mode) as reader:
            program = _Program(world, reader)
            for what, number in moves:
                await program.does(what, number)
                await program.takes(4)
            await program.ends()
            assert reader.counters.offsets_missed == 0

    asyncio.run(story())


@pytest.mark.parametrize("mode", TIERED)
@pytest.mark.parametrize("kafka_start", [6, 10, 14])
async def test_h09_an_aborted_transaction_that_spans_the_border(
    mode: ReadMode, kafka_start: int
) -> None:
    """Its batches are on both sides, between those of others, and its marker is Kafka's alone."""
    world = World()
    world.append(2)
    begun = other = world.end
    for number in range(4):
        world.append_open(2, 7)
        if number == 1:
            other = world.end
            world.append_open(1, 8)
        world.append(2)
    world.abort(8, other)
    world.append(1)
    world.abort(7, begun)
    world.append(2)
    world.copy(16)
    world.learn()
    world.trim(kafka_start)
    async with reading(world, mode) as reader:
        for start in range(16):
            reader.fetcher.seek_to(PARTITION, start)
            reader.got.clear()
            await reader.take_until(16 if mode is ReadMode.REMOTE_ONLY else world.end)
            last = reader.got[-1] + 1 if reader.got else 16
            assert reader.got == [one for one in world.given if start <= one < last]
        assert reader.counters.offsets_missed == 0


@pytest.mark.parametrize(("policy", "at"), [("earliest", 6), ("latest", 21), ("none", None)])
async def test_remote_only_without_a_commit_the_policy_decides(policy: str, at: int | None) -> None:
    world = written(kafka_start=15, remote_end=21)
    world.remote_start = 6
    async with reading(world, ReadMode.REMOTE_ONLY, committed=None, policy=policy) as reader:
        if at is None:
            with pytest.raises(NoOffsetForPartitionError):
                await reader.take_until(21)
            return
        await reader.take_until(21)
        assert reader.got == [one for one in world.given if at <= one < 21]


@pytest.mark.parametrize("mode", TIERED)
async def test_h06_a_topic_that_is_created_again_is_read_on_as_by_aiokafka(mode: ReadMode) -> None:
    """At the same position of the new topic; it is no loss that the old one is gone."""
    world = written(kafka_start=21, remote_end=21)
    async with reading(world, mode) as reader:
        await reader.take_until(6)
        with world.lock:
            world.topic_id = world.kafka_topic_id = _NEW_ID
            world.kafka_start = world.remote_end = world.known_end = 0
            if mode is ReadMode.REMOTE_ONLY:
                world.copy(world.end)
                world.learn()
        await reader.take_until(world.end)
        assert reader.got == world.given
        assert reader.counters.offsets_missed == 0


@pytest.mark.parametrize("mode", BOTH)
async def test_h06_a_position_that_a_new_topic_does_not_have_is_out_of_its_range(
    mode: ReadMode,
) -> None:
    world = written(kafka_start=21, remote_end=21)
    async with reading(world, mode, policy="earliest") as reader:
        await reader.take_until(15)
        with world.lock:
            world.topic_id = world.kafka_topic_id = _NEW_ID
            world.kafka_start = world.remote_end = world.known_end = world.end = 0
            world.batches, world.given, world.aborted = [], [], []
            world.append(3)
        reader.got.clear()
        async with asyncio.timeout(60):
            while 2 not in reader.got:
                await reader.take()
        assert reader.got[-3:] == [0, 1, 2]
