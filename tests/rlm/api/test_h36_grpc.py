"""H36: calls that declare a large request and do not go on cost the gRPC API little."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc
import psutil
import pytest
from grpc import aio

from rlm.api.server import REQUEST_MAX_BYTES, ApiServer
from rlm.v1 import fetch_pb2, fetch_pb2_grpc

MIB = 1 << 20
_SETTINGS, _HEADERS, _DATA, _END_HEADERS = 4, 1, 0, 4
FETCH = b"/rlm.v1.FetchService/Fetch"


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """RFC 9113, 4.1."""
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(_SETTINGS, 0, 0, b"")


def _headers(path: bytes) -> bytes:
    """Of a call; literal headers (RFC 7541)."""
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"a",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    return b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in headers.items()
    )


def begun_calls(count: int, path: bytes = FETCH) -> bytes:
    """gRPC calls that have sent nothing of a message."""
    streams = range(1, 2 * count, 2)
    return _PREFACE + b"".join(
        http2_frame(_HEADERS, _END_HEADERS, stream, _headers(path)) for stream in streams
    )


def begun_call(declared_bytes: int) -> bytes:
    """A gRPC call up to 12 bytes of a message that declares so many."""
    message = b"\0" + struct.pack(">I", declared_bytes) + bytes(12)
    return begun_calls(1) + http2_frame(_DATA, 0, 1, message)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    unimplemented: Any = fetch_pb2_grpc.FetchServiceServicer
    server = ApiServer(admin=None, fetch=unimplemented(), listen="127.0.0.1:0")
    address = await server.start()
    yield int(address.rsplit(":", 1)[1])
    await server.stop()


async def test_h36_a_thousand_calls_that_do_not_go_on_cost_little(port: int) -> None:
    before_bytes = psutil.Process().memory_info().rss
    clients = []
    for _ in range(1_000):
        clients.append(socket.create_connection(("127.0.0.1", port)))
        clients[-1].sendall(begun_call(REQUEST_MAX_BYTES))
        await asyncio.sleep(0.001)
    for client in clients:
        client.settimeout(60)
        assert await asyncio.to_thread(client.recv, 9), "the server has taken the connection"
    assert psutil.Process().memory_info().rss - before_bytes <= 64 * MIB
    for client in clients:
        client.close()


async def test_h36_a_request_is_small(port: int) -> None:
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = fetch_pb2_grpc.FetchServiceStub(channel)
        topics = ["t" * 249] * (REQUEST_MAX_BYTES // 252 + 100)
        with pytest.raises(aio.AioRpcError, match="larger than max") as error:
            await stub.DescribeTopics(fetch_pb2.DescribeTopicsRequest(topics=topics))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
