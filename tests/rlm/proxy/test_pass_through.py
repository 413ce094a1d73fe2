"""All that is not Fetch or a position: opaque bytes, order, limits, how connections end."""

import asyncio
import random
import time
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from kafka_protocol.apis import API_VERSIONS, FETCH, LIST_OFFSETS, PRODUCE
from kip405.errors import Unavailable
from tests.rlm.proxy.border import ONE_PROCESS, WORKER
from tests.rlm.proxy.fakes import (
    IDS,
    PLAIN,
    TOPIC,
    FakeBroker,
    Log,
    Value,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient

UNKNOWN_KEY = 999
PRODUCE_VERSIONS = range(3, PRODUCE.versions.high + 1)


def raw_request(api_key: int, correlation_id: int, body: bytes) -> bytes:
    head = api_key.to_bytes(2, "big") + b"\0\0" + correlation_id.to_bytes(4, "big")
    frame = head + b"\xff\xff" + body  # no client id
    return len(frame).to_bytes(4, "big") + frame


def produce_request(version: int, topic: str = TOPIC, acks: int = 1) -> Value:
    key = {"name": topic} if version <= 12 else {"topic_id": IDS[topic]}
    data = [{"index": 0, "records": b"r" * 50}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": [{**key, "partition_data": data}]}


async def ended(client: RawClient) -> bool:
    async with asyncio.timeout(60):
        try:
            return await client.reader.read() == b""
        except ConnectionError:
            return True


async def test_unknown_apis_pass_byte_for_byte_whatever_their_size() -> None:
    broker = FakeBroker(raw_answers={UNKNOWN_KEY: b"answer" * 300_000})
    async with world(broker=broker) as w:
        client = await w.connect()
        body = b"question" * 200_000
        client.writer.write(raw_request(UNKNOWN_KEY, 5, body))
        frame = await client.frame()
        assert frame == b"\0\0\0\x05" + b"answer" * 300_000
        [(_, seen)] = w.broker.seen
        assert seen.endswith(body)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_h22_produce_answers_show_the_remote_log_start(version: int) -> None:
    async with world() as w:
        client = await w.connect()
        for topic, start in ((TOPIC, 0), (PLAIN, 100)):
            request = produce_request(version, topic)
            if version < 5:
                w.broker.script[PRODUCE.key] = lambda version, value: {"responses": []}
            answer = await client.call(PRODUCE, version, request)
            if version >= 5:
                [partition] = answer["responses"][0]["partition_responses"]
                assert (partition["base_offset"], partition["log_start_offset"]) == (7, start)


async def test_h22_a_negative_log_start_stays() -> None:
    async with world() as w:
        w.broker.logs[TOPIC, 0] = Log(start=-1)
        client = await w.connect()
        answer = await client.call(PRODUCE, 9, produce_request(9))
        assert answer["responses"][0]["partition_responses"][0]["log_start_offset"] == -1


async def test_g6_produce_and_local_fetches_never_wait_for_the_tier() -> None:
    async with world() as w:
        w.tier.hang = True
        w.tier.gate.clear()
        w.tier.error = w.tier.watermarks_error = Unavailable("all is down")
        client = await w.connect()
        for is_ready in (False, True):
            w.tier.is_ready = is_ready
            began = time.monotonic()
            await client.call(PRODUCE, 9, produce_request(9))
            request = fetch_request(12, asked(150), max_wait_ms=60_000)
            answer = only(await client.call(FETCH, 12, request))
            assert answer["records"] == blob(150, 200)
            assert time.monotonic() - began < 30
        assert (w.tier.barriers, w.tier.reads) == (0, [])


async def test_acks_0_has_no_answer_and_is_not_waited_for() -> None:
    async with world() as w:
        client = await w.connect()
        for version in PRODUCE_VERSIONS:
            client.writer.write(client.encode(PRODUCE, version, produce_request(version, acks=0)))
        answer = await client.call(PRODUCE, 9, produce_request(9))
        assert answer["responses"]
        assert len(w.broker.requests(PRODUCE)) == len(PRODUCE_VERSIONS) + 1


async def test_byte_by_byte_in_both_directions() -> None:
    async with world() as w:
        client = await w.connect()
        w.broker.raw_answers[UNKNOWN_KEY] = b"xyz"
        sent = b"".join(
            (
                client.encode(PRODUCE, 9, produce_request(9, acks=0)),
                raw_request(UNKNOWN_KEY, 5, b"abc"),
                client.encode(FETCH, 12, fetch_request(12, asked(40))),
                client.encode(PRODUCE, 3, {**produce_request(3), "transactional_id": "t"}),
            )
        )
        for position in range(len(sent)):
            client.writer.write(sent[position : position + 1])
            await client.writer.drain()
            if position % 8 == 0:
                await asyncio.sleep(0)
        assert await client.frame() == b"\0\0\0\x05xyz"
        assert only(await client.answer(FETCH, 12))["records"] == blob(40, 100)
        assert (await client.answer(PRODUCE, 3))["responses"]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with world() as w:
        w.broker.raw_answers[UNKNOWN_KEY] = b"z" * 100_000
        client = await w.connect()
        lists = {
            "replica_id": -1,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -2}]}],
        }
        burst = []
        for number in range(20):
            burst.append(raw_request(UNKNOWN_KEY, number, b""))
            burst.append(client.encode(FETCH, 12, fetch_request(12, asked(40))))
            burst.append(client.encode(LIST_OFFSETS, 7, lists))
            burst.append(client.encode(PRODUCE, 9, produce_request(9)))
        client.writer.write(b"".join(burst))
        for number in range(20):
            frame = await client.frame()
            assert frame[:4] == number.to_bytes(4, "big")
            assert only(await client.answer(FETCH, 12))["records"] == blob(40, 100)
            answer = await client.answer(LIST_OFFSETS, 7)
            assert answer["topics"][0]["partitions"][0]["offset"] == 0
            assert (await client.answer(PRODUCE, 9))["responses"]


