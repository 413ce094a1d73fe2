"""Each partition's position is asked for on its own."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.structs import OffsetAndTimestamp, TopicPartition

from rlm_client.counters import ConsumerCounters
from rlm_client.read_threads import THREADS
from rlm_client.tiered_fetcher import TieredFetcher
from tests.rlm_client.world import FakeClient, World, reading
from tiered_reads.errors import ServiceError
from tiered_reads.stopping import Stop
from tiered_reads.values import ReadMode

KNOWN, UNKNOWN = TopicPartition("t", 0), TopicPartition("t", 1)
MANY = [TopicPartition("t", number) for number in range(1, 2 * THREADS)]
"""More than there are threads that work."""


class _HalfLog:
    """A remote log without an answer for UNKNOWN: its service is away, or says nothing."""

    def __init__(self, *, is_away: bool, dated: tuple[int, int] | None = None) -> None:
        self._is_away = is_away
        self.dated = dated
        self.asked = threading.Event()
        self.late = threading.Event()

    def bounds(self, topic: str, stop: Stop) -> None:
        """It is not tiered."""

    def dated_offset(self, partition: Any, timestamp: int, *, remote_only: bool, stop: Stop) -> Any:
        if timestamp >= 0:
            return self.dated
        if partition.partition == KNOWN.partition or timestamp == OffsetResetStrategy.LATEST:
            return 7, -1
        self.asked.set()
        while not self._is_away:
            stop.wait(5)
            if self.late.is_set():
                return 2, -1
        raise ServiceError("UNAVAILABLE", "the service is away")

    def close(self) -> None: ...


def _reading(
    log: _HalfLog,
    unknown: Sequence[TopicPartition] = (UNKNOWN,),
    mode: ReadMode = ReadMode.REMOTE_ONLY,
) -> tuple[TieredFetcher, Any]:
    subscription = SubscriptionState()
    subscription.assign_from_user([*unknown, KNOWN])
    assignment = subscription.subscription.assignment
    for one in (*unknown, KNOWN):
        assignment.state_value(one).await_reset(OffsetResetStrategy.EARLIEST)
    fetcher = TieredFetcher(
        FakeClient(World()),
        subscription,
        mode=mode,
        remote_log=log,  # type: ignore[arg-type]
        counters=ConsumerCounters(),
        auto_offset_reset="earliest",
        fetcher_timeout=0.01,
        retry_backoff_ms=2,
    )
    return fetcher, assignment


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_partition_without_an_answer_stops_no_other(is_away: bool) -> None:
    fetcher, assignment = _reading(_HalfLog(is_away=is_away))
    async with asyncio.timeout(60):
        await assignment.state_value(KNOWN).wait_for_position()
    assert assignment.state_value(KNOWN).position == 7
    assert not assignment.state_value(UNKNOWN).has_valid_position
    await fetcher.close()


async def test_more_silent_answers_than_threads_stop_no_other() -> None:
    log = _HalfLog(is_away=False)
    fetcher, assignment = _reading(log, MANY)
    async with asyncio.timeout(60):
        await asyncio.to_thread(log.asked.wait)
        await assignment.state_value(KNOWN).wait_for_position()
    assert assignment.state_value(KNOWN).position == 7
    assert not any(assignment.state_value(one).has_valid_position for one in MANY)
    await fetcher.close()


@pytest.mark.parametrize(
    ("mode", "dated", "expected"),
    [
        (ReadMode.KAFKA_PREFERRED, (5, 1_000), OffsetAndTimestamp(5, 1_000)),
        (ReadMode.KAFKA_PREFERRED, (-1, -1), None),
        (ReadMode.KAFKA_PREFERRED, None, OffsetAndTimestamp(0, -1)),
        (ReadMode.REMOTE_ONLY, (5, 1_000), OffsetAndTimestamp(5, 1_000)),
        (ReadMode.REMOTE_ONLY, (-1, -1), None),
    ],
)
async def test_an_offset_for_a_time_is_that_of_the_tiers_and_of_an_untiered_topic_kafkas(
    mode: ReadMode, dated: tuple[int, int] | None, expected: Any
) -> None:
    fetcher, _ = _reading(_HalfLog(is_away=True, dated=dated), mode=mode)
    assert await fetcher.get_offsets_by_times({KNOWN: 1_000}, 60_000) == {KNOWN: expected}
    await fetcher.close()


async def test_close_ends_a_question_without_an_error() -> None:
    log = _HalfLog(is_away=False)
    fetcher, _ = _reading(log)
    async with asyncio.timeout(60):
        await asyncio.to_thread(log.asked.wait)
        asking = fetcher._reads[UNKNOWN].asking
        assert asking is not None
        fetcher._stop.set()  # what `close` does first
        await asyncio.wait([asking])
        await fetcher.close()
    assert asking.exception() is None


async def test_the_answer_for_a_position_that_is_not_wanted_any_more_is_not_taken() -> None:
    log = _HalfLog(is_away=False)
    fetcher, assignment = _reading(log)
    async with asyncio.timeout(60):
        await asyncio.to_thread(log.asked.wait)
        wanted = fetcher.request_offset_reset([UNKNOWN], OffsetResetStrategy.LATEST)
        log.late.set()
        await wanted
    assert assignment.state_value(UNKNOWN).position == 7
    await fetcher.close()


async def test_a_refusal_of_a_position_that_is_not_wanted_any_more_is_raised_in_no_call() -> None:
    """The user has gone elsewhere while it was asked for, and Kafka has answered there."""
    world = World()
    world.append(3)
    refusal = world.refused_question = threading.Event()
    async with reading(
        world, ReadMode.KAFKA_PREFERRED, committed=None, policy="earliest"
    ) as reader:
        async with asyncio.timeout(60):
            while world.refused_question is refusal:
                await reader.take(0.01)
            reader.fetcher.seek_to(KNOWN, 0)
            while KNOWN not in reader.fetcher._records:  # noqa: ASYNC110 - aiokafka has no event
                await asyncio.sleep(0.001)
            refusal.set()
            asking = reader.fetcher._reads[KNOWN].asking
            assert asking is not None
            await asyncio.wait([asking])
        await reader.take_until(world.end)
        assert reader.got == world.given


@pytest.mark.parametrize("mode", [ReadMode.REMOTE_PREFERRED, ReadMode.REMOTE_ONLY])
async def test_a_reset_right_before_a_read_begins_does_not_end_the_fetcher(mode: ReadMode) -> None:
    world = World()
    for _ in range(4):
        world.append(3)
    world.copy(world.end)
    world.learn()
    async with reading(world, mode) as reader:
        await reader.take_until(6)
        fetcher, read = reader.fetcher, reader.fetcher._reads[KNOWN]
        async with asyncio.timeout(60):
            fetcher.seek_to(KNOWN, 3)
            while read.is_busy:
                await asyncio.sleep(0)
                fetcher.seek_to(KNOWN, 3)
            fetcher._get_actions_per_node(reader.subscription.subscription.assignment)
            assert fetcher._reads[KNOWN].is_busy
            await fetcher.request_offset_reset([KNOWN], OffsetResetStrategy.EARLIEST)
        reader.got.clear()
        await reader.take_until(world.end)
        assert reader.got == world.given
