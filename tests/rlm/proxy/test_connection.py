"""A connection that ends at any moment leaves nothing: no work, no answer, no socket."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_protocol.apis import FETCH
from kafka_protocol.node_addresses import keep_addresses
from kafka_protocol.primitives import Buffer
from rlm.proxy.connection import Connection, Handle
from rlm.proxy.introductions import Introduction
from rlm.proxy.memory import ConnectionMemory
from rlm.proxy.own_topics import OwnTopics, unknown_ids
from rlm.proxy.session import Taken
from rlm.proxy.settings import ProxySettings
from rlm.proxy.shared import READ_BUFFER_BYTES, Shared
from rlm.proxy.splicing import Pipes
from rlm.proxy.tls_files import PLAIN
from tests.rlm.proxy.uncounted import Counting
from tests.waiting import until

HOST = "127.0.0.1"
FETCH_11 = b"\0\x01\0\x0b" + b"\0\0\0\x01"
MOST_TURNS = 24


@pytest.fixture(autouse=True)
def no_garbage_collector() -> Iterator[None]:
    """What only the collector ends has been left behind."""
    gc.disable()
    yield
    gc.enable()


class Unheard:
    """Nobody listens to what the client says of itself."""

    def introduced(self, said: Introduction) -> None: ...
    def admitted(self) -> None: ...


@dataclass
class SilentBroker:
    """Accepts, reads, and answers nothing."""

    open_count: int = 0
    ended_count: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_count += 1
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.ended_count += 1
        writer.close()


@dataclass
class Bench:
    """Connections of a client in this process to a broker that never answers."""

    broker: SilentBroker
    metrics: Counting = field(default_factory=Counting)
    running: list[asyncio.Task[None]] = field(default_factory=list)

    def _shared(self) -> Shared:
        settings = ProxySettings(
            listen_host=HOST, listen_port=0, upstream_host=HOST, upstream_port=self.broker.port
        )
        return Shared(
            settings=settings,
            metrics=self.metrics,
            memory=ConnectionMemory(settings.memory_max_bytes),
            produce_log_start=lambda *_: None,
            node_addresses=keep_addresses,
            own_topics=OwnTopics(ids=unknown_ids),
            read_buffer=memoryview(bytearray(READ_BUFFER_BYTES)),
            pipes=Pipes(),
            moved=lambda _: None,
            tls=PLAIN,
        )

    def _made(self, connection: Connection) -> bool:
        self.running.append(asyncio.ensure_future(connection.run()))
        return True

    async def connect(self, handle: Handle) -> tuple[Connection, socket.socket]:
        """A connection whose Fetch requests have this handler, and its client."""
        ours, client = socket.socketpair()
        connection = Connection(self._shared(), {FETCH.key: handle}, self._made, Unheard())
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: connection.client, ours)
        return connection, client


@contextlib.asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    broker = SilentBroker()
    server = await asyncio.start_server(broker.serve, HOST, 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield Bench(broker)
    finally:
        server.close()


async def unasked(_: Taken, __: Connection) -> list[Buffer] | None:
    raise AssertionError("no request was sent")


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
async def test_a_work_without_a_task_is_closed_when_something_beside_it_crashes(
    error: BaseException,
) -> None:
    """A cancellation by nobody is a crash, too: the answer would wait for ever."""
    left = []

    async def crash() -> None:
        raise error

    async def handle(taken: Taken, connection: Connection) -> list[Buffer] | None:
        try:
            connection.beside(crash())
            await connection.ask(taken.frame, taken.api_version, taken.correlation_id, None)
        finally:
            left.append(connection.is_over)
        return None

    async with bench() as b:
        _, client = await b.connect(handle)
        client.sendall(len(FETCH_11).to_bytes(4, "big") + FETCH_11)
        [running] = b.running
        await asyncio.wait([running], timeout=60)
        assert isinstance(running.exception(), ExceptionGroup)
        assert (left, b.metrics.causes) == ([True], ["crashed"])
        client.close()


@pytest.mark.parametrize("shift", range(3))
async def test_h24_a_broker_that_connects_while_its_client_ends_is_let_go(shift: int) -> None:
    """The end comes at each turn of the loop once, also between the broker's first callback and
    the step of the connection that follows it.
    """
    async with bench() as b:
        for turns in range(MOST_TURNS):
            connection, client = await b.connect(unasked)
            for _ in range(turns):
                await asyncio.sleep(0)
            ending = connection.drain
            for _ in range(shift):  # behind what the same turn has still to do
                ending = _called_soon(ending)
            ending()
            await asyncio.wait([b.running.pop()], timeout=60)
            client.close()
        await until(lambda: b.broker.open_count == b.broker.ended_count)
        await asyncio.sleep(0.05)
        assert b.broker.open_count == b.broker.ended_count
        assert set(b.metrics.causes) == {"shutdown"}


def _called_soon(act: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: asyncio.get_running_loop().call_soon(act)
