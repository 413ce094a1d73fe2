"""Fetch answers that flow from the broker to the client: what is seen of them, what they hold."""

import asyncio
import random
import resource
import socket
from dataclasses import dataclass, field, replace

import pytest

from kafka_protocol.apis import FETCH
from kip405.errors import Unavailable
from rlm.remote_log.tier import TierPartition, TopicRef
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC,
    FakeBroker,
    FakeTier,
    HeldBroker,
    Log,
    Proxied,
    Value,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
    world,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.waiting import until

MIB = 1 << 20
VERSIONS = range(4, FETCH.versions.high + 1)
RECORD_BYTES = 2_000
"""50 records of it are a flowing answer."""
LOCAL, OTHER = 0, 1
"""Partition LOCAL has records in the broker's log; the offset asked of OTHER is out of range."""


def broker(record_bytes: int = RECORD_BYTES) -> FakeBroker:
    return FakeBroker(
        logs={(name, LOCAL): Log(record_bytes=record_bytes) for name in (TOPIC, PLAIN)}
    )


@dataclass
class DyingBroker(FakeBroker):
    """Sends a part of each answer, and then nothing, or closes the connection."""

    sends_bytes: int = 0
    dies: bool = True
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            answer = await self.answer(frame)
            assert answer is not None
            writer.write(answer[: self.sends_bytes])
            await writer.drain()
            if not self.dies:
                await self.hold.wait()
                writer.write(answer[self.sends_bytes :])
                await writer.drain()
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def both(version: int = 12, offset: int = 40, *, first: int = LOCAL, **fields: int) -> Value:
    """A Fetch of LOCAL and OTHER, in this or in the other order."""
    asks = {LOCAL: asked(150, max_bytes=MIB), OTHER: asked(offset, OTHER)}
    return {**fetch_request(version, asks[first], asks[1 - first]), **fields}


def found(answer: Value) -> dict[int, Value]:
    [topic] = answer["responses"]
    return {one["partition_index"]: one for one in topic["partitions"]}


def without_splice(made: Proxied) -> None:
    """As on a machine that has none: all bytes go through the read buffer."""
    made.proxy._pipes._most = 0