async def test_a_held_fetch_holds_later_answers_back() -> None:
    async with world() as w:
        w.tier.gate.clear()
        client = await w.connect()
        fetch = client.encode(FETCH, 12, fetch_request(12, asked(40), max_wait_ms=60_000))
        client.writer.write(fetch + client.encode(PRODUCE, 9, produce_request(9)))
        await asyncio.sleep(0.1)
        w.tier.gate.set()
        assert only(await client.answer(FETCH, 12))["records"] == blob(40, 100)
        assert (await client.answer(PRODUCE, 9))["responses"]


def offers(*ranges: tuple[int, int, int]) -> Value:
    keys = [{"api_key": k, "min_version": low, "max_version": high} for k, low, high in ranges]
    return {"api_keys": keys}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_api_versions_are_capped(version: int) -> None:
    async with world() as w:
        wide = offers((FETCH.key, 4, 99), (78, 1, 2), (79, 1, 2), (UNKNOWN_KEY, 0, 5))
        w.broker.script[API_VERSIONS.key] = lambda version, value: wide
        client = await w.connect()
        answer = await client.call(API_VERSIONS, version, {})
        found = {k["api_key"]: (k["min_version"], k["max_version"]) for k in answer["api_keys"]}
        assert found == {FETCH.key: (4, FETCH.versions.high), UNKNOWN_KEY: (0, 5)}


async def test_newer_api_versions_are_refused_as_by_a_broker() -> None:
    async with world() as w:
        client = await w.connect()
        frame = bytearray(client.encode(API_VERSIONS, 0, {}))
        frame[6:8] = (99).to_bytes(2, "big")
        client.writer.write(bytes(frame))
        answer = await client.answer(API_VERSIONS, 0)
        assert answer["error_code"] == 35
        assert answer["api_keys"][0]["max_version"] == API_VERSIONS.versions.high


@pytest.mark.parametrize(
    ("api_key", "version", "cause"),
    [(78, 1, "version_not_offered"), (1, 99, "version_not_offered"), (17, 0, "sasl_handshake_v0")],
)
async def test_what_is_not_offered_ends_the_connection(
    api_key: int, version: int, cause: str
) -> None:
    async with world() as w:
        client = await w.connect()
        frame = bytearray(raw_request(api_key, 1, b""))
        frame[6:8] = version.to_bytes(2, "big")
        client.writer.write(bytes(frame))
        assert await ended(client)
        await settle(lambda: w.metrics.causes == [cause])


