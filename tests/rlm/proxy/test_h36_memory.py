"""H36: memory follows the bytes received, within one bound; a client that stops is ended."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import psutil
import pytest

from kafka_protocol.apis import FETCH
from rlm.proxy.memory import SMALL_BYTES, Verdict
from rlm.proxy.session import RequestCutter, SessionError
from tests.rlm.proxy.fakes import TOPIC, FakeBroker, Log, asked, blob, fetch_request, only, world
from tests.rlm.proxy.holders import Held, hold
from tests.rlm.proxy.raw_client import RawClient
from tests.waiting import until

MIB = 1 << 20
CONNECTIONS = 1_000
DECLARED_BYTES = 100 * MIB
OPAQUE_KEY = 999
SASL_HANDSHAKE_KEY = 17


def fetch_head(declared_bytes: int) -> bytes:
    """12 bytes: a Fetch v11 that declares so many bytes."""
    return declared_bytes.to_bytes(4, "big") + b"\0\x01\0\x0b" + b"\0\0\0\x01"


def opaque_request(api_key: int = OPAQUE_KEY) -> bytes:
    """A request that the proxy passes on unread."""
    frame = api_key.to_bytes(2, "big") + b"\0\1" + b"\0\0\0\x07" + b"\xff\xff"
    return len(frame).to_bytes(4, "big") + frame


# frames


def test_h36_a_taken_frame_grows_with_what_was_received() -> None:
    cutter = RequestCutter(DECLARED_BYTES)
    cutter.feed(fetch_head(DECLARED_BYTES - 4))
    assert cutter.held_bytes <= 12
    cutter.feed(bytes(1_000))
    assert 1_000 <= cutter.held_bytes <= 1_012


def test_h36_frames_before_the_broker_has_answered_are_small() -> None:
    cutter = RequestCutter(DECLARED_BYTES, 1_000)
    with pytest.raises(SessionError, match=r"proxy\.unauthenticated\.frame\.max\.bytes") as error:
        cutter.feed(fetch_head(1_001))
    assert error.value.cause == "frame_too_large"
    allowed = RequestCutter(DECLARED_BYTES, 1_000)
    allowed.admit()
    allowed.feed(fetch_head(1_001))


def test_h36_requests_that_are_read_are_small_and_others_are_not() -> None:
    cutter = RequestCutter(DECLARED_BYTES, 500, read_request_bytes=1_000)
    cutter.admit()
    assert cutter.feed(fetch_head(900)).passed == b""
    other = RequestCutter(DECLARED_BYTES, 500, read_request_bytes=1_000)
    other.admit()
    other.feed(opaque_head := DECLARED_BYTES.to_bytes(4, "big") + opaque_request()[4:])
    assert other.passing_bytes == 4 + DECLARED_BYTES - len(opaque_head)
    with pytest.raises(SessionError, match=r"proxy\.read\.request\.max\.bytes") as error:
        too_large = RequestCutter(DECLARED_BYTES, 500, read_request_bytes=1_000)
        too_large.admit()
        too_large.feed(fetch_head(1_001))
    assert error.value.cause == "frame_too_large"


# connections


async def gone(client: RawClient) -> bool:
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            return await client.reader.read() == b""
    return True


async def test_h36_large_requests_pass_once_the_broker_has_answered() -> None:
    broker = FakeBroker(raw_answers={SASL_HANDSHAKE_KEY: b"anybody", OPAQUE_KEY: b"known"})
    async with world(broker=broker, unauthenticated_frame_max_bytes=2_000) as w:
        request = fetch_request(11, *(asked(150, max_bytes=1) for _ in range(500)))
        stranger = await w.connect()
        stranger.writer.write(stranger.encode(FETCH, 11, request))
        assert await gone(stranger)
        await until(lambda: w.metrics.causes == ["frame_too_large"])
        client = await w.connect()
        client.writer.write(opaque_request(SASL_HANDSHAKE_KEY))
        await client.frame()
        client.writer.write(client.encode(FETCH, 11, request))
        assert await gone(client), "the broker answers that to any client"
        await until(lambda: w.metrics.causes == ["frame_too_large"] * 2)
        known = await w.connect()
        known.writer.write(opaque_request())
        await known.frame()
        answer = await known.call(FETCH, 11, request)
        assert answer["error_code"] == 0


async def test_h36_what_a_request_is_read_into_counts_too() -> None:
    """A connection holds many times the bytes of a request that waits for the broker."""
    async with silent_broker() as port, world(upstream_port=port) as w:
        client = await w.connect()
        frame = client.encode(FETCH, 11, fetch_request(11, *(asked(150) for _ in range(500))))
        client.writer.write(frame)
        await until(lambda: w.proxy.memory.held_bytes >= 19 * (len(frame) - 4))
        client.writer.close()


@contextlib.asynccontextmanager
async def silent_broker() -> AsyncIterator[int]:
    """Port of one that accepts and never reads: what it costs is none of the proxy's memory."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
    taken: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                taken.append(listening.accept()[0])

    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    loop.add_reader(listening, accept)
    try:
        yield listening.getsockname()[1]
    finally:
        loop.remove_reader(listening)
        for one in (*taken, listening):
            one.close()