@pytest.mark.parametrize("has_splice", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
async def test_h22_an_answer_that_flows_is_whole_and_shows_the_remote_log_start(
    version: int, has_splice: bool
) -> None:
    async with world(broker=broker(20_000)) as w:
        if not has_splice:
            without_splice(w)
        client = await w.connect()
        for topic, start in ((TOPIC, 0), (PLAIN, 100)):
            request = fetch_request(version, asked(150, max_bytes=MIB), topic=topic, max_bytes=MIB)
            one = only(await client.call(FETCH, version, request))
            assert one["records"] == blob(150, 200, 20_000)
            assert one["high_watermark"] == 200
            if version >= 5:
                assert one["log_start_offset"] == start
        assert w.metrics.outcomes == [("fetch", "broker_0")] * 2


async def test_the_high_watermark_of_an_answer_that_flows_is_remembered() -> None:
    """The next fetch of a remote offset is asked there (H20)."""
    async with world(broker=broker()) as w:
        w.broker.logs[TOPIC, LOCAL].high_watermark = 230
        client = await w.connect()
        await client.call(FETCH, 12, fetch_request(12, asked(150)))
        await client.call(FETCH, 12, fetch_request(12, asked(40)))
        seen = [
            one["topics"][0]["partitions"][0]["fetch_offset"] for one in w.broker.requests(FETCH)
        ]
        assert seen == [150, 230]


@dataclass
class GatedTier(FakeTier):
    """A barrier passes once `passes` is set."""

    passes: asyncio.Event = field(default_factory=asyncio.Event)

    async def barrier(
        self, topic: TopicRef, partition: int, deadline_ms: int
    ) -> TierPartition | None:
        await self.passes.wait()
        return await super().barrier(topic, partition, deadline_ms)


def hidden_tier(other: TierPartition | None, *, gated: bool = False) -> FakeTier:
    """A tier in which nothing is seen before a barrier."""
    partitions = {} if other is None else {OTHER: replace(other, partition=OTHER)}
    tier = GatedTier(partitions=partitions, view_hidden=True)
    if not gated:
        tier.passes.set()
    return tier


@pytest.mark.parametrize("first", [LOCAL, OTHER])
async def test_h17_nothing_flows_beyond_an_offset_out_of_range_before_a_barrier(
    first: int,
) -> None:
    tier = hidden_tier(None, gated=True)
    assert isinstance(tier, GatedTier)
    async with world(tier=tier, broker=broker()) as w:
        client = await w.connect()
        client.writer.write(client.encode(FETCH, 12, both(first=first, max_wait_ms=30_000)))
        await until(lambda: any(one.responses.is_waiting for one in w.proxy.connections))
        frame = client.reader.readexactly(100_000 if first == LOCAL else 40)
        if first == LOCAL:
            assert blob(150, 151, RECORD_BYTES) in await frame
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await frame
        [one] = w.proxy.connections
        one.memory_freed()  # which makes it try again
        await asyncio.sleep(0.05)
        assert one.responses.is_waiting
        tier.passes.set()
        await until(lambda: not one.responses.is_waiting and one.is_idle)
        assert tier.barriers == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("first", [LOCAL, OTHER])
async def test_h17_an_offset_out_of_range_passes_after_a_barrier(version: int, first: int) -> None:
    tier = hidden_tier(None)
    async with world(tier=tier, broker=broker()) as w:
        client = await w.connect()
        answer = found(await client.call(FETCH, version, both(version, first=first)))
        assert answer[LOCAL]["records"] == blob(150, 200, RECORD_BYTES)
        assert (answer[OTHER]["error_code"], answer[OTHER]["records"]) == (1, b"")
        assert tier.barriers == 1
        assert sorted(w.metrics.outcomes) == [("fetch", "broker_0"), ("fetch", "broker_1")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_committed", [False, True])
async def test_h17_what_turns_out_to_be_remote_is_answered_by_the_next_fetch(
    version: int, is_committed: bool
) -> None:
    tier = hidden_tier(tier_partition())
    async with world(tier=tier, broker=broker()) as w:
        client = await w.connect()
        request = both(version, isolation_level=int(is_committed))
        answer = found(await client.call(FETCH, version, request))
        assert answer[LOCAL]["records"] == blob(150, 200, RECORD_BYTES)
        one = answer[OTHER]
        assert (one["error_code"], one["records"], one["high_watermark"]) == (0, b"", 200)
        assert one["last_stable_offset"] == 200
        if version >= 5:
            assert one["log_start_offset"] == 0
        # Also where the plan itself still does not know the partition:
        answer = found(await client.call(FETCH, version, request))
        assert answer[LOCAL]["records"] == blob(150, 200, RECORD_BYTES)
        assert answer[OTHER]["records"] == blob(40, 100)


@pytest.mark.parametrize(
    ("error", "watermarks_error", "code", "high_watermark"),
    [
        (Unavailable("not ready"), None, 0, 200),
        (Unavailable("not ready"), Unavailable("no broker"), 56, -1),
    ],
)
async def test_h17_not_ready_in_an_answer_that_flows(
    error: Unavailable, watermarks_error: Unavailable | None, code: int, high_watermark: int
) -> None:
    tier = hidden_tier(tier_partition())
    tier.barrier_error, tier.watermarks_error = error, watermarks_error
    async with world(tier=tier, broker=broker()) as w:
        client = await w.connect()
        answer = found(await client.call(FETCH, 12, both()))
        one = answer[OTHER]
        assert (one["error_code"], one["records"]) == (code, b"")
        assert one["high_watermark"] == high_watermark
        assert answer[LOCAL]["records"] == blob(150, 200, RECORD_BYTES)


async def test_h4_a_frozen_partition_in_an_answer_that_flows_is_refused() -> None:
    async with world(tier=hidden_tier(tier_partition(frozen=True)), broker=broker()) as w:
        client = await w.connect()
        answer = found(await client.call(FETCH, 12, both()))
        assert (answer[OTHER]["error_code"], answer[OTHER]["records"]) == (56, b"")
        assert answer[LOCAL]["records"] == blob(150, 200, RECORD_BYTES)


async def test_h15_a_hole_in_an_answer_that_flows_is_answered_by_the_next_fetch() -> None:
    tier = hidden_tier(tier_partition(remote_next_offset=50))
    made = broker()
    made.logs[TOPIC, OTHER] = Log(record_bytes=10)
    async with world(tier=tier, broker=made) as w:
        client = await w.connect()
        answer = found(await client.call(FETCH, 12, both(offset=70)))
        assert (answer[OTHER]["error_code"], answer[OTHER]["records"]) == (0, b"")
        answer = found(await client.call(FETCH, 12, both(offset=70)))
        assert answer[OTHER]["records"] == blob(100, 200)


async def test_h37_an_answer_to_a_client_that_names_an_epoch_does_not_flow() -> None:
    """Whether the epoch diverged is known only behind the records."""
    made = DyingBroker(logs=broker().logs, sends_bytes=50_000, dies=False)
    async with world(broker=made) as w:
        client = await w.connect()
        request = fetch_request(12, asked(150, max_bytes=MIB, last_fetched_epoch=3))
        client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: bool(w.proxy.connections))
        [one] = w.proxy.connections
        await until(lambda: one.responses.is_assembling)
        made.hold.set()
        assert only(await client.answer(FETCH, 12))["records"] == blob(150, 200, RECORD_BYTES)


@pytest.mark.parametrize("has_splice", [True, False])
async def test_a_slow_reader_gets_every_byte(has_splice: bool) -> None:
    async with world(broker=broker(500_000)) as w:
        if not has_splice:
            without_splice(w)
        client = await w.connect()
        size = 30 * MIB
        request = fetch_request(12, asked(150, max_bytes=size), max_bytes=size)
        for _ in range(2):
            client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: bool(w.proxy.connections))
        [one] = w.proxy.connections
        for _ in range(30):
            await asyncio.sleep(0.01)
            assert w.proxy.memory.held_bytes <= 64 * 1024 + 4096  # and the heads of an answer
        for _ in range(2):
            assert only(await client.answer(FETCH, 12))["records"] == blob(150, 200, 500_000)
        await until(lambda: one.is_idle)
        await until(lambda: w.proxy.memory.held_bytes == 0 and w.proxy._pipes.taken == 0)