@pytest.mark.parametrize("fed", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n"])
async def test_another_protocol_gives_one_clear_line(fed: bytes) -> None:
    with capture_logs() as logs:
        async with world() as w:
            client = await w.connect()
            client.writer.write(fed)
            assert await ended(client)
    [line] = [entry for entry in logs if entry["event"] == "connection_failed"]
    assert "TLS ClientHello" in line["error"] or "HTTP" in line["error"]


async def test_too_large_frames_end_the_connection() -> None:
    async with world(max_frame_bytes=1_000) as w:
        client = await w.connect()
        client.writer.write(raw_request(UNKNOWN_KEY, 1, b"x" * 1_000))
        assert await ended(client)
        await settle(lambda: w.metrics.causes == ["bad_frame"])


async def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    async with world() as w:
        w.broker.raw_answers[UNKNOWN_KEY] = b""
        client = await w.connect()

        async def wrong(frame: bytes) -> bytes:
            return b"\0\0\0\x04\0\0\0\x63"

        w.broker.answer = wrong  # type: ignore[method-assign]
        client.writer.write(raw_request(UNKNOWN_KEY, 5, b""))
        assert await ended(client)
        await settle(lambda: w.metrics.causes == ["unexpected_answer"])


@pytest.mark.parametrize("border", [ONE_PROCESS, WORKER], indirect=True)
async def test_the_number_of_connections_is_bounded() -> None:
    async with world(max_connections=2) as w:
        first, second = await w.connect(), await w.connect()
        w.broker.raw_answers[UNKNOWN_KEY] = b"ok"
        for client in (first, second):
            client.writer.write(raw_request(UNKNOWN_KEY, 1, b""))
            assert await client.frame() == b"\0\0\0\x01ok"
        assert await ended(await w.connect())
        first.writer.close()
        await settle(lambda: len(w.proxy.connections) == 1)
        third = await w.connect()
        third.writer.write(raw_request(UNKNOWN_KEY, 1, b""))
        assert await third.frame() == b"\0\0\0\x01ok"


async def test_an_unreachable_broker_closes_the_client() -> None:
    async with world() as w:
        object.__setattr__(w.proxy._settings, "upstream_port", 1)
        assert await ended(await w.connect())
        await settle(lambda: w.metrics.causes == ["broker_unreachable"])


async def test_a_client_that_leaves_a_held_fetch_leaves_nothing_behind() -> None:
    async with world() as w:
        w.tier.gate.clear()
        client = await w.connect()
        request = fetch_request(12, asked(40), asked(200, 1), max_wait_ms=60_000)
        client.writer.write(client.encode(FETCH, 12, request))
        await settle(lambda: w.tier.under_way == 1)
        client.writer.close()
        await settle(lambda: w.tier.under_way == 0 and len(w.proxy.connections) == 0)
        await settle(lambda: w.broker.connections == 0)
        assert w.metrics.causes == ["client_closed"]


async def test_a_broker_that_goes_away_closes_the_client() -> None:
    async with world() as w:
        client = await w.connect()

        async def gone(frame: bytes) -> bytes:
            raise ConnectionError

        w.broker.answer = gone  # type: ignore[method-assign]
        client.writer.write(client.encode(FETCH, 12, fetch_request(12, asked(40))))
        assert await ended(client)
        await settle(lambda: len(w.proxy.connections) == 0)
        assert w.metrics.causes[0].startswith("broker")


@pytest.mark.usefixtures("short_first_moment")
async def test_shutdown_lets_a_held_fetch_leave() -> None:
    async with world(shutdown_timeout_ms=20_000) as w:
        w.tier.gate.clear()
        client = await w.connect()
        request = fetch_request(12, asked(40), max_wait_ms=300)
        client.writer.write(client.encode(FETCH, 12, request))
        await settle(lambda: w.tier.under_way == 1)
        await w.proxy.close()
        assert only(await client.answer(FETCH, 12))["high_watermark"] == 200
        assert await ended(client)
        assert w.metrics.causes == ["shutdown"]


@pytest.mark.parametrize("size_bytes", [50, 40_000, 3_000_000])
@pytest.mark.parametrize("has_splice", [True, False])
async def test_h24_shutdown_lets_a_request_come_whole_and_no_other_one(
    size_bytes: int, has_splice: bool
) -> None:
    """As a Produce, which would be sent again and perhaps be written twice."""
    broker = FakeBroker(raw_answers={UNKNOWN_KEY: b"ok"})
    async with world(broker=broker, shutdown_timeout_ms=60_000) as w:
        if not has_splice:
            w.proxy._pipes._most = 0
        client = await w.connect()
        client.writer.write(raw_request(UNKNOWN_KEY, 1, b""))
        await client.frame()
        body = random.Random(size_bytes).randbytes(size_bytes)
        request = raw_request(UNKNOWN_KEY, 2, body)
        client.writer.write(request[: len(request) // 2])
        [connection] = w.proxy.connections
        await settle(lambda: connection.received_bytes >= 14 + len(request) // 2)
        closing = asyncio.ensure_future(w.proxy.close())
        await settle(lambda: connection._is_draining)
        await asyncio.sleep(0.05)
        client.writer.write(request[len(request) // 2 :] + raw_request(UNKNOWN_KEY, 3, body))
        async with asyncio.timeout(60):
            assert await client.frame() == b"\0\0\0\x02ok"
            assert await ended(client)
            await closing
        assert w.metrics.causes == ["shutdown"]
        assert [seen[-size_bytes:] for _, seen in broker.seen[1:]] == [body]


async def test_h24_shutdown_lets_a_request_without_an_answer_come_whole() -> None:
    async with world(shutdown_timeout_ms=60_000) as w:
        client = await w.connect()
        await client.call(PRODUCE, 9, produce_request(9))
        request = client.encode(PRODUCE, 9, produce_request(9, acks=0))
        client.writer.write(request[:-20])
        [connection] = w.proxy.connections
        await settle(lambda: connection.requests.unpassed_bytes == 20)
        closing = asyncio.ensure_future(w.proxy.close())
        await settle(lambda: connection._is_draining)
        await asyncio.sleep(0.05)
        client.writer.write(request[-20:])
        assert await ended(client)
        await closing
        assert w.metrics.causes == ["shutdown"]
        await settle(lambda: len(w.broker.requests(PRODUCE)) == 2)


async def test_shutdown_is_bounded() -> None:
    async with world(shutdown_timeout_ms=100) as w:
        w.tier.gate.clear()
        client = await w.connect()
        request = fetch_request(12, asked(40), max_wait_ms=60_000)
        client.writer.write(client.encode(FETCH, 12, request))
        await settle(lambda: w.tier.under_way == 1)
        began = time.monotonic()
        await w.proxy.close()
        assert time.monotonic() - began < 30
        assert w.tier.under_way == 0
        assert w.metrics.causes == ["shutdown_timeout"]


async def test_a_slow_reader_slows_the_broker_down_and_gets_everything() -> None:
    broker = FakeBroker(raw_answers={UNKNOWN_KEY: b"a" * 1_000_000})
    async with world(broker=broker) as w:
        client = await w.connect()
        client.writer.write(b"".join(raw_request(UNKNOWN_KEY, n, b"") for n in range(60)))
        await asyncio.sleep(0.3)
        assert len(w.broker.seen) < 55  # socket buffers are full, the broker is not read
        for number in range(60):
            assert await client.frame() == number.to_bytes(4, "big") + b"a" * 1_000_000


async def test_a_large_spliced_answer_to_a_slow_reader_is_whole() -> None:
    async with world() as w:
        w.tier.record_bytes = 1_000_000
        w.tier.partitions[0] = tier_partition(remote_next_offset=20)
        client = await w.connect()
        size = 30_000_000
        request = fetch_request(12, asked(0, max_bytes=size), max_bytes=size, max_wait_ms=60_000)
        client.writer.write(client.encode(FETCH, 12, request))
        await asyncio.sleep(0.3)
        assert only(await client.answer(FETCH, 12))["records"] == blob(0, 20, 1_000_000)


async def settle(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110 - the condition is of another task's plain values
            await asyncio.sleep(0.005)
