"""Work that need not wait ends at once; other work goes on in its awaiter, as in a task."""

import asyncio
import gc
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from rlm.proxy.begun import Begun, Steps, begin, in_task


async def ready(value: int) -> int:
    return value


async def failing() -> int:
    raise ValueError("at once")


async def test_work_that_need_not_wait_ends_at_once() -> None:
    assert begin(ready(5)) == 5
    with pytest.raises(ValueError, match="at once"):
        begin(failing())


async def test_work_goes_on_where_it_waited() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    steps = []

    async def work() -> int:
        steps.append("begun")
        found = await first
        await asyncio.sleep(0)
        steps.append("gone on")
        return found + await ready(1)

    begun = begin(work())
    assert isinstance(begun, Begun) and steps == ["begun"]
    waiting = asyncio.ensure_future(wait_for(begun))
    await asyncio.sleep(0)
    assert steps == ["begun"]
    first.set_result(6)
    assert await waiting == 7 and steps == ["begun", "gone on"]


async def wait_for(begun: Begun[int]) -> int:
    return await begun


async def test_work_that_waited_for_what_was_ready_meanwhile_goes_on() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await first

    begun = begin(work())
    first.set_result(3)
    assert isinstance(begun, Begun)
    assert await begun == 3


@pytest.mark.parametrize("first_waits", [True, False])
async def test_cancelling_the_awaiter_cancels_the_work(*, first_waits: bool) -> None:
    seen = []

    async def work() -> int:
        try:
            await asyncio.sleep(0 if not first_waits else 60)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return 1

    begun = begin(work())
    assert isinstance(begun, Begun)
    task = asyncio.ensure_future(wait_for(begun))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_work_may_answer_a_cancellation() -> None:
    async def work() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 9
        return 1

    begun = begin(work())
    assert isinstance(begun, Begun)
    task = asyncio.ensure_future(wait_for(begun))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 9


async def test_an_error_after_the_first_step_is_the_awaiters() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        raise ValueError("later")

    begun = begin(work())
    assert isinstance(begun, Begun)
    with pytest.raises(ValueError, match="later"):
        await begun


async def test_work_that_nobody_awaits_is_closed() -> None:
    seen = []

    async def work() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("closed")
        return 1

    begun = begin(work())
    assert isinstance(begun, Begun) and not seen
    del begun
    gc.collect()
    assert seen == ["closed"]


class Owner:
    """Runs steps in a group of its own, and remembers what happened."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.steps = Steps(self._create_task, self._ended)
        self.events: list[str] = []
        self.tasks = 0
        self.following: list[Coroutine[Any, None, None]] = []
        self._group = group

    def _create_task(self, work: Coroutine[Any, None, None]) -> asyncio.Task[None]:
        self.tasks += 1
        return self._group.create_task(work)

    def _ended(self) -> None:
        self.events.append("ended")
        if self.following:
            self.steps.start(self.following.pop())

    async def asking(self) -> None:
        """Waits for what the steps are told of."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.steps.awaited = future
        try:
            self.events.append(await future)
        finally:
            self.events.append("left")

    def answer(self, text: str) -> None:
        assert self.steps.awaited is not None
        self.steps.awaited.set_result(text)
        self.steps.go_on()


async def test_what_waits_for_the_awaited_alone_needs_no_task() -> None:
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)
        owner.following.append(owner.asking())
        owner.steps.start(owner.asking())
        owner.answer("one")
        assert owner.events == ["one", "left", "ended"]
        owner.answer("two")
        assert owner.events[3:] == ["two", "left", "ended"] and not owner.tasks
        owner.steps.go_on()  # nothing waits


async def test_other_waits_are_in_a_task_and_it_is_one_from_there_on() -> None:
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)

        async def work() -> None:
            await owner.asking()
            await in_task()
            async with asyncio.timeout(60), asyncio.TaskGroup() as inner:
                inner.create_task(asyncio.sleep(0))
            task = asyncio.current_task()
            await in_task()
            assert task is asyncio.current_task() is not None
            await owner.asking()

        owner.steps.start(work())
        owner.answer("one")
        assert owner.tasks == 1 and "ended" not in owner.events
        for _ in range(20):
            await asyncio.sleep(0)
        owner.answer("two")
        for _ in range(3):
            await asyncio.sleep(0)
        assert owner.events == ["one", "left", "two", "left", "ended"]


async def test_h36_works_that_end_at_once_are_not_within_one_another() -> None:
    """As many as one read of a client has; within one another they exceed the recursion limit."""
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)

        async def work() -> None:
            owner.events.append("work")

        def ended() -> None:
            if len(owner.events) < 6:
                owner.steps.start(work())
            owner.events.append("started")

        owner.steps = Steps(group.create_task, ended)
        owner.steps.start(work())
        assert owner.events == ["work", "started"] * 4