async def test_a_client_that_sends_no_more_reads_what_is_queued_for_it() -> None:
    remote = FakeTier(partitions={0: tier_partition()}, record_bytes=200_000)
    async with world(remote) as w:
        client = await w.connect()
        request = fetch_request(12, asked(0, max_bytes=30 * MIB), max_bytes=30 * MIB)
        client.writer.write(client.encode(FETCH, 12, request))
        [one] = w.proxy.connections
        await until(lambda: one.client.writer.queued_bytes > 0)
        client.writer.write_eof()
        assert only(await client.answer(FETCH, 12))["records"] == blob(0, 100, 200_000)
        assert await ended(client) == b""


async def ended(client: RawClient) -> bytes:
    """What came before the end of the connection."""
    async with asyncio.timeout(60):
        try:
            return await client.reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("sends_bytes", [90_000, 300_000, 2_000_000])
async def test_a_broker_that_dies_amid_an_answer_ends_the_client(sends_bytes: int) -> None:
    made = DyingBroker(logs=broker(100_000).logs, sends_bytes=sends_bytes)
    async with world(broker=made) as w:
        client = await w.connect()
        size = 30 * MIB
        request = fetch_request(12, asked(150, max_bytes=size), max_bytes=size)
        client.writer.write(client.encode(FETCH, 12, request))
        came = await ended(client)
        assert len(came) <= sends_bytes
        await until(lambda: not w.proxy.connections)
        assert w.metrics.causes[0].startswith("broker")
        assert w.proxy._pipes.taken == 0


