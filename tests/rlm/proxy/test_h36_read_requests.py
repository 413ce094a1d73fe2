"""H36: a request of very many partitions costs what a request of so many bytes may cost."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from rlm.proxy.partition_work import PartitionWork
from rlm.proxy.position_answers import Question, paired
from tests.builders.clock import ManualClock
from tests.rlm.proxy.fakes import FakeTier
from tests.rlm.proxy.uncounted import NoMetrics

_PARTITIONS = 120_000
"""As many as two MiB have room for."""
_MOST_AT_ONCE = 64
_MOST_CPU_S = 3.0


def test_h36_one_partition_asked_for_very_often_is_answered_in_time() -> None:
    asked = [Question(topic="t", partition=0, asked=n) for n in range(_PARTITIONS)]
    rows = [{"partition_index": 0, "offset": n} for n in range(_PARTITIONS)]
    response = {"topics": [{"name": "t", "partitions": rows}]}
    began_s = time.process_time()
    pairs = paired(asked, response, name="name", index="partition_index")
    assert time.process_time() - began_s < _MOST_CPU_S
    assert [one.asked for one, _ in pairs] == [row["offset"] for _, row in pairs]
    assert len(pairs) == _PARTITIONS


async def test_h36_partitions_are_worked_on_by_few_tasks() -> None:
    work = PartitionWork(FakeTier(), ManualClock(), NoMetrics(), wait_ms=1_000)
    before, most, done = len(asyncio.all_tasks()), 0, 0

    async def one() -> None:
        nonlocal most, done
        most = max(most, len(asyncio.all_tasks()) - before)
        await asyncio.sleep(0)
        done += 1

    each: list[Callable[[], Awaitable[None]]] = [one] * 1_000
    await work.each(each)
    assert done == len(each)
    assert most == _MOST_AT_ONCE


async def test_a_failure_of_one_partition_ends_the_others() -> None:
    work = PartitionWork(FakeTier(), ManualClock(), NoMetrics(), wait_ms=1_000)
    ended: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def fail() -> None:
        raise ConnectionError("gone")

    try:
        await work.each([wait, fail])
    except* ConnectionError:
        pass
    else:
        raise AssertionError("the failure was lost")
    assert ended == [True]
