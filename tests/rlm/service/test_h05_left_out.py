"""Partitions that the embedding program has not added have no task, by whatever way it comes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.errors import Fenced, Unavailable
from kip405.ids import TopicIdPartition
from rlm.broker.leadership import LedPartition, Snapshot
from rlm.clock import next_turn
from rlm.plans.problems import ProblemKind
from rlm.service.broker_service import BrokerService
from rlm.service.tasks import TaskWiring
from rlm.tasks.assignment import Assignment
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.pool import TaskPool
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.rig import Rig
from tests.builders.service import NODE_ID, built_service

KIND = ProblemKind.PARTITION_LEFT_OUT
ADDED = LedPartition(
    topic_id_partition=PARTITION,
    leader=NODE_ID,
    leader_epoch=0,
    replicas=(NODE_ID,),
    isr=(NODE_ID,),
)
LEFT_OUT = replace(
    ADDED,
    topic_id_partition=TopicIdPartition(
        topic_id=PARTITION.topic_id, topic=PARTITION.topic, partition=PARTITION.partition + 1
    ),
)
ELSEWHERE = replace(
    ADDED,
    leader=NODE_ID + 1,
    topic_id_partition=TopicIdPartition(
        topic_id=PARTITION.topic_id, topic=PARTITION.topic, partition=PARTITION.partition + 2
    ),
)


class _Clock(ManualClock):
    """Others have their turn while somebody sleeps."""

    async def sleep_ms(self, duration_ms: float) -> None:
        await super().sleep_ms(duration_ms)
        await next_turn()


@asynccontextmanager
async def leading(path: Path, assignment: Assignment) -> AsyncIterator[BrokerService]:
    """A service whose broker leads ADDED and LEFT_OUT, both of an enabled topic. Ledger and
    settings were never read, so each task that begins fails, and its pool says of which partition.
    """
    rig = Rig(path / "rig")
    rig.enable()
    async with built_service(path, _Clock(), assignment=assignment) as service:
        service.dependencies.metadata.settings.view = rig.settings.view
        rows = {one.key: one for one in (ADDED, LEFT_OUT, ELSEWHERE)}
        service.dependencies.leadership.snapshot = Snapshot(taken_at_ms=1, partitions=rows)
        yield service


def pools(tasks: TaskWiring) -> tuple[TaskPool, TaskPool]:
    return tasks.partition_tasks.copy_pool, tasks.partition_tasks.cleanup_pool


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await next_turn()


async def test_the_schedules_begin_tasks_of_what_was_added_alone(tmp_path: Path) -> None:
    async with leading(tmp_path, Assignment([ADDED.topic_partition])) as service:
        tasks = service.tasks
        copies, cleanups = pools(tasks)
        works = [copies.run(), cleanups.run(), tasks.run_copies(), tasks.run_cleanups()]
        running = [asyncio.ensure_future(one) for one in works]
        await until(lambda: copies.last_errors and cleanups.last_errors)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert set(copies.last_errors) == set(cleanups.last_errors) == {ADDED.key}


async def test_a_task_that_waited_when_its_partition_was_removed_does_nothing(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path, Assignment([ADDED.topic_partition])) as service:
        tasks, ran = service.tasks, list[LedPartition]()

        async def run(led: LedPartition) -> None:
            ran.append(led)

        await tasks._if_it_may(run)(ADDED)
        await tasks._if_it_may(run)(LEFT_OUT)
        assert ran == [ADDED]
        await tasks._run_expiration(LEFT_OUT, None)
        with pytest.raises(Unavailable):
            await tasks._run_expiration(ADDED, None)
        with pytest.raises(Fenced, match="was not added"):
            await tasks._see(LEFT_OUT)


async def test_commands_copy_and_trim_nothing_of_it(tmp_path: Path) -> None:
    async with leading(tmp_path, Assignment([ADDED.topic_partition])) as service:
        tasks = service.tasks
        assert LEFT_OUT in tasks.copy_runs._led(), "so that its report says why"
        request = CopyRequest(up_to_offset=None)
        refused: tuple[Callable[[], Awaitable[None]], ...] = (
            lambda: tasks.run_copy(LEFT_OUT, request),
            lambda: tasks.copy_runs._copy(LEFT_OUT, request),
            lambda: tasks.copy_runs._trim(LEFT_OUT, 0),
        )
        for ask in refused:
            with pytest.raises(Fenced, match="was not added"):
                await ask()
        with pytest.raises(Unavailable):
            await tasks.run_copy(ADDED, request)


async def test_what_is_added_is_copied_at_once_and_what_is_not_led_is_not(tmp_path: Path) -> None:
    async with leading(tmp_path, Assignment([])) as service:
        tasks = service.tasks
        tasks.add({LEFT_OUT.topic_partition, ELSEWHERE.topic_partition})
        copies, _ = pools(tasks)
        assert copies.is_waiting(LEFT_OUT.key)
        assert copies.waiting_count == 1
        assert [one.key for one in tasks.left_out()] == [ADDED.key]


async def test_a_removal_waits_for_the_tasks_of_its_partitions_alone(tmp_path: Path) -> None:
    added = [one.topic_partition for one in (ADDED, LEFT_OUT)]
    async with leading(tmp_path, Assignment(added)) as service:
        tasks, ends = service.tasks, {pool.name: asyncio.Event() for pool in pools(service.tasks)}
        running = [asyncio.ensure_future(pool.run()) for pool in pools(tasks)]
        for pool in pools(tasks):
            pool.submit(ADDED.key, cast(Any, ends[pool.name].wait))
        await until(lambda: all(pool.is_running(ADDED.key) for pool in pools(tasks)))
        async with asyncio.timeout(60):
            await tasks.remove({LEFT_OUT.topic_partition})
        removal = asyncio.ensure_future(tasks.remove({ADDED.topic_partition}))
        for pool in pools(tasks):
            for _ in range(20):
                await asyncio.sleep(0)
            assert not removal.done()
            ends[pool.name].set()
        async with asyncio.timeout(60):
            await removal
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_h38_what_is_left_out_is_among_the_problems_of_the_service(tmp_path: Path) -> None:
    async with leading(tmp_path, Assignment([ADDED.topic_partition])) as service:
        found = [one for one in service._problems.current() if one.kind is KIND]
    assert [one.subject for one in found] == [str(LEFT_OUT.topic_partition)]


async def test_a_service_without_an_assignment_leaves_nothing_out(tmp_path: Path) -> None:
    async with leading(tmp_path, Assignment(None)) as service:
        assert service.tasks.left_out() == ()
        assert {one.key for one in service.tasks.led()} == {ADDED.key, LEFT_OUT.key}