async def test_a_client_that_leaves_amid_an_answer_leaves_nothing_behind() -> None:
    async with world(broker=broker(500_000)) as w:
        client = await w.connect()
        size = 30 * MIB
        request = fetch_request(12, asked(150, max_bytes=size), max_bytes=size)
        client.writer.write(client.encode(FETCH, 12, request))
        await client.reader.readexactly(1_000)
        [one] = w.proxy.connections
        client.writer.transport.abort()
        await until(lambda: not w.proxy.connections and w.broker.connections == 0)
        assert w.metrics.causes == ["client_closed"] or w.metrics.causes == ["client_error"]
        assert (w.proxy._pipes.taken, w.proxy.memory.held_bytes) == (0, 0)
        assert one.client.splicing is None or one.is_over


async def test_shutdown_lets_an_answer_flow_to_its_end() -> None:
    made = DyingBroker(logs=broker(100_000).logs, sends_bytes=500_000, dies=False)
    async with world(broker=made, shutdown_timeout_ms=20_000) as w:
        client = await w.connect()
        size = 30 * MIB
        request = fetch_request(12, asked(150, max_bytes=size), max_bytes=size)
        client.writer.write(client.encode(FETCH, 12, request))
        start = await client.reader.readexactly(100_000)
        closing = asyncio.create_task(w.proxy.close())
        await asyncio.sleep(0.05)
        made.hold.set()
        rest = await ended(client)
        assert int.from_bytes(start[:4], "big") + 4 == len(start) + len(rest)
        assert (start + rest).count(b"|") >= 50
        await closing
        assert w.metrics.causes == ["shutdown"]


async def test_pipes_are_bounded_and_the_others_take_the_other_way() -> None:
    async with world(broker=broker(100_000)) as w:
        w.proxy._pipes._most = 1
        size = 30 * MIB
        clients = [await w.connect() for _ in range(4)]
        request = fetch_request(12, asked(150, max_bytes=size), max_bytes=size)
        answers = await asyncio.gather(*(one.call(FETCH, 12, request) for one in clients))
        for answer in answers:
            assert only(answer)["records"] == blob(150, 200, 100_000)
        assert w.proxy._pipes.taken == 0


CLIENTS = 200
ASKED_BYTES = 50 * MIB


@pytest.mark.parametrize("has_splice", [True, False])
async def test_memory_does_not_follow_what_clients_ask_for(has_splice: bool) -> None:
    """200 clients that ask for 50 MiB and take nothing: 64 KiB each, and what the kernel holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 6 * CLIENTS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8 * CLIENTS), hard))
    made = FakeBroker(logs={(PLAIN, 0): Log(record_bytes=ASKED_BYTES // 50)})
    body = await plain_answer(made)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One frame for all, of which this process has one copy: sent in parts."""
        try:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            head = len(body).to_bytes(4, "big") + frame[4:8]
            writer.write(head)
            for position in range(4, len(body), MIB):
                writer.write(body[position : position + MIB])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    made.serve = serve  # type: ignore[method-assign]
    async with world(broker=made) as w:
        if not has_splice:
            without_splice(w)
        clients: list[socket.socket] = []
        try:
            while len(clients) < CLIENTS:
                clients.append(socket.create_connection(("127.0.0.1", w.proxy.port)))
                await asyncio.sleep(0.001)
            request = fetch_request(
                12, asked(150, max_bytes=ASKED_BYTES), topic=PLAIN, max_bytes=ASKED_BYTES
            )
            encoded = RawClient.encode(await w.connect(), FETCH, 12, request)
            for client in clients:
                client.sendall(encoded)
                await asyncio.sleep(0)
            await until(lambda: sum(c.taken_bytes > 0 for c in w.proxy.connections) >= CLIENTS)
            await asyncio.sleep(1)
            held = w.proxy.memory.held_bytes
            print(f"{CLIENTS} clients: {held // CLIENTS} bytes each")
            assert held <= CLIENTS * 64 * 1024
            most = 64 * 1024 + 20 * len(encoded)  # a request in work counts nineteen times
            assert max(one._account.held_bytes for one in w.proxy.connections) <= most
        finally:
            for client in clients:
                client.close()
        await until(lambda: len(w.proxy.connections) <= 1)
        assert w.proxy._pipes.taken == 0


