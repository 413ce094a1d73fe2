"""Calls that wait for a silent service stop no others; those that work are few at a time."""

import asyncio
import threading
from concurrent import futures

import pytest

from rlm_client.read_threads import ReadThreads

_LIMIT_S = 60


def test_silent_calls_stop_no_others() -> None:
    ends = threading.Event()
    pool = ReadThreads(3, most_threads=12, silent_ms=20)
    silent = [pool.submit(ends.wait, _LIMIT_S) for _ in range(11)]
    assert pool.submit(lambda: 7).result(_LIMIT_S) == 7
    ends.set()
    assert all(one.result(_LIMIT_S) for one in silent)
    pool.shutdown()


def test_threads_are_bounded() -> None:
    ends = threading.Event()
    pool = ReadThreads(2, most_threads=4, silent_ms=1)
    silent = [pool.submit(ends.wait, _LIMIT_S) for _ in range(4)]
    last = pool.submit(threading.active_count)
    with pytest.raises(TimeoutError):
        last.result(0.2)
    ends.set()
    assert last.result(_LIMIT_S) > 0
    assert all(one.result(_LIMIT_S) for one in silent)
    pool.shutdown()


def test_few_work_at_a_time_in_order() -> None:
    lock = threading.Lock()
    began: list[int] = []
    working = most = 0
    pool = ReadThreads(2, silent_ms=60_000)

    def work(number: int) -> int:
        nonlocal working, most
        with lock:
            began.append(number)
            working += 1
            most = max(most, working)
        with lock:
            working -= 1
        return number

    found = [pool.submit(work, number) for number in range(200)]
    assert [one.result(_LIMIT_S) for one in found] == list(range(200))
    assert sorted(began) == list(range(200)) and most <= 2
    names = [one for one in threading.enumerate() if one.name.startswith("rlm-client")]
    assert len(names) <= 4, "threads are used again"
    pool.shutdown()


def test_errors_are_the_callers_and_shutdown_refuses_more() -> None:
    pool = ReadThreads()
    assert isinstance(pool.submit(lambda: 1 // 0).exception(_LIMIT_S), ZeroDivisionError)
    pool.shutdown(wait=False)
    with pytest.raises(RuntimeError):
        pool.submit(int)


def test_what_waits_can_be_cancelled() -> None:
    ends = threading.Event()
    pool = ReadThreads(1, silent_ms=60_000)
    first = pool.submit(ends.wait, _LIMIT_S)
    waiting = [pool.submit(int) for _ in range(3)]
    pool.shutdown(wait=False, cancel_futures=True)
    ends.set()
    assert first.result(_LIMIT_S)
    done, _ = futures.wait(waiting, _LIMIT_S)
    assert len(done) == 3 and all(one.cancelled() for one in done)


async def test_it_is_an_executor_of_a_loop() -> None:
    pool = ReadThreads()
    assert await asyncio.get_running_loop().run_in_executor(pool, lambda: "x") == "x"
    pool.shutdown()
