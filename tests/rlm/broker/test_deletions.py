"""DeleteRecords over real sockets: sent in time or not at all, none behind another (H41)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kafka_protocol.apis import API_VERSIONS, DELETE_RECORDS
from kafka_protocol.schema import Value
from kip405.errors import Fenced, Unavailable
from kip405.ids import TopicPartition
from rlm.broker.deletions import RecordDeletions
from rlm.broker.own_broker import OwnBroker
from rlmm.publisher import OutcomeUnknown
from tests.builders.clock import ManualClock
from tests.builders.fake_broker import FakeBroker

DRAIN_MS = 5_000
HOLD_MS = 20_000


class HoldingBroker(FakeBroker):
    """Holds each DeleteRecords until released; `executed` in the order in which they came in."""

    def __init__(self) -> None:
        super().__init__()
        self.executed: list[int] = []
        self.arrived = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()
        self.error_code = 0
        self.on(DELETE_RECORDS, self._delete)

    async def _delete(self, body: Value) -> Mapping[str, Any]:
        topic = body["topics"][0]
        row = topic["partitions"][0]
        self.executed.append(row["partition_index"])
        self.arrived.release()
        await self.may_answer.wait()
        found = {
            "partition_index": row["partition_index"],
            "low_watermark": row["offset"],
            "error_code": self.error_code,
        }
        return {"topics": [{"name": topic["name"], "partitions": [found]}]}


@pytest.fixture
async def broker() -> AsyncIterator[HoldingBroker]:
    async with HoldingBroker().running() as made:
        assert isinstance(made, HoldingBroker)
        yield made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def own(broker: HoldingBroker) -> AsyncIterator[OwnBroker]:
    made = OwnBroker(broker.address, client_id="test", timeout_ms=60_000)
    yield made
    await made.close()


def deletions_of(
    own: OwnBroker,
    clock: ManualClock,
    *,
    at_once: int = 20,
    had_predecessor: bool = False,
    answer_slack_ms: int = 1_000,
) -> RecordDeletions:
    return RecordDeletions(
        own.deletion_connection,
        clock,
        at_once=at_once,
        drain_ms=DRAIN_MS,
        had_predecessor=had_predecessor,
        answer_slack_ms=answer_slack_ms,
    )


async def delete(
    deletions: RecordDeletions, partition: int, *, within_ms: int = 20_000, hold_ms: int = HOLD_MS
) -> int:
    async with deletions.prepared(TopicPartition("t", partition), within_ms=within_ms) as prepared:
        return await prepared.send(10, hold_ms=hold_ms)


async def test_h41_a_trim_that_is_held_delays_no_other(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock)
    async with asyncio.TaskGroup() as tasks:
        for partition in range(10):
            tasks.create_task(delete(deletions, partition))
        for _ in range(10):  # all ten arrive while none of them is answered
            await broker.arrived.acquire()
        assert sorted(broker.executed) == list(range(10))
        broker.may_answer.set()


async def test_h41_what_finds_no_free_connection_in_time_is_never_sent(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock, at_once=1)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(delete(deletions, 0))
        await broker.arrived.acquire()
        with pytest.raises(Unavailable, match="not sent"):
            await delete(deletions, 1, within_ms=50)
        broker.may_answer.set()
    assert first.result() == 10
    assert await delete(deletions, 2) == 10, "its slot is free again"
    assert broker.executed == [0, 2]
    assert not deletions.unknown


async def test_h41_nothing_is_sent_where_the_broker_is_silent(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock, at_once=1)
    broker.on(API_VERSIONS, lambda _: None)
    with pytest.raises(Unavailable, match="not sent"):
        await delete(deletions, 0, within_ms=50)
    assert broker.executed == []
    assert not deletions.unknown
    broker.on(API_VERSIONS, {"error_code": 0, "api_keys": []})
    broker.may_answer.set()
    assert await delete(deletions, 0) == 10, "the slot of the one that failed is free again"


async def test_h41_a_lost_connection_leaves_it_unknown(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock)
    async with asyncio.TaskGroup() as tasks:
        deleting = tasks.create_task(failure_of(delete(deletions, 0)))
        await broker.arrived.acquire()
        broker.drop_connections()
    assert isinstance(deleting.result(), OutcomeUnknown)
    assert dict(deletions.unknown) == {TopicPartition("t", 0): 10}
    with pytest.raises(Unavailable, match="another DeleteRecords is not known"):
        await delete(deletions, 0)
    assert broker.executed == [0]


async def test_h41_no_answer_in_time_leaves_it_unknown(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock, answer_slack_ms=0)
    with pytest.raises(OutcomeUnknown, match="no answer within 50 ms"):
        await delete(deletions, 0, hold_ms=50)
    assert dict(deletions.unknown) == {TopicPartition("t", 0): 10}


async def test_h41_a_question_from_before_the_connection_was_closed_proves_nothing(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock)
    topic_partition = TopicPartition("t", 0)
    deleting = asyncio.ensure_future(failure_of(delete(deletions, 0)))
    await broker.arrived.acquire()

    async def log_start() -> int:
        clock.advance(1)
        broker.drop_connections()
        await deleting
        return 0

    with pytest.raises(Unavailable, match="not known yet"):
        await deletions.settle(topic_partition, log_start)
    clock.advance(DRAIN_MS)
    with pytest.raises(Unavailable, match="not known yet"):
        await deletions.settle(topic_partition, log_start)
    clock.advance(DRAIN_MS)
    await deletions.settle(topic_partition, log_start)


async def test_h41_a_refusal_is_an_answer(
    broker: HoldingBroker, own: OwnBroker, clock: ManualClock
) -> None:
    deletions = deletions_of(own, clock)
    broker.may_answer.set()
    broker.error_code = 6
    with pytest.raises(Fenced):
        await delete(deletions, 0)
    broker.error_code = 7
    with pytest.raises(Unavailable) as raised:
        await delete(deletions, 0)
    assert not isinstance(raised.value, OutcomeUnknown)
    assert not deletions.unknown


async def test_h41_a_predecessors_trims_are_waited_for(own: OwnBroker, clock: ManualClock) -> None:
    deletions = deletions_of(own, clock, had_predecessor=True)
    asked_at_ms: list[int] = []

    async def log_start() -> int:
        asked_at_ms.append(clock.monotonic_ms())
        return 0

    began_at_ms = clock.monotonic_ms()
    await deletions.settle(TopicPartition("t", 0), log_start)
    assert asked_at_ms == [began_at_ms, began_at_ms + DRAIN_MS]
    await deletions.settle(TopicPartition("t", 1), log_start)
    assert len(asked_at_ms) == 2, "it was the same broker"


async def failure_of(work: Any) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - a result, for the test to look at
        return error
    return None