@pytest.mark.parametrize("later", [True, False])
async def test_an_error_of_a_work_ends_the_group(*, later: bool) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            owner = Owner(group)

            async def work() -> None:
                if later:
                    await owner.asking()
                raise ValueError("broken")

            owner.steps.start(work())
            if later:
                owner.answer("one")
            await asyncio.sleep(60)
    assert "broken" in str(raised.value.exceptions[0]) and "ended" not in owner.events


async def broken_off() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("in_a_task", [True, False])
async def test_a_cancellation_by_nobody_ends_the_group(*, in_a_task: bool) -> None:
    """A group goes on when a task was cancelled: the work's owner would wait for ever."""
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            owner = Owner(group)

            async def work() -> None:
                if in_a_task:
                    await in_task()
                await broken_off()

            asyncio.get_running_loop().call_soon(owner.steps.start, work())
            await asyncio.sleep(60)
    [error] = raised.value.exceptions
    assert isinstance(error, RuntimeError) and "nobody" in str(error) and not owner.events


@pytest.mark.parametrize("in_a_task", [True, False])
async def test_an_error_behind_a_work_ends_the_group(*, in_a_task: bool) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:

            async def work() -> None:
                if in_a_task:
                    await in_task()

            def ended() -> None:
                raise ValueError("behind it")

            steps = Steps(group.create_task, ended)
            asyncio.get_running_loop().call_soon(steps.start, work())
            await asyncio.sleep(60)
    assert "behind it" in str(raised.value.exceptions[0])


async def test_a_work_that_only_lets_others_run_goes_on() -> None:
    """It waits for nothing, and of that nobody is told that it has come."""
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)

        async def work() -> None:
            await asyncio.sleep(0)
            owner.events.append("gone on")

        owner.steps.start(work())
        for _ in range(4):
            await asyncio.sleep(0)
        assert owner.events == ["gone on", "ended"]


@pytest.mark.parametrize("needs_task", [True, False])
async def test_a_group_that_is_ending_takes_nothing_and_nothing_is_left(
    *, needs_task: bool
) -> None:
    refused = []

    def refuse(work: Coroutine[Any, None, None]) -> asyncio.Task[None]:
        refused.append(work)
        raise RuntimeError("the group is shutting down")

    async def work() -> None:
        try:
            if needs_task:
                await in_task()
            raise ValueError("broken")
        finally:
            seen.append("left")

    seen: list[str] = []
    steps = Steps(refuse, lambda: seen.append("ended"))
    asyncio.get_running_loop().call_soon(steps.start, work())
    await asyncio.sleep(0)
    assert seen == ["left"]
    assert [inspect.getcoroutinestate(one) for one in refused] == [inspect.CORO_CLOSED]


async def test_a_stopped_work_is_closed_where_it_waits() -> None:
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)
        work = owner.asking()
        owner.steps.start(work)
        owner.steps.stop()
        assert owner.events == ["left"] and not owner.tasks
        owner.steps.go_on()
        assert owner.events == ["left"]


async def test_a_stopped_work_that_is_in_a_task_is_cancelled() -> None:
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)

        async def work() -> None:
            await in_task()
            await owner.asking()

        owner.steps.start(work())
        for _ in range(2):
            await asyncio.sleep(0)
        owner.steps.stop()
        for _ in range(3):
            await asyncio.sleep(0)
        assert owner.events == ["left"]


async def test_a_work_that_is_stopped_before_the_first_step_of_its_task_leaves_nothing() -> None:
    gc.disable()
    try:
        async with asyncio.TaskGroup() as group:
            owner = Owner(group)

            async def work() -> None:
                try:
                    await in_task()
                finally:
                    owner.events.append("left")

            loop = asyncio.get_running_loop()
            loop.call_soon(owner.steps.start, work())
            loop.call_soon(owner.steps.stop)
            await asyncio.sleep(0)
        assert (owner.tasks, owner.events) == (1, ["left"])
    finally:
        gc.enable()


async def test_a_work_that_stops_its_owner_is_closed_at_its_next_wait() -> None:
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)

        async def work() -> None:
            owner.steps.stop()
            await owner.asking()

        owner.steps.start(work())
        assert owner.events == ["left"] and not owner.tasks


async def test_nothing_is_begun_after_the_end() -> None:
    async with asyncio.TaskGroup() as group:
        owner = Owner(group)

        async def work() -> None:
            owner.steps.start(owner.asking())
            owner.steps.stop()

        owner.steps.start(work())
        owner.steps.start(owner.asking())
        assert owner.events == ["ended"] and owner.steps.awaited is None