async def test_h36_a_thousand_clients_that_declare_100_mib_cost_next_to_nothing() -> None:
    process = psutil.Process()
    """Also where they may declare so much: memory follows what they send."""
    async with (
        silent_broker() as port,
        world(
            upstream_port=port,
            unauthenticated_frame_max_bytes=DECLARED_BYTES,
            read_request_max_bytes=DECLARED_BYTES,
            first_request_timeout_ms=600_000,
        ) as w,
    ):
        warm = await w.connect()
        warm.writer.write(fetch_head(1_000))
        await until(lambda: len(w.proxy.connections) == 1)
        before_bytes = process.memory_info().rss
        clients = [socket.create_connection(("127.0.0.1", w.proxy.port)) for _ in range(100)]
        while len(clients) < CONNECTIONS:
            await asyncio.sleep(0)
            clients.append(socket.create_connection(("127.0.0.1", w.proxy.port)))
        try:
            for client in clients:
                client.sendall(fetch_head(DECLARED_BYTES))
            await until(lambda: w.proxy.memory.held_bytes >= 12 * CONNECTIONS)
            grown_bytes = process.memory_info().rss - before_bytes
            print(f"{CONNECTIONS} clients: {grown_bytes // 1024} KiB more")
            assert grown_bytes <= 64 * MIB
            assert len(w.proxy.connections) == 1 + CONNECTIONS
        finally:
            for client in clients:
                client.close()
        await until(lambda: len(w.proxy.connections) <= 1)


async def test_h36_strangers_who_really_send_have_one_bound() -> None:
    """Each declares and sends nearly what one may: beyond an eighth of the bound they are ended."""
    async with world(memory_max_bytes=8 * MIB) as w:
        clients = [await w.connect() for _ in range(10)]
        for client in clients:
            client.writer.write(fetch_head(500_000) + bytes(400_000))
        await until(lambda: w.metrics.causes.count("memory") >= 7)
        await until(lambda: w.proxy.memory.held_bytes > 0)
        assert w.proxy.memory.held_bytes <= 2 * MIB
        known = await w.connect()
        answer = only(await known.call(FETCH, 12, fetch_request(12, asked(150))))
        assert answer["records"] == blob(150, 200)


async def test_h36_answers_of_all_clients_stay_within_the_bound_and_all_are_given() -> None:
    """Answers of 6 MiB for 8 clients that take them late, within 8 MiB."""
    broker = FakeBroker()
    broker.logs[TOPIC, 0] = Log(high_watermark=7_000, record_bytes=1_000)
    most = 0
    async with world(broker=broker, memory_max_bytes=8 * MIB) as w:

        async def read(client: RawClient) -> bytes:
            request = fetch_request(12, asked(150, max_bytes=6 * MIB), max_bytes=6 * MIB)
            answer = await client.call(FETCH, 12, request)
            records = only(answer)["records"]
            assert isinstance(records, bytes)
            return records

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, w.proxy.memory.held_bytes)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        clients = [await w.connect() for _ in range(8)]
        answers = await asyncio.gather(*map(read, clients))
        watching.cancel()
        assert len(set(map(len, answers))) == 1
        assert len(answers[0]) > 5 * MIB
        assert most <= 8 * MIB + 6 * MIB + 8 * 2 * SMALL_BYTES
        await until(lambda: w.proxy.memory.held_bytes == 0)


