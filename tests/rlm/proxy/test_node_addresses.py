"""Answers that name nodes, through a proxy that rewrites addresses or does not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafka_protocol.apis import (
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
)
from kafka_protocol.frames import encode_response
from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kafka_protocol.schema import Api
from rlm.proxy.own_topics import OwnTopics, unknown_ids
from rlm.proxy.responses import Assembled, ResponseCutter, altered
from rlm.proxy.session import Expected, Intercept
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeBroker,
    Log,
    Proxied,
    Value,
    World,
    asked,
    blob,
    fetch_request,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.test_pass_through import produce_request

MIB = 1 << 20
PROXY = NodeAddress(host="proxy-1.example.com", port=19_092)
KNOWN = NodeAddresses(replaced={1: PROXY}, keeps_others=True)
UNSETTLED = NodeAddresses(replaced={1: PROXY}, keeps_others=False)
OWN = {1: ("broker-1", 9_092), 2: ("broker-2", 9_092)}
OURS = {**OWN, 1: (PROXY.host, PROXY.port)}
BY_NAME = OwnTopics(ids=unknown_ids)
NOT_LEADER = 6
METADATA_REQUEST: Value = {"topics": []}


def endpoints(**more: Any) -> list[Value]:
    rows = [{"node_id": node, "host": host, "port": port} for node, (host, port) in OWN.items()]
    return [one | more for one in rows]


def metadata(version: int, _: Value = METADATA_REQUEST) -> Value:
    partition = {"partition_index": 0, "leader_id": 1}
    topics = [{"name": "t", "partitions": [partition]}]
    cluster = {"cluster_id": "c"} if version >= 2 else {}
    controller = {"controller_id": 2} if version >= 1 else {}
    return {"brokers": endpoints(), "topics": topics, **cluster, **controller}


def cluster(_: int, __: Value) -> Value:
    named = {"node_id": "broker_id"}
    rows = [{named.get(name, name): one[name] for name in one} for one in endpoints()]
    return {"cluster_id": "c", "controller_id": 2, "brokers": rows}


def coordinators(version: int, request: Value) -> Value:
    if version < 4:
        return endpoints()[int(request["key"]) - 1]
    return {
        "coordinators": [
            {"key": key, "error_code": 0, **endpoints()[int(key) - 1]}
            for key in request["coordinator_keys"]
        ]
    }


SCRIPT: dict[int, Callable[[int, Value], Value]] = {
    METADATA.key: metadata,
    DESCRIBE_CLUSTER.key: cluster,
    FIND_COORDINATOR.key: coordinators,
}


@asynccontextmanager
async def rewriting(
    nodes: NodeAddresses | None = KNOWN, **settings: Any
) -> AsyncIterator[tuple[World, RawClient]]:
    """A proxy, and a client of it."""
    logs = {(name, 0): Log(record_bytes=2_000) for name in (TOPIC, PLAIN)}
    broker = FakeBroker(script=dict(SCRIPT), logs=logs)
    async with world(broker=broker, nodes=lambda: nodes, **settings) as w:
        yield w, await w.connect()


def addresses(rows: list[Value], key: str = "node_id") -> dict[int, tuple[str, int]]:
    return {row[key]: (row["host"], row["port"]) for row in rows}


@pytest.mark.parametrize("version", range(METADATA.versions.high + 1))
async def test_metadata_names_proxies_and_keeps_all_else(version: int) -> None:
    async with rewriting() as (_, client):
        answer = await client.call(METADATA, version, METADATA_REQUEST)
        assert addresses(answer["brokers"]) == OURS
        assert answer["topics"][0]["partitions"][0]["leader_id"] == 1
        assert answer["cluster_id"] == ("c" if version >= 2 else None)
        assert answer["controller_id"] == (2 if version >= 1 else -1)


@pytest.mark.parametrize("version", range(DESCRIBE_CLUSTER.versions.high + 1))
async def test_describe_cluster_names_proxies(version: int) -> None:
    async with rewriting() as (_, client):
        answer = await client.call(DESCRIBE_CLUSTER, version, {})
        assert addresses(answer["brokers"], "broker_id") == OURS
        assert (answer["cluster_id"], answer["controller_id"]) == ("c", 2)


@pytest.mark.parametrize("version", range(FIND_COORDINATOR.versions.high + 1))
async def test_coordinators_are_where_metadata_says(version: int) -> None:
    async with rewriting() as (_, client):
        for node in OWN:
            key = {"coordinator_keys": [str(node)]} if version >= 4 else {"key": str(node)}
            answer = await client.call(FIND_COORDINATOR, version, key)
            row = answer["coordinators"][0] if version >= 4 else answer
            assert addresses([row]) == {node: OURS[node]}
            assert row["error_code"] == 0


@pytest.mark.parametrize("version", [1, 6])
async def test_h17_a_node_of_which_nothing_is_known_is_not_available(version: int) -> None:
    async with rewriting(UNSETTLED) as (_, client):
        answer = await client.call(METADATA, 12, METADATA_REQUEST)
        assert addresses(answer["brokers"]) == {1: OURS[1]}
        answer = await client.call(DESCRIBE_CLUSTER, 1, {})
        assert addresses(answer["brokers"], "broker_id") == {1: OURS[1]}
        key = {"coordinator_keys": ["2"]} if version >= 4 else {"key": "2"}
        answer = await client.call(FIND_COORDINATOR, version, key)
        row = answer["coordinators"][0] if version >= 4 else answer
        assert (row["error_code"], row["node_id"], row["host"], row["port"]) == (15, -1, "", -1)


@pytest.mark.parametrize("api", [METADATA, DESCRIBE_CLUSTER], ids=lambda api: api.name)
async def test_a_proxy_on_a_listener_of_its_own_changes_no_byte(api: Api) -> None:
    async with rewriting(None) as (w, client):
        sent = client.encode(api, 1, {})
        client.writer.write(sent)
        frame = await client.frame()
        correlation_id = int.from_bytes(frame[:4], "big")
        body = w.broker.script[api.key](1, {})
        assert frame == encode_response(api, 1, correlation_id, body)[4:]


async def test_what_is_known_by_now_counts_for_each_answer() -> None:
    nodes = [UNSETTLED]
    broker = FakeBroker(script=dict(SCRIPT))
    async with world(broker=broker, nodes=lambda: nodes[0]) as w:
        client = await w.connect()
        answer = await client.call(METADATA, 9, METADATA_REQUEST)
        assert addresses(answer["brokers"]) == {1: OURS[1]}
        nodes[0] = KNOWN
        answer = await client.call(METADATA, 9, METADATA_REQUEST)
        assert addresses(answer["brokers"]) == OURS


async def test_answers_that_are_changed_keep_their_order() -> None:
    async with rewriting() as (_, client):
        wanted: list[tuple[Api, int]] = [(METADATA, 12), (PRODUCE, 9), (METADATA, 1), (PRODUCE, 3)]
        for api, version in wanted:
            request = METADATA_REQUEST if api is METADATA else produce_request(version, PLAIN)
            client.writer.write(client.encode(api, version, request))
        for api, version in wanted:
            answer = await client.answer(api, version)
            assert ("brokers" in answer) == (api is METADATA)


def not_led(*, produce: bool) -> Value:
    """A partition whose leader is another node now."""
    leader = {"leader_id": 1, "leader_epoch": 7}
    index = {"index": 1} if produce else {"partition_index": 1, "high_watermark": -1}
    rest = {"base_offset": -1} if produce else {"records": b""}
    return {**index, **rest, "error_code": NOT_LEADER, "current_leader": leader}


@pytest.mark.parametrize("version", range(10, PRODUCE.versions.high + 1))
async def test_kip_951_produce_hints_keep_the_id_and_name_its_proxy(version: int) -> None:
    async with rewriting() as (w, client):
        ours = FakeBroker().produce

        def produce(version: int, request: Value) -> Value:
            answer = ours(version, request)
            answer["responses"][0]["partition_responses"].append(not_led(produce=True))
            return {**answer, "node_endpoints": endpoints(rack="r")}

        w.broker.script[PRODUCE.key] = produce
        answer = await client.call(PRODUCE, version, produce_request(version))
        assert addresses(answer["node_endpoints"]) == OURS
        assert [one["rack"] for one in answer["node_endpoints"]] == ["r", "r"]
        first, second = answer["responses"][0]["partition_responses"]
        assert (first["base_offset"], first["log_start_offset"]) == (7, 0)  # H22 beside it
        assert second["current_leader"] == {"leader_id": 1, "leader_epoch": 7}


class HintingBroker(FakeBroker):
    """Names the leader of a partition 1 that it does not lead, with each Fetch."""

    def _fetch_now(self, version: int, request: Value) -> tuple[Value, int, bool]:
        answer, size_bytes, _ = super()._fetch_now(version, request)
        answer["responses"][0]["partitions"].append(not_led(produce=False))
        return {**answer, "node_endpoints": endpoints()}, size_bytes, True


@asynccontextmanager
async def hinting(nodes: NodeAddresses) -> AsyncIterator[tuple[Proxied, RawClient]]:
    logs = {(name, 0): Log(record_bytes=2_000) for name in (TOPIC, PLAIN)}
    async with world(broker=HintingBroker(logs=logs), nodes=lambda: nodes) as w:
        yield w, await w.connect()


HINTING_VERSIONS = range(16, FETCH.versions.high + 1)


@pytest.mark.parametrize("topic", [TOPIC, PLAIN])
@pytest.mark.parametrize("offset", [40, 198])
@pytest.mark.parametrize("version", HINTING_VERSIONS)
async def test_kip_951_fetch_hints_keep_the_id_and_name_its_proxy(
    version: int, offset: int, topic: str
) -> None:
    """Beside records of either tier, and beside none."""
    if topic == PLAIN and offset == 40:
        return  # out of range, of which the broker's word counts
    async with hinting(KNOWN) as (_, client):
        request = fetch_request(version, asked(offset), topic=topic)
        answer = await client.call(FETCH, version, request)
        assert addresses(answer["node_endpoints"]) == OURS
        first, second = answer["responses"][0]["partitions"]
        expected = blob(40, 100) if offset == 40 else blob(198, 200, 2_000)
        assert first["records"] == expected
        assert second["error_code"] == NOT_LEADER
        assert second["current_leader"] == {"leader_id": 1, "leader_epoch": 7}


@pytest.mark.parametrize("has_splice", [True, False])
@pytest.mark.parametrize("nodes", [KNOWN, UNSETTLED])
@pytest.mark.parametrize("version", HINTING_VERSIONS)
async def test_kip_951_hints_of_an_answer_that_flows_are_hidden(
    version: int, nodes: NodeAddresses, has_splice: bool
) -> None:
    """Its length was sent before they came; the client asks for metadata then."""
    async with hinting(nodes) as (w, client):
        if not has_splice:
            w.proxy._pipes._most = 0
        request = fetch_request(version, asked(110, max_bytes=MIB), topic=PLAIN, max_bytes=MIB)
        for _ in range(2):
            answer = await client.call(FETCH, version, request)
            assert answer["node_endpoints"] == []
            first, second = answer["responses"][0]["partitions"]
            assert first["records"] == blob(110, 200, 2_000)
            assert second["error_code"] == NOT_LEADER


def wide_metadata(version: int, request: Value) -> Value:
    topics = [{"name": f"topic-{n:06d}-{'x' * 200}", "partitions": []} for n in range(12_000)]
    return {**metadata(version, request), "topics": topics}


async def test_large_metadata_is_given_to_many_clients_within_the_bound_of_memory() -> None:
    async with rewriting(memory_max_bytes=8 * MIB) as (w, _):
        w.broker.script[METADATA.key] = wide_metadata
        clients = [await w.connect() for _ in range(6)]
        answers = await asyncio.gather(
            *(client.call(METADATA, 12, METADATA_REQUEST) for client in clients)
        )
        for answer in answers:
            assert addresses(answer["brokers"]) == OURS
            assert len(answer["topics"]) == 12_000


async def test_metadata_beyond_the_largest_frame_ends_the_connection() -> None:
    async with rewriting(max_frame_bytes=MIB) as (w, client):
        w.broker.script[METADATA.key] = wide_metadata
        client.writer.write(client.encode(METADATA, 12, METADATA_REQUEST))
        assert await client.reader.read() == b""
        assert w.metrics.causes == ["bad_frame"]


async def test_an_answer_that_is_none_ends_the_connection() -> None:
    """What cannot be read could name anything."""
    async with rewriting() as (w, client):
        w.broker.raw_answers[METADATA.key] = b"\0\0\0\x7f\0"
        client.writer.write(client.encode(METADATA, 1, METADATA_REQUEST))
        assert await client.reader.read() == b""
        assert w.metrics.causes == ["bad_frame"]


@pytest.mark.parametrize("version", [0, 9, 13])
def test_an_answer_of_single_bytes_is_the_same(version: int) -> None:
    frame = encode_response(METADATA, version, 5, metadata(version))
    cutter = ResponseCutter(MIB)
    cutter.expect(
        Expected(intercept=Intercept.METADATA, api_version=version, correlation_id=5, admits=True)
    )
    outputs = [one for byte in frame for one in cutter.feed(bytes([byte]))]
    [whole] = outputs
    assert isinstance(whole, Assembled)
    found = b"".join(altered(whole, lambda *_: None, KNOWN, BY_NAME))
    at_once = Assembled(whole.expected, bytearray(frame[4:]))
    assert found == b"".join(altered(at_once, lambda *_: None, KNOWN, BY_NAME))
    assert found != frame[4:]
    assert b"".join(altered(at_once, lambda *_: None, None, BY_NAME)) == frame[4:]
