"""So many reads at once, so many waiting, then Busy; a read's failure is its asker's alone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kip405.errors import Busy, Corrupt
from rlm.lanes.reader_pool import ReaderPool


class Jobs:
    """Jobs that run until let go; `most` is how many ran at once."""

    def __init__(self) -> None:
        self.running = self.most = self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.running += 1
        self.begun += 1
        self.most = max(self.most, self.running)
        try:
            await self.may_end.wait()
        finally:
            self.running -= 1
        return self.begun


async def steps() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def failing(error: BaseException) -> Callable[[], Awaitable[int]]:
    async def job() -> int:
        raise error

    return job


async def test_g10_threads_run_the_rest_waits_and_one_more_is_busy() -> None:
    jobs = Jobs()
    async with asyncio.TaskGroup() as tasks:
        pool = ReaderPool(tasks, threads=2, max_pending_tasks=3)
        futures = [pool.submit(jobs) for _ in range(5)]
        with pytest.raises(Busy, match="5 remote reads"):
            pool.submit(jobs)
        await steps()
        assert jobs.running == 2
        jobs.may_end.set()
        await asyncio.gather(*futures)
        assert (jobs.most, jobs.begun, pool.pending_tasks) == (2, 5, 0)
        await pool.submit(jobs)


@pytest.mark.parametrize("error", [Corrupt("bad"), RuntimeError("a bug")])
async def test_a_failure_goes_to_its_future_and_stops_nobody_else(error: Exception) -> None:
    jobs = Jobs()
    async with asyncio.TaskGroup() as tasks:
        pool = ReaderPool(tasks, threads=2, max_pending_tasks=3)
        good = pool.submit(jobs)
        bad = pool.submit(failing(error))
        unwatched = pool.submit(failing(error))
        with pytest.raises(type(error)):
            await bad
        jobs.may_end.set()
        assert await good == 1
        await asyncio.wait([unwatched])
        assert pool.pending_tasks == 0


async def test_a_job_cancelled_from_within_cancels_only_its_future() -> None:
    async with asyncio.TaskGroup() as tasks:
        pool = ReaderPool(tasks, threads=1, max_pending_tasks=3)
        bad = pool.submit(failing(asyncio.CancelledError()))
        with pytest.raises(asyncio.CancelledError):
            await bad
        jobs = Jobs()
        jobs.may_end.set()
        assert await pool.submit(jobs) == 1


async def test_an_asker_that_gives_up_its_future_frees_the_place_when_the_job_ends() -> None:
    jobs = Jobs()
    async with asyncio.TaskGroup() as tasks:
        pool = ReaderPool(tasks, threads=1, max_pending_tasks=0)
        pool.submit(jobs).cancel()
        await steps()
        with pytest.raises(Busy):
            pool.submit(jobs)
        jobs.may_end.set()
        await steps()
        assert await pool.submit(jobs) == 2


@pytest.mark.parametrize("begun", [True, False])
async def test_when_the_owner_ends_nobody_waits_for_ever(begun: bool) -> None:
    jobs = Jobs()
    waiting: list[asyncio.Future[int]] = []

    async def owner() -> None:
        async with asyncio.TaskGroup() as tasks:
            pool = ReaderPool(tasks, threads=1, max_pending_tasks=3)
            waiting.extend(pool.submit(jobs) for _ in range(3))
            if begun:
                await steps()
            raise RuntimeError("the service ends")

    with pytest.raises(ExceptionGroup):
        await owner()
    done, _ = await asyncio.wait(waiting, timeout=1)
    assert len(done) == 3 and all(one.cancelled() for one in waiting)
    assert jobs.running == 0
