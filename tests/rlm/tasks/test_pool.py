"""Pools: bounds, order, one job a partition, errors that stay where they belong (G6)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from kip405.errors import Busy, Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.service.tasks import build_pools
from rlm.tasks.pool import Job, TaskPool
from tests.builders.clock import ManualClock
from tests.simulation.model_service import base_config

TOPIC_ID = Uuid(bytes(16))


def key(partition: int) -> PartitionKey:
    return PartitionKey(TOPIC_ID, partition)


def made_pool(
    *, size: int = 2, queue_limit: int = 10, clock: ManualClock | None = None
) -> TaskPool:
    return TaskPool(
        "copy",
        clock or ManualClock(),
        size=size,
        queue_limit=queue_limit,
        backoff=lambda failures: 100 * 2**failures,
    )


@asynccontextmanager
async def at_work(pool: TaskPool) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pool.run())
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
    pool, gate = made_pool(size=2), asyncio.Event()
    for partition in range(5):
        assert pool.submit(key(partition), wait_for(gate))
    async with at_work(pool):
        await settle()
        assert (len(pool.running), pool.waiting_count) == (2, 3)
        gate.set()
        await settle()
        assert (len(pool.running), pool.waiting_count) == (0, 0)


async def test_a_partition_has_one_running_and_one_waiting_job() -> None:
    pool, gate = made_pool(size=4), asyncio.Event()
    events: list[str] = []
    async with at_work(pool):
        assert pool.submit(key(0), wait_for(gate, lambda: events.append("first")))
        await settle()
        assert pool.submit(key(0), note(events, "second"))
        assert not pool.submit(key(0), note(events, "third"))
        await settle()
        assert events == ["first"]
        gate.set()
        await settle()
        assert events == ["first", "second"]


async def test_a_pool_says_of_one_partition_whether_it_waits_or_runs() -> None:
    pool, gate, began = made_pool(size=1), asyncio.Event(), asyncio.Event()
    async with at_work(pool):
        pool.submit(key(0), wait_for(gate, began.set))
        await began.wait()
        pool.submit(key(1), wait_for(gate))
        assert [(pool.is_running(key(n)), pool.is_waiting(key(n))) for n in range(3)] == [
            (True, False),
            (False, True),
            (False, False),
        ]


async def test_partitions_take_turns() -> None:
    pool = made_pool(size=1)
    events: list[str] = []

    def again(name: str, partition: int) -> Job:
        async def job() -> None:
            events.append(name)
            if len(events) < 6:
                pool.submit(key(partition), again(name, partition))

        return job

    pool.submit(key(0), again("a", 0))
    pool.submit(key(1), again("b", 1))
    async with at_work(pool):
        await settle()
    assert events[:6] == ["a", "b", "a", "b", "a", "b"]


async def test_a_full_queue_says_busy() -> None:
    pool = made_pool(queue_limit=2)
    pool.submit(key(0), note([], ""))
    pool.submit(key(1), note([], ""))
    with pytest.raises(Busy, match="2 partitions wait for the copy tasks"):
        pool.submit(key(2), note([], ""))


@pytest.mark.parametrize("error", [Unavailable("store down"), ZeroDivisionError("a bug")])
async def test_an_error_stays_with_its_partition_and_backs_off(error: Exception) -> None:
    clock = ManualClock()
    pool = made_pool(clock=clock)
    events: list[str] = []
    async with at_work(pool):
        pool.submit(key(0), failing(error))
        pool.submit(key(1), note(events, "other"))
        await settle()
        assert events == ["other"]
        found = pool.last_errors[key(0)]
        assert (found.message, found.failures_in_a_row) == (f"{type(error).__name__}: {error}", 1)
        assert not pool.submit(key(0), note(events, "too early"))
        clock.advance(100)
        assert pool.submit(key(0), failing(error))
        await settle()
        assert pool.last_errors[key(0)].retry_at_ms == clock.now + 200
        assert pool.last_errors[key(0)].since_ms == clock.now - 100
        clock.advance(200)
        assert pool.submit(key(0), note(events, "well"))
        await settle()
        assert key(0) not in pool.last_errors


async def test_a_partition_led_elsewhere_is_forgotten() -> None:
    pool = made_pool(size=1)
    events: list[str] = []
    pool.submit(key(0), note(events, "old"))
    pool.forget(key(0))
    pool.submit(key(0), note(events, "new"))
    async with at_work(pool):
        await settle()
    assert events == ["new"]


async def test_forgetting_never_lets_two_jobs_of_a_partition_run() -> None:
    pool, gate, other = made_pool(size=2), asyncio.Event(), asyncio.Event()
    events: list[str] = []
    pool.submit(key(1), wait_for(other))
    pool.submit(key(0), note(events, "forgotten"))
    pool.forget(key(0))
    pool.submit(key(0), wait_for(gate))
    async with at_work(pool):
        await settle()
        assert pool.running == {key(0), key(1)}
        pool.submit(key(0), note(events, "second"))
        other.set()
        await settle()
        assert events == []
        gate.set()
        await settle()
    assert events == ["second"]


async def test_cancelling_the_pool_cancels_its_jobs() -> None:
    pool, cancelled = made_pool(), asyncio.Event()

    async def job() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    pool.submit(key(0), job)
    async with at_work(pool):
        await settle()
    assert cancelled.is_set()
    assert not pool.last_errors


async def test_partitions_that_come_last_wait_for_the_others_and_get_every_fourth_turn() -> None:
    pool, began = made_pool(size=1), list[int]()
    pool.comes_last = lambda one: one.partition >= 10

    def job(partition: int) -> Job:
        async def run() -> None:
            began.append(partition)

        return run

    for partition in (10, 11, 1, 2, 3, 4, 5):
        pool.submit(key(partition), job(partition))
    async with at_work(pool):
        await settle()
    assert began == [1, 2, 3, 10, 4, 5, 11]


async def test_tasks_that_fail_wait_as_the_settings_say() -> None:
    config = replace(
        base_config(),
        remote_log_manager_task_retry_backoff_ms=1_000,
        remote_log_manager_task_retry_backoff_max_ms=3_000,
    )
    clock = ManualClock()

    async def fail() -> None:
        raise Unavailable("the store is away")

    for pool in build_pools(config, clock, lambda _name: None):
        async with at_work(pool):
            for wait_ms in (1_000, 2_000, 3_000, 3_000):
                assert pool.submit(key(1), fail)
                await settle()
                retry_in_ms = pool.last_errors[key(1)].retry_at_ms - clock.monotonic_ms()
                assert 0.8 * wait_ms - 1 <= retry_in_ms <= 1.2 * wait_ms
                clock.advance(4_000)


async def test_g6_an_error_of_what_listens_to_the_ends_of_jobs_ends_no_other_job() -> None:
    pool, gate, events = made_pool(size=2), asyncio.Event(), list[str]()

    def ended(_key: PartitionKey) -> None:
        raise KeyError("a bug")

    async def last() -> None:
        await gate.wait()
        events.append("ended")

    pool.ended = ended
    with capture_logs() as logs:
        async with at_work(pool):
            pool.submit(key(0), last)
            pool.submit(key(1), note(events, "first"))
            await settle()
            gate.set()
            await settle()
            assert events == ["first", "ended"]
    assert [one["event"] for one in logs] == ["task_end_not_noted"] * 2


@pytest.mark.parametrize("is_at_work", [True, False])
async def test_a_larger_pool_runs_more_jobs_at_once(is_at_work: bool) -> None:
    pool, gate, began = made_pool(size=1), asyncio.Event(), list[str]()
    if not is_at_work:
        pool.change_size(3)
    async with at_work(pool):
        await settle()
        for number in range(4):
            pool.submit(key(number), wait_for(gate, lambda: began.append("began")))
        if is_at_work:
            await settle()
            assert len(began) == 1
            pool.change_size(3)
        await settle()
        assert len(began) == 3
        gate.set()
        await settle()
        assert len(began) == 4


async def test_a_pool_that_ends_takes_a_size_for_its_next_run() -> None:
    pool, began = made_pool(size=1), list[str]()
    ended, gate = asyncio.Event(), asyncio.Event()

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(pool.run())
        pool.submit(key(9), ends_slowly)
        await settle()
        task.cancel()
        await settle()
        assert not task.done()
        try:
            pool.change_size(3)
        finally:
            ended.set()
    async with at_work(pool):
        for number in range(4):
            pool.submit(key(number), wait_for(gate, lambda: began.append("began")))
        await settle()
        assert len(began) == 3


async def test_a_smaller_pool_finishes_what_runs_and_begins_fewer() -> None:
    pool, began = made_pool(size=3), list[int]()
    gates = [asyncio.Event() for _ in range(6)]

    def job(number: int) -> Job:
        return wait_for(gates[number], lambda: began.append(number))

    async with at_work(pool):
        for number in range(6):
            pool.submit(key(number), job(number))
        await settle()
        pool.change_size(1)
        for number in range(2):
            gates[number].set()
            await settle()
            assert began == [0, 1, 2], "one still runs, which is as many as may"
        for number in range(2, 5):
            gates[number].set()
            await settle()
            assert began == [*range(number + 2)]


async def test_an_idle_pool_that_became_smaller_and_larger_again_has_its_size() -> None:
    pool, gate, began = made_pool(size=5), asyncio.Event(), list[str]()
    async with at_work(pool):
        await settle()
        pool.change_size(1)
        pool.change_size(2)
        for number in range(5):
            pool.submit(key(number), wait_for(gate, lambda: began.append("began")))
        await settle()
        assert len(began) == 2


async def test_a_pool_ends_where_a_job_that_was_cancelled_fails_by_another_error() -> None:
    """As by that of a connection that was closed; the worker waited for further jobs."""
    pool, began = made_pool(size=1), asyncio.Event()

    async def fails_when_cancelled() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise Unavailable("closed")

    pool.submit(key(0), fails_when_cancelled)
    running = asyncio.ensure_future(pool.run())
    await began.wait()
    running.cancel()
    await settle()
    assert running.cancelled()


async def test_g6_a_job_that_nobody_has_cancelled_is_a_failure_and_its_worker_goes_on() -> None:
    """Without a word the pool had one worker less, and with one only did nothing any more."""
    pool, events = made_pool(size=1), list[str]()

    async def breaks_off() -> None:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    async with at_work(pool):
        pool.submit(key(0), breaks_off)
        pool.submit(key(1), note(events, "ran"))
        await settle()
        assert events == ["ran"]
        failure = pool.last_error(key(0))
        assert failure is not None and "broke off" in failure.message