@dataclass
class HaltingBroker(FakeBroker):
    """The first bytes of an answer come long before the others."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                answer = await self.answer(frame)
                assert answer is not None
                writer.write(answer[:100])
                await self.go_on.wait()
                writer.write(answer[100:])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def test_h36_the_brokers_part_of_a_spliced_answer_counts_while_it_is_unsent() -> None:
    """Clients take nothing of answers with 12 MiB of the broker and one remote batch each."""
    broker = FakeBroker()
    broker.logs[TOPIC, 1] = Log(high_watermark=14_000, record_bytes=1_000)
    async with world(broker=broker, memory_max_bytes=8 * MIB) as w:
        # The broker alone has less than `min_bytes`, so each answer waits for its remote batch.
        request = fetch_request(
            12,
            asked(40, max_bytes=10),
            asked(150, 1, max_bytes=12 * MIB),
            max_bytes=12 * MIB,
            min_bytes=12 * MIB,
            max_wait_ms=20_000,
        )
        clients = [await w.connect() for _ in range(6)]
        for client in clients:
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: any(one.untaken_bytes for one in w.proxy.connections))
        await asyncio.sleep(0.5)
        unsent_bytes = sum(one.client.writer.untaken_bytes for one in w.proxy.connections)
        assert unsent_bytes <= w.proxy.memory.held_bytes + MIB
        assert w.proxy.memory.held_bytes <= 8 * MIB + 12 * MIB + 6 * SMALL_BYTES

        async def take(client: RawClient) -> None:
            client.reader._transport.resume_reading()  # type: ignore[attr-defined]
            remote, local = (await client.answer(FETCH, 12))["responses"][0]["partitions"]
            assert remote["records"] == blob(40, 41)
            assert local["records"] == blob(150, 150 + len(local["records"]) // 1_000, 1_000)

        # All at once: the one that passes the bound, whichever it is, must take its answer first.
        async with asyncio.timeout(60):
            await asyncio.gather(*map(take, clients))
        await until(lambda: w.proxy.memory.held_bytes == 0)


async def test_h36_an_answer_whose_beginning_is_small_goes_on_once_there_is_room() -> None:
    broker = HaltingBroker()
    async with world(broker=broker, memory_max_bytes=MIB) as w:
        client = await w.connect()
        known = w.proxy.memory
        full, beyond = Held(), Held()
        hold(known, full, answers=MIB)
        assert known.may_answer(beyond, 0, MIB) is Verdict.GO_ON
        hold(known, beyond, answers=MIB)
        request = fetch_request(12, asked(150), max_bytes=100_000)
        broker.logs[TOPIC, 0] = Log(record_bytes=1_000)
        answering = asyncio.create_task(client.call(FETCH, 12, request))
        await until(lambda: any(one.responses.is_waiting for one in w.proxy.connections))
        known.leave(beyond)
        broker.go_on.set()
        assert only(await answering)["records"] == blob(150, 200, 1_000)
        known.leave(full)


async def test_h36_a_stranger_whose_answer_finds_no_room_is_ended() -> None:
    """Nobody would tell it when there is room, and it would wait for ever."""
    broker = HaltingBroker(raw_answers={SASL_HANDSHAKE_KEY: bytes(2 * SMALL_BYTES)})
    async with world(broker=broker, memory_max_bytes=MIB) as w:
        full = Held(is_admitted=False)
        hold(w.proxy.memory, full, received=MIB)
        stranger = await w.connect()
        stranger.writer.write(opaque_request(SASL_HANDSHAKE_KEY))
        assert await gone(stranger)
        await until(lambda: w.metrics.causes == ["memory"])
        w.proxy.memory.leave(full)


async def test_h36_an_answer_that_has_its_memory_is_received_though_another_is_beyond() -> None:
    """Or all would wait for the one client that may pass the bound, however slow it is."""
    broker = HaltingBroker()
    async with world(broker=broker, memory_max_bytes=MIB) as w:
        client = await w.connect()
        request = fetch_request(12, asked(150), max_bytes=100_000)
        broker.logs[TOPIC, 0] = Log(record_bytes=1_000)
        answering = asyncio.create_task(client.call(FETCH, 12, request))
        await until(lambda: any(one.responses.held_bytes > 50_000 for one in w.proxy.connections))
        known, beyond = w.proxy.memory, Held()
        assert known.may_answer(beyond, 0, MIB) is Verdict.GO_ON
        hold(known, beyond, answers=MIB)
        for one in w.proxy.connections:
            one.flow()
        broker.go_on.set()
        assert only(await answering)["records"] == blob(150, 200, 1_000)
        known.leave(beyond)


async def test_h36_a_producer_without_acks_waits_for_a_slow_broker_and_is_not_ended() -> None:
    """The broker answers it nothing by which it could be known."""
    async with silent_broker() as port, world(upstream_port=port, memory_max_bytes=MIB) as w:
        client = await w.connect()
        # Produce v9: client id and transactional id null, acks 0
        head = b"\0\0\0\x09\0\0\0\x01\xff\xff\0" + b"\0\0\0" + bytes(4)
        client.writer.write((32 * MIB).to_bytes(4, "big") + head + bytes(32 * MIB - len(head)))
        await until(lambda: bool(w.proxy.connections))
        [one] = w.proxy.connections
        await until(lambda: not one.is_read or bool(w.metrics.causes))
        await asyncio.sleep(0)
        assert w.metrics.causes == []
        assert one.received_bytes < 32 * MIB


async def test_h36_nothing_is_kept_of_what_comes_after_the_end() -> None:
    """Of a client that still has to take an answer, but sends on instead."""
    async with world(shutdown_timeout_ms=20_000) as w:
        w.tier.record_bytes = 100_000
        client = await w.connect()
        size = 10 * MIB
        request = fetch_request(12, asked(0, max_bytes=size), max_bytes=size, max_wait_ms=60_000)
        client.writer.write(client.encode(FETCH, 12, request))
        await until(lambda: any(one.untaken_bytes > MIB for one in w.proxy.connections))
        [connection] = w.proxy.connections
        client.writer.write(fetch_head(8) + bytes(8))  # which is no Fetch request
        await until(lambda: connection.is_over)
        client.writer.write(bytes(30 * MIB))
        async with asyncio.timeout(60):
            await client.writer.drain()
        await asyncio.sleep(0.2)
        assert connection.requests.held_bytes <= 64 * 1024
        assert only(await client.answer(FETCH, 12))["records"] == blob(0, 100, 100_000)
