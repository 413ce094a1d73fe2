"""A pool of threads: bounded, and hung work takes no thread from other work (H17)."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kip405.errors import Busy, Unavailable
from rsm_plugins.threads import Threads
from tests.waiting import pass_time, until

HANG_MS = 100_000
"""Other work ends sooner on a busy machine, too."""
SIZE = 2


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hangs waits for it."""
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def pool() -> Iterator[Threads]:
    made = Threads("disk", SIZE, hang_ms=HANG_MS, max_pending=8)
    yield made
    made.close()


async def hung(pool: Threads, gate: threading.Event, count: int) -> None:
    """So much work hangs, as many at a time as the pool has threads."""
    begun: list[None] = []
    pass_time(0)  # the pool keeps the clock of its loop

    def work() -> None:
        begun.append(None)
        gate.wait()

    waiting = [asyncio.ensure_future(refused(pool, work)) for _ in range(count)]
    for first in range(0, count, SIZE):
        await _until_there_are(min(count, first + SIZE), begun)
        pass_time(HANG_MS / 1000)
        await asyncio.gather(*waiting[first : first + SIZE])


async def _until_there_are(count: int, begun: list[None]) -> None:
    await until(lambda: len(begun) == count)


async def refused(pool: Threads, work: Callable[[], object]) -> None:
    with pytest.raises(Unavailable, match=f"work of disk has not ended within {HANG_MS} ms"):
        await pool.run(work)


async def test_h17_what_hangs_is_reported_and_counted(pool: Threads, gate: threading.Event) -> None:
    assert pool.hung() is None
    await hung(pool, gate, 1)
    found = pool.hung()
    assert found is not None
    assert (found.pool, found.count) == ("disk", 1)
    assert found.longest_ms >= HANG_MS


async def test_h17_hung_work_takes_no_thread_from_other_work(
    pool: Threads, gate: threading.Event
) -> None:
    await hung(pool, gate, 4)
    async with asyncio.timeout(60):
        assert await pool.run(lambda: "done") == "done"
    found = pool.hung()
    assert found is not None
    assert found.count == 4


async def test_h17_who_waited_behind_what_hangs_goes_on(
    pool: Threads, gate: threading.Event
) -> None:
    async with asyncio.TaskGroup() as tasks:
        hanging = tasks.create_task(hung(pool, gate, SIZE))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        behind = tasks.create_task(pool.run(lambda: "done"))
        await asyncio.sleep(0)
        assert not hanging.done()
    assert behind.result() == "done"


async def test_h17_a_thread_that_comes_back_leaves_no_more_than_there_were(
    pool: Threads, gate: threading.Event
) -> None:
    before = threading.active_count()
    await hung(pool, gate, 4)
    gate.set()
    async with asyncio.timeout(60):
        while pool.hung() is not None or threading.active_count() > before + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # there is no event for the end of a thread
    assert await pool.run(lambda: "done") == "done"


async def test_h17_where_all_threads_hang_no_caller_waits(gate: threading.Event) -> None:
    pool = Threads("disk", 1, hang_ms=1, max_pending=1_000)
    try:
        for _ in range(17):  # one, and 16 that replaced it
            with pytest.raises(Unavailable, match="has not ended within 1 ms"):
                await pool.run(gate.wait)
        with pytest.raises(Unavailable, match="all threads of disk hang"):
            await pool.run(gate.wait)
    finally:
        pool.close()


async def test_more_than_may_wait_is_busy(gate: threading.Event) -> None:
    pool = Threads("disk", 1, max_pending=2)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await pool.run(gate.wait)
        gate.set()
    pool.close()


async def test_what_was_cancelled_before_it_began_is_not_begun(gate: threading.Event) -> None:
    pool, begun = Threads("disk", 1), list[str]()
    first = asyncio.ensure_future(pool.run(gate.wait))
    second = asyncio.ensure_future(pool.run(lambda: begun.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    await pool.run(lambda: begun.append("third"))
    assert begun == ["third"]
    pool.close()


async def test_who_gives_up_work_that_has_begun_waits_for_it(gate: threading.Event) -> None:
    pool = Threads("disk", 1, max_pending=8)
    begun = threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()

    def give_up() -> float:
        gate.set()
        return 60.0

    job, waiting = pool.begin(work), pool.begin(lambda: None)
    caller = asyncio.ensure_future(pool.result(job, give_up))
    other = asyncio.ensure_future(pool.result(waiting))
    await asyncio.to_thread(begun.wait)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert waiting.future.cancelled() and not job.future.done()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert job.future.done()
    pool.close()


async def test_errors_of_the_work_are_its_callers(pool: Threads) -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await pool.run(fail)
    assert await pool.run(max, 3, 4) == 4


async def test_a_closed_pool_begins_nothing(pool: Threads) -> None:
    pool.close()
    with pytest.raises(Unavailable, match="closed"):
        await pool.run(lambda: None)


def test_h17_the_end_of_the_process_does_not_wait_for_what_hangs() -> None:
    program = """
import asyncio, threading
from kip405.errors import Unavailable
from rsm_plugins.threads import Threads

async def main():
    try:
        await Threads("disk", 1, hang_ms=1).run(threading.Event().wait)
    except Unavailable as error:
        print(error)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert "has not ended" in done.stdout


async def test_h17_the_end_waits_for_work_that_has_begun() -> None:
    """Or what it was writing would stay behind half done: the threads die with the process."""
    pool = Threads("disk", 2)
    began, ended = threading.Event(), threading.Event()
    go_on = threading.Event()

    def work() -> None:
        began.set()
        go_on.wait()
        ended.set()

    waiting = asyncio.create_task(pool.run(work))
    while not began.is_set():  # noqa: ASYNC110 - a thread's event
        await asyncio.sleep(0.001)
    finishing = asyncio.create_task(pool.finish(60_000))
    await asyncio.sleep(0)
    assert not finishing.done()
    go_on.set()
    await finishing
    assert ended.is_set()
    await waiting


async def test_h17_the_end_waits_for_nothing_that_hangs_and_not_for_ever(
    pool: Threads, gate: threading.Event
) -> None:
    await hung(pool, gate, 1)
    async with asyncio.timeout(60):
        await pool.finish(60_000)
    slow, began = Threads("slow", 1, hang_ms=60_000), threading.Event()

    def work() -> None:
        began.set()
        gate.wait()

    job = slow.begin(work)
    while not began.is_set():  # noqa: ASYNC110 - a thread's event
        await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await slow.finish(20)
    assert not job.future.done()
