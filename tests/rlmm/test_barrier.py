"""Single flight of end offsets (H17), and the verdict on a topic (H6)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.end_offsets import EndOffsets
from rlmm.topic import TopicGuard, ledger_spec, settings_spec
from tests.rlmm.builders import uuid

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


class Cluster:
    """Answers end offsets when the test says."""

    def __init__(self) -> None:
        self.end = 0
        self.requests: list[tuple[TopicPartition, asyncio.Future[int]]] = []

    async def fetch(self, topic_partition: TopicPartition) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.requests.append((topic_partition, answer))
        return await answer

    def answer(self, end: int) -> None:
        self.requests.pop(0)[1].set_result(end)


@contextlib.asynccontextmanager
async def serving(cluster: Cluster) -> AsyncIterator[EndOffsets]:
    ends = EndOffsets(cluster.fetch)
    async with asyncio.TaskGroup() as group:
        server = group.create_task(ends.run())
        yield ends
        server.cancel()


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_h17_a_caller_during_a_request_waits_for_the_next_one() -> None:
    cluster = Cluster()
    async with serving(cluster) as ends, asyncio.TaskGroup() as group:
        first = group.create_task(ends.end_offset(PARTITION))
        await _settle()
        late = [group.create_task(ends.end_offset(PARTITION)) for _ in range(5)]
        await _settle()
        assert len(cluster.requests) == 1
        cluster.answer(10)
        await _settle()
        assert first.result() == 10
        assert not any(task.done() for task in late)
        assert len(cluster.requests) == 1
        cluster.answer(20)
        await _settle()
        assert [task.result() for task in late] == [20] * 5


@pytest.mark.parametrize("runs", [True, False])
async def test_g10_callers_that_left_while_nobody_answers_leave_nothing_behind(runs: bool) -> None:
    """Each barrier has a deadline; a broker may need longer, or the log is not read yet."""
    cluster = Cluster()
    ends = EndOffsets(cluster.fetch)
    async with asyncio.TaskGroup() as group:
        others = len(asyncio.all_tasks())
        server = group.create_task(ends.run()) if runs else None
        for _ in range(50):
            leaving = group.create_task(ends.end_offset(PARTITION))
            await _settle()
            leaving.cancel()
            await _settle()
        server = server or group.create_task(ends.run())
        late = group.create_task(ends.end_offset(PARTITION))
        await _settle()
        left_behind = len(asyncio.all_tasks()) - others - len({server, late})
        while cluster.requests:
            cluster.answer(10)
            await _settle()
        assert late.result() == 10
        server.cancel()
        assert left_behind <= 2, "more than the request that hangs, and the next one"


async def test_a_partition_that_does_not_answer_delays_no_other() -> None:
    cluster = Cluster()
    async with serving(cluster) as ends, asyncio.TaskGroup() as group:
        stuck = group.create_task(ends.end_offset(PARTITION))
        await _settle()
        fine = group.create_task(ends.end_offset(OTHER))
        await _settle()
        cluster.requests.pop(1)[1].set_result(5)
        assert await fine == 5
        cluster.answer(1)
        assert await stuck == 1


async def test_an_error_reaches_its_callers_and_the_next_asks_again() -> None:
    cluster = Cluster()
    async with serving(cluster) as ends, asyncio.TaskGroup() as group:
        failing = group.create_task(_expect_unavailable(ends))
        await _settle()
        cluster.requests.pop(0)[1].set_exception(Unavailable("no leader"))
        await failing
        again = group.create_task(ends.end_offset(PARTITION))
        await _settle()
        cluster.answer(3)
        assert await again == 3


async def _expect_unavailable(ends: EndOffsets, why: str = "no leader") -> None:
    with pytest.raises(Unavailable, match=why):
        await ends.end_offset(PARTITION)


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    cluster = Cluster()
    async with serving(cluster) as ends, asyncio.TaskGroup() as group:
        hurried = group.create_task(ends.end_offset(PARTITION))
        patient = group.create_task(ends.end_offset(PARTITION))
        await _settle()
        hurried.cancel()
        cluster.answer(4)
        assert await patient == 4


def test_h06_the_topics_are_made_as_designed() -> None:
    spec = ledger_spec(3)
    assert (spec.name, spec.partition_count) == ("__rlm_remote_log_metadata", 50)
    assert spec.configs["min.insync.replicas"] == "2"
    assert spec.faults(spec.configs, 50) is None
    single = settings_spec(1)
    assert (single.name, single.partition_count) == ("__rlm_settings", 1)
    assert single.configs["min.insync.replicas"] == "1"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"cleanup.policy": "delete"}, "cleanup.policy"),
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy"),
        ({"unclean.leader.election.enable": "true"}, "unclean"),
        ({"message.timestamp.type": "CreateTime"}, "timestamp"),
        ({"min.insync.replicas": "1"}, "insync"),
        ({"min.insync.replicas": ""}, "insync"),
    ],
)
def test_h06_a_differently_configured_topic_is_a_problem(
    change: Mapping[str, str], fault: str
) -> None:
    guard = TopicGuard(ledger_spec(3), uuid(1))
    guard.check((uuid(1), {**guard.spec.configs, **change}, 50))
    assert fault in (guard.problem or "")
    assert not guard.is_lost
    guard.check((uuid(1), guard.spec.configs, 50))
    assert guard.problem is None


def test_h06_a_missing_or_recreated_topic_is_lost() -> None:
    guard = TopicGuard(ledger_spec(1), None)
    guard.check((uuid(1), guard.spec.configs, 49))
    assert "49 partitions" in (guard.problem or "")
    assert guard.topic_id is None
    guard.check((uuid(1), guard.spec.configs, 50))
    assert _verdict(guard) == (False, "")
    guard.check(None)
    remedy = "see rlm ledger rebuild"
    assert _verdict(guard) == (True, f"topic {guard.spec.name} is missing; {remedy}")
    guard.check((uuid(2), guard.spec.configs, 50))
    is_lost, problem = _verdict(guard)
    assert is_lost
    assert "recreated" in problem


def _verdict(guard: TopicGuard) -> tuple[bool, str]:
    return guard.is_lost, guard.problem or ""


@pytest.mark.parametrize("how", ["cancelled", "broken", "before it began"])
async def test_h17_barriers_work_again_after_the_metadata_log_was_begun_again(how: str) -> None:
    """The supervisor runs it again after a crash; every partition asked for is answered."""
    cluster = Cluster()
    ends = EndOffsets(cluster.fetch)
    life = asyncio.ensure_future(ends.run())
    asking = [asyncio.ensure_future(ends.end_offset(PARTITION))]
    if how != "before it began":
        await _settle()
        asking.append(asyncio.ensure_future(ends.end_offset(PARTITION)))
        await _settle()
    if how == "broken":
        cluster.requests.pop(0)[1].set_exception(KeyError("a bug below"))
    else:
        life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    cluster.requests.clear()
    if how != "before it began":
        assert [type(one) for one in await asyncio.gather(*asking, return_exceptions=True)] == [
            Unavailable,
            Unavailable,
        ]
    again = asyncio.ensure_future(ends.run())
    late = asyncio.ensure_future(ends.end_offset(PARTITION))
    await _settle()
    cluster.answer(7)
    assert await late == 7
    if how == "before it began":
        assert await asking[0] == 7
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_h17_a_question_between_two_runs_is_served_by_the_next_one() -> None:
    cluster = Cluster()
    async with serving(cluster) as ends:
        await _settle()
    between = asyncio.ensure_future(ends.end_offset(PARTITION))
    await _settle()
    again = asyncio.ensure_future(ends.run())
    await _settle()
    cluster.answer(7)
    assert await between == 7
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_a_question_that_nobody_has_cancelled_and_ends_so_is_an_error_of_its_callers() -> (
    None
):
    cluster = Cluster()
    async with serving(cluster) as ends, asyncio.TaskGroup() as group:
        failing = group.create_task(_expect_unavailable(ends, "broke off"))
        await _settle()
        cluster.requests.pop(0)[1].cancel()
        await asyncio.wait_for(failing, 60)
        later = group.create_task(ends.end_offset(PARTITION))
        await _settle()
        cluster.answer(7)
        assert await later == 7
