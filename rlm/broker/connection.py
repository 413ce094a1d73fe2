"""One TCP connection to one broker, over kafka_protocol: pipelined requests, each with a deadline.

aiokafka does not fit: its Metadata knows neither topic ids nor leader epochs, and its admin client
sends DeleteRecords to whichever broker leads (H5). The connection is reopened lazily: a call after
a failure opens a new one.
"""

import asyncio
import os
from collections.abc import Awaitable, Mapping
from typing import Any

from kafka_protocol.frames import FrameAssembler, encode_request, parse_response_header
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import Api, Value, decode
from kip405.addresses import Address
from kip405.errors import Corrupt, Unavailable

_READ_SIZE_BYTES = 256 * 1024
_Frame = asyncio.Future[bytes | bytearray]


class _Channel:
    """An open connection: correlation ids, waiting calls, and the loop of the reader task."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._assembler = FrameAssembler()
        self._waiting: dict[int, _Frame] = {}
        self._next_id = 0
        self.broken: Exception | None = None

    def send(self, api: Api, version: int, body: Mapping[str, Any], client_id: str) -> _Frame:
        """Write one request; the future gets the response frame."""
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        frame = encode_request(api, version, self._next_id, client_id, body)
        future: _Frame = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = future
        self._writer.write(frame)
        return future

    async def read_forever(self) -> None:
        """Pass every response to its caller until the connection ends; then fail the waiting
        calls.
        """
        error: Exception = ConnectionResetError("the broker closed the connection")
        try:
            while data := await self._reader.read(_READ_SIZE_BYTES):
                for frame in self._assembler.feed(data):
                    self._hand_over(frame)
        except (OSError, WireError) as failure:
            error = failure
        finally:
            self.close(error)

    def _hand_over(self, frame: bytes | bytearray) -> None:
        future = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
        if future is not None and not future.done():
            future.set_result(frame)

    def close(self, error: Exception) -> None:
        if self.broken is None:
            self.broken = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError(str(error)))
        self._waiting.clear()
        self._writer.close()


class BrokerConnection:
    """Calls to one address; safe for concurrent use. The owner calls `close`."""

    def __init__(
        self, address: Address, *, client_id: str, connect_timeout_ms: int = 5_000
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._channel: _Channel | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def call(
        self, api: Api, version: int, body: Mapping[str, Any], *, timeout_ms: int
    ) -> Value:
        """One request and its decoded answer; errors as `response`, Corrupt where it is none."""
        return self.decoded(api, version, await self.response(api, version, body, timeout_ms))

    async def response(
        self, api: Api, version: int, body: Mapping[str, Any], timeout_ms: int
    ) -> bytes | bytearray:
        """One request and the frame of its answer; Unavailable on time-out or a broken connection.

        A time-out breaks the connection: calls that wait on it fail too, the next one opens again.
        """
        what = f"{api.name} v{version} to broker {self.address}"
        channel: _Channel | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                channel = await self._open()
                return await channel.send(api, version, body, self._client_id)
        except TimeoutError as error:
            # Kafka's clients do the same: calls to a peer that vanished silently would otherwise
            # always time out.
            if channel is not None:
                channel.close(error)
            raise Unavailable(f"{what}: no answer within {timeout_ms} ms") from error
        except OSError as error:
            raise Unavailable(f"{what}: {_reason(error)}") from error

    def send(self, api: Api, version: int, body: Mapping[str, Any]) -> Awaitable[Value]:
        """Write a request at once on the connection that a call has opened; its answer comes later.

        ConnectionResetError: there is no open connection (raised here: nothing was written), or it
        ended before the answer. No deadline: the caller sets one, and closes the connection.
        """
        channel = self._channel
        if channel is None or channel.broken is not None:
            raise ConnectionResetError(f"there is no open connection to broker {self.address}")
        return self._answer(channel.send(api, version, body, self._client_id), api, version)

    async def _answer(self, frame: _Frame, api: Api, version: int) -> Value:
        return self.decoded(api, version, await frame)

    def decoded(self, api: Api, version: int, frame: bytes | bytearray) -> Value:
        """The answer in a frame of `response`; Corrupt if it is none of this version."""
        what = f"{api.name} v{version} to broker {self.address}"
        try:
            _, position = parse_response_header(frame, api, version)
            value, end = decode(api.response, version, frame, position)
        except WireError as error:
            raise Corrupt(f"{what}: {error}") from error
        if end != len(frame):
            raise Corrupt(f"{what}: {len(frame) - end} bytes after the answer")
        return value

    async def _open(self) -> _Channel:
        async with self._opening:
            if self._channel is not None and self._channel.broken is None:
                return self._channel
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
            channel = _Channel(reader, writer)
            # The reader task belongs to this object, not to the call that happened to open the
            # connection.
            self._reader_task = asyncio.get_running_loop().create_task(channel.read_forever())
            self._channel = channel
            return channel

    async def close(self) -> None:
        """Close the connection; waiting calls get Unavailable."""
        channel, task = self._channel, self._reader_task
        self._channel = self._reader_task = None
        if channel is not None:
            channel.close(ConnectionResetError("closed by us"))
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def _reason(error: OSError) -> str:
    """`Connection refused` rather than asyncio's own words, which name the address once more."""
    return os.strerror(error.errno) if error.errno else str(error)
