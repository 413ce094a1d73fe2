"""One connection to a broker: deadlines, several requests in flight, breaks and coming back."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kafka_protocol.apis import API_VERSIONS, DESCRIBE_CLUSTER, LIST_GROUPS, METADATA
from kafka_protocol.schema import Value
from kip405.errors import Corrupt, Unavailable
from rlm.broker.connection import BrokerConnection
from tests.builders.fake_broker import FakeBroker
from tests.waiting import until


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as made:
        made.on(DESCRIBE_CLUSTER, {"cluster_id": "c"})
        yield made


@pytest.fixture
async def connection(broker: FakeBroker) -> AsyncIterator[BrokerConnection]:
    made = BrokerConnection(broker.address, client_id="test")
    yield made
    await made.close()


async def cluster_id(connection: BrokerConnection, timeout_ms: int = 60_000) -> object:
    answer = await connection.call(DESCRIBE_CLUSTER, 0, {}, timeout_ms=timeout_ms)
    return answer["cluster_id"]


async def test_calls_share_one_connection_opened_when_needed(
    broker: FakeBroker, connection: BrokerConnection
) -> None:
    assert broker.connections == 0
    assert await asyncio.gather(*(cluster_id(connection) for _ in range(20))) == ["c"] * 20
    assert broker.connections == 1


async def test_requests_are_in_flight_together_and_answers_find_their_callers(
    broker: FakeBroker, connection: BrokerConnection
) -> None:
    def named(body: Value) -> Mapping[str, Any]:
        return {"topics": [{"name": body["topics"][0]["name"]}]}

    broker.on(METADATA, named)

    async def name_of(name: str) -> object:
        answer = await connection.call(METADATA, 9, {"topics": [{"name": name}]}, timeout_ms=60_000)
        return answer["topics"][0]["name"]

    names = [f"topic-{number}" for number in range(50)]
    assert await asyncio.gather(*map(name_of, names)) == names


async def test_a_deadline_that_passes_is_unavailable_and_the_next_call_opens_again(
    broker: FakeBroker, connection: BrokerConnection
) -> None:
    broker.on(LIST_GROUPS, lambda _: None)
    with pytest.raises(Unavailable, match=r"ListGroups v3 .* no answer within 500 ms"):
        await connection.call(LIST_GROUPS, 3, {}, timeout_ms=500)
    assert await cluster_id(connection) == "c"
    assert broker.connections == 2


async def test_a_caller_that_gives_up_harms_no_other(
    broker: FakeBroker, connection: BrokerConnection
) -> None:
    may_answer = asyncio.Event()

    async def slowly(_: Value) -> Mapping[str, Any]:
        await may_answer.wait()
        return {}

    broker.on(LIST_GROUPS, slowly)
    leaving = asyncio.ensure_future(connection.call(LIST_GROUPS, 3, {}, timeout_ms=60_000))
    await until(lambda: broker.asked(LIST_GROUPS))
    staying = asyncio.ensure_future(cluster_id(connection))
    leaving.cancel()
    await asyncio.wait([leaving])
    may_answer.set()
    assert await staying == "c"
    assert broker.connections == 1


async def test_a_broken_connection_fails_all_its_callers_and_is_opened_again(
    broker: FakeBroker, connection: BrokerConnection
) -> None:
    broker.on(LIST_GROUPS, lambda _: None)
    waiting = [
        asyncio.ensure_future(connection.call(LIST_GROUPS, 3, {}, timeout_ms=60_000))
        for _ in range(3)
    ]
    await until(lambda: len(broker.asked(LIST_GROUPS)) == 3)
    broker.drop_connections()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in results] == [Unavailable] * 3
    assert await cluster_id(connection) == "c"
    assert broker.connections == 2


async def test_a_broker_that_is_away_is_unavailable_until_it_is_back(broker: FakeBroker) -> None:
    async with FakeBroker().running() as other:
        address = other.address
    connection = BrokerConnection(address, client_id="test")
    with pytest.raises(Unavailable, match=str(address)):
        await cluster_id(connection)
    broker.address = address
    async with broker.running():
        assert await cluster_id(connection) == "c"
    await connection.close()


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff"])
async def test_bytes_that_are_not_kafka_break_the_connection(
    broker: FakeBroker, connection: BrokerConnection, garbage: bytes
) -> None:
    def rubbish(_: Value) -> None:
        broker.send_raw(garbage)

    broker.on(LIST_GROUPS, rubbish)
    with pytest.raises(Unavailable):
        await connection.call(LIST_GROUPS, 3, {}, timeout_ms=60_000)
    assert await cluster_id(connection) == "c"


@pytest.mark.parametrize(
    ("body", "what"), [(b"", "position"), (b"\0\0\0\0\0\0\0\0\0\0junk", "4 bytes after")]
)
async def test_an_answer_cut_short_or_too_long_is_corrupt(
    broker: FakeBroker, connection: BrokerConnection, body: bytes, what: str
) -> None:
    def bad(_: Value) -> None:
        frame = b"\0\0\0\x01" + body  # the first correlation id
        broker.send_raw(len(frame).to_bytes(4, "big") + frame)

    broker.on(API_VERSIONS, bad)
    with pytest.raises(Corrupt, match=rf"ApiVersions v1 to broker 127.* {what}"):
        await connection.call(API_VERSIONS, 1, {}, timeout_ms=60_000)


async def test_an_answer_without_a_caller_is_skipped(
    broker: FakeBroker, connection: BrokerConnection
) -> None:
    def twice(_: Value) -> Mapping[str, Any]:
        broker.send_raw(b"\0\0\0\x04" + b"\0\0\x30\x39")
        return {"cluster_id": "c"}

    broker.on(DESCRIBE_CLUSTER, twice)
    assert await cluster_id(connection) == "c"
    assert await cluster_id(connection) == "c"


async def test_close_fails_waiting_callers(broker: FakeBroker) -> None:
    broker.on(LIST_GROUPS, lambda _: None)
    connection = BrokerConnection(broker.address, client_id="test")
    waiting = asyncio.ensure_future(connection.call(LIST_GROUPS, 3, {}, timeout_ms=60_000))
    await until(lambda: broker.asked(LIST_GROUPS))
    await connection.close()
    with pytest.raises(Unavailable):
        await waiting
