"""A broker that answers over real sockets with whatever a test gives it, in Kafka's own bytes.

Handlers see the decoded request and give the response's value; like Kafka it works off one request
of a connection at a time.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

from kafka_protocol.apis import API_VERSIONS, APIS
from kafka_protocol.frames import FrameAssembler, encode_response, parse_request_header
from kafka_protocol.schema import Api, Value, decode
from kip405.addresses import Address

Answer = Mapping[str, Any] | None
Handler = Callable[[Value], Answer | Awaitable[Answer]]
_TURNS = 20


class FakeBroker:
    """`handlers` by API key; an API without one closes the connection. A handler that returns None
    never answers. `requests` is what came in: (api name, version, body). ApiVersions is answered
    from the beginning on: that it serves none by name.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.on(API_VERSIONS, {"error_code": 0, "api_keys": []})
        self.requests: list[tuple[str, int, Value]] = []
        self.connections = 0
        self.address = Address(host="127.0.0.1", port=0)
        self._writers: set[asyncio.StreamWriter] = set()

    def on(self, api: Api, handler: Handler | Mapping[str, Any]) -> None:
        """Answer an API by a function of the request, or always the same."""
        if callable(handler):
            self.handlers[api.key] = handler
        else:
            self.handlers[api.key] = lambda _: handler

    def asked(self, api: Api) -> list[Value]:
        return [body for name, _, body in self.requests if name == api.name]

    @property
    def open_connections(self) -> int:
        return len(self._writers)

    def drop_connections(self) -> None:
        """Cut every connection, as a broker that dies."""
        for writer in self._writers:
            writer.transport.abort()

    def stop_reading(self) -> None:
        """Take nothing more from any connection, as a broker that hangs."""
        for writer in self._writers:
            transport: Any = writer.transport
            transport.pause_reading()

    async def cut(self) -> None:
        """Cut every connection, and let its clients see that."""
        self.drop_connections()
        await asyncio.sleep(0.05)
        for _ in range(_TURNS):  # of the event loop; a busy machine may have had none meanwhile
            await asyncio.sleep(0)

    def send_raw(self, data: bytes) -> None:
        """Bytes of the test's own on every connection."""
        for writer in self._writers:
            writer.write(data)

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.address.port, ssl=tls)
        self.address = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            server.close()
            self.drop_connections()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        assembler = FrameAssembler()
        try:
            while data := await reader.read(65536):
                for frame in assembler.feed(data):
                    await self._answer(bytes(frame), writer)
        except (OSError, KeyError):
            pass
        finally:
            self._writers.discard(writer)
            if writer.get_extra_info("ssl_object") is None:
                writer.close()
            else:
                writer.transport.abort()  # a client that is gone says no farewell

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = parse_request_header(frame)
        api, version = APIS[header.api_key], header.api_version
        body, end = decode(api.request, version, frame, header.body_offset)
        assert end == len(frame)
        self.requests.append((api.name, version, body))
        answer = self.handlers[header.api_key](body)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is not None:
            writer.write(encode_response(api, version, header.correlation_id, answer))
