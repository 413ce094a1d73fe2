"""Pools: bounds, order, one job a partition, errors that stay where they belong (G6)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kip405.errors import Busy, Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.tasks.pool import Job, LanePool
from tests.builders.clock import ManualClock

TOPIC_ID = Uuid(bytes(16))


def key(partition: int) -> PartitionKey:
    return PartitionKey(TOPIC_ID, partition)


def pool(*, size: int = 2, queue_limit: int = 10, clock: ManualClock | None = None) -> LanePool:
    return LanePool(
        "copy",
        clock or ManualClock(),
        size=size,
        queue_limit=queue_limit,
        backoff=lambda failures: 100 * 2**failures,
    )


@asynccontextmanager
async def at_work(lanes: LanePool) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(lanes.run())
        try:
            yield
        finally:
            task.cancel()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def note(events: list[str], name: str) -> Job:
    async def job() -> None:
        events.append(name)

    return job


def wait_for(gate: asyncio.Event, began: Callable[[], None] = lambda: None) -> Job:
    async def job() -> None:
        began()
        await gate.wait()

    return job


def failing(error: Exception) -> Job:
    async def job() -> None:
        raise error

    return job


async def test_at_most_size_jobs_run_at_once() -> None:
    lanes, gate = pool(size=2), asyncio.Event()
    for partition in range(5):
        assert lanes.submit(key(partition), wait_for(gate))
    async with at_work(lanes):
        await settle()
        assert (len(lanes.running), lanes.waiting_count) == (2, 3)
        gate.set()
        await settle()
        assert (len(lanes.running), lanes.waiting_count) == (0, 0)


async def test_a_partition_has_one_running_and_one_waiting_job() -> None:
    lanes, gate = pool(size=4), asyncio.Event()
    events: list[str] = []
    async with at_work(lanes):
        assert lanes.submit(key(0), wait_for(gate, lambda: events.append("first")))
        await settle()
        assert lanes.submit(key(0), note(events, "second"))
        assert not lanes.submit(key(0), note(events, "third"))
        await settle()
        assert events == ["first"]
        gate.set()
        await settle()
        assert events == ["first", "second"]


async def test_a_pool_says_of_one_partition_whether_it_waits_or_runs() -> None:
    lanes, gate, began = pool(size=1), asyncio.Event(), asyncio.Event()
    async with at_work(lanes):
        lanes.submit(key(0), wait_for(gate, began.set))
        await began.wait()
        lanes.submit(key(1), wait_for(gate))
        assert [(lanes.is_running(key(n)), lanes.is_waiting(key(n))) for n in range(3)] == [
            (True, False),
            (False, True),
            (False, False),
        ]


async def test_partitions_take_turns() -> None:
    lanes = pool(size=1)
    events: list[str] = []

    def again(name: str, partition: int) -> Job:
        async def job() -> None:
            events.append(name)
            if len(events) < 6:
                lanes.submit(key(partition), again(name, partition))

        return job

    lanes.submit(key(0), again("a", 0))
    lanes.submit(key(1), again("b", 1))
    async with at_work(lanes):
        await settle()
    assert events[:6] == ["a", "b", "a", "b", "a", "b"]


async def test_a_full_queue_says_busy() -> None:
    lanes = pool(queue_limit=2)
    lanes.submit(key(0), note([], ""))
    lanes.submit(key(1), note([], ""))
    with pytest.raises(Busy, match="2 partitions wait for the copy lanes"):
        lanes.submit(key(2), note([], ""))


@pytest.mark.parametrize("error", [Unavailable("store down"), ZeroDivisionError("a bug")])
async def test_an_error_stays_with_its_partition_and_backs_off(error: Exception) -> None:
    clock = ManualClock()
    lanes = pool(clock=clock)
    events: list[str] = []
    async with at_work(lanes):
        lanes.submit(key(0), failing(error))
        lanes.submit(key(1), note(events, "other"))
        await settle()
        assert events == ["other"]
        found = lanes.last_errors[key(0)]
        assert (found.message, found.failures_in_a_row) == (f"{type(error).__name__}: {error}", 1)
        assert not lanes.submit(key(0), note(events, "too early"))
        clock.advance(100)
        assert lanes.submit(key(0), failing(error))
        await settle()
        assert lanes.last_errors[key(0)].retry_at_ms == clock.now + 200
        assert lanes.last_errors[key(0)].since_ms == clock.now - 100
        clock.advance(200)
        assert lanes.submit(key(0), note(events, "well"))
        await settle()
        assert key(0) not in lanes.last_errors


async def test_a_partition_led_elsewhere_is_forgotten() -> None:
    lanes = pool(size=1)
    events: list[str] = []
    lanes.submit(key(0), note(events, "old"))
    lanes.forget(key(0))
    lanes.submit(key(0), note(events, "new"))
    async with at_work(lanes):
        await settle()
    assert events == ["new"]


async def test_forgetting_never_lets_two_jobs_of_a_partition_run() -> None:
    lanes, gate, other = pool(size=2), asyncio.Event(), asyncio.Event()
    events: list[str] = []
    lanes.submit(key(1), wait_for(other))
    lanes.submit(key(0), note(events, "forgotten"))
    lanes.forget(key(0))
    lanes.submit(key(0), wait_for(gate))
    async with at_work(lanes):
        await settle()
        assert lanes.running == {key(0), key(1)}
        lanes.submit(key(0), note(events, "second"))
        other.set()
        await settle()
        assert events == []
        gate.set()
        await settle()
    assert events == ["second"]


async def test_cancelling_the_pool_cancels_its_jobs() -> None:
    lanes, cancelled = pool(), asyncio.Event()

    async def job() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    lanes.submit(key(0), job)
    async with at_work(lanes):
        await settle()
    assert cancelled.is_set()
    assert not lanes.last_errors