async def plain_answer(made: FakeBroker) -> bytes:
    """A broker's Fetch v12 answer of ASKED_BYTES, without its length."""
    request = fetch_request(
        12, asked(150, max_bytes=ASKED_BYTES), topic=PLAIN, max_bytes=ASKED_BYTES
    )
    writer = RawClient.__new__(RawClient)
    writer.client_id, writer._correlation_id = "c", 0
    whole = await made.answer(writer.encode(FETCH, 12, request)[4:])
    assert whole is not None
    return whole[4:]


OPAQUE_KEY = 999


def opaque_request(correlation_id: int, body: bytes) -> bytes:
    """A request that the proxy passes on unread."""
    frame = OPAQUE_KEY.to_bytes(2, "big") + b"\0\0" + correlation_id.to_bytes(4, "big")
    frame += b"\xff\xff" + body
    return len(frame).to_bytes(4, "big") + frame


async def admitted(w: Proxied) -> RawClient:
    """A client that the broker has answered."""
    client = await w.connect()
    client.writer.write(opaque_request(1, b""))
    await client.frame()
    return client


@pytest.mark.parametrize("has_splice", [True, False])
async def test_large_requests_reach_a_slow_broker_whole_and_in_order(has_splice: bool) -> None:
    made = HeldBroker(raw_answers={OPAQUE_KEY: b"ok"})
    made.may_answer.set()
    async with world(broker=made) as w:
        if not has_splice:
            without_splice(w)
        client = await admitted(w)
        made.may_answer.clear()
        bodies = [random.Random(n).randbytes(size) for n, size in enumerate((9_000_000, 5, 70_000))]
        requests = [opaque_request(2 + n, body) for n, body in enumerate(bodies)]
        client.writer.write(b"".join([*requests, *requests]))
        await until(lambda: all(not one.client.is_paused for one in w.proxy.connections))
        await asyncio.sleep(0.2)
        assert w.proxy.memory.held_bytes <= 64 * 1024 + 200
        made.may_answer.set()
        for n in (0, 1, 2) * 2:
            assert await client.frame() == (2 + n).to_bytes(4, "big") + b"ok"
        assert [
            seen[-len(body) :] for (_, seen), body in zip(made.seen[1:], bodies * 2, strict=True)
        ] == (bodies * 2)


@pytest.mark.parametrize("has_splice", [True, False])
async def test_h36_a_client_that_stops_amid_a_large_request_is_ended(has_splice: bool) -> None:
    made = FakeBroker(raw_answers={OPAQUE_KEY: b"ok"})
    async with world(broker=made, stalled_request_timeout_ms=300) as w:
        if not has_splice:
            without_splice(w)
        client = await admitted(w)
        client.writer.write(opaque_request(2, bytes(1_000_000))[:500_000])
        await until(lambda: bool(w.metrics.causes))
        assert w.metrics.causes == ["stalled_request"]
        assert w.proxy._pipes.taken == 0


async def test_shutdown_is_bounded_for_a_client_that_takes_nothing() -> None:
    async with world(broker=broker(500_000), shutdown_timeout_ms=100) as w:
        client = await w.connect()
        size = 30 * MIB
        request = fetch_request(12, asked(150, max_bytes=size), max_bytes=size)
        client.writer.write(client.encode(FETCH, 12, request))
        await client.reader.readexactly(1_000)
        await asyncio.sleep(0.2)
        await w.proxy.close()
        assert w.metrics.causes == ["shutdown_timeout"]
        assert w.proxy._pipes.taken == 0
        assert len(await ended(client)) < 25_000_000
