"""H36: connections to the HTTP endpoint that do not go on cost little, and are ended."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import psutil

from rlm.service.listeners import HealthState, HttpLimits, HttpServer
from tests.waiting import pass_time

MIB = 1 << 20
BEGUN = b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n"


@contextlib.asynccontextmanager
async def serving(limits: HttpLimits) -> AsyncIterator[int]:
    server = HttpServer(
        host="127.0.0.1",
        port=0,
        health=lambda: HealthState(alive=True, ready=True, problems=()),
        metrics=lambda: b"",
        limits=limits,
    )
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def is_ended(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
    return True


async def test_h36_a_thousand_requests_that_do_not_go_on_cost_little() -> None:
    """Most are turned away; who comes after those that were let in are ended is served."""
    limits = HttpLimits(connections=256, first_request_ms=1_000)
    async with serving(limits) as port:
        before_bytes = psutil.Process().memory_info().rss
        clients = []
        for _ in range(1_000):
            clients.append(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(ConnectionError):
                clients[-1].sendall(BEGUN)
            await asyncio.sleep(0)
        assert psutil.Process().memory_info().rss - before_bytes <= 64 * MIB
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                        assert answer.status == 200
                        break
                await asyncio.sleep(0.05)
        for client in clients:
            client.close()


async def test_h36_a_first_request_has_a_deadline_and_a_size() -> None:
    async with (
        serving(HttpLimits(first_request_ms=300)) as port,
        connected(port) as (silent, _),
        connected(port) as (begun, writer),
    ):
        writer.write(BEGUN)
        assert await is_ended(silent)
        assert await is_ended(begun)
    async with (
        serving(HttpLimits(first_request_ms=60_000)) as port,
        connected(port) as (large, writer),
    ):
        writer.write(BEGUN)
        for number in range(20):
            writer.write(b"X-%d: " % number + b"a" * 1_000 + b"\r\n")
        assert await is_ended(large)


async def test_h36_who_was_served_keeps_the_connection() -> None:
    async with (
        serving(HttpLimits(first_request_ms=60_000, first_request_bytes=500)) as port,
        connected(port) as (reader, writer),
    ):
        for _ in range(24):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
            pass_time(5)
