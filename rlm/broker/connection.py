"""One TCP connection to one broker, over kafka_protocol: pipelined requests, each with a deadline.

aiokafka does not fit: its Metadata knows neither topic ids nor leader epochs, and its admin client
sends DeleteRecords to whichever broker leads (H5). The connection is reopened lazily: a call after
a failure opens a new one. A call that comes when most of the session's lifetime is over
authenticates again first (KIP-368), while no other request is sent.
"""

import asyncio
import os
from collections.abc import Awaitable, Mapping
from typing import Any

from kafka_clients.channel_security import ChannelSecurity, Session, plaintext
from kafka_clients.refusals import SecurityRefused, closed_at_once, speaks_tls
from kafka_protocol.apis import API_VERSIONS
from kafka_protocol.frames import FrameAssembler, decode_response, encode_request
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import Api, Value
from kip405.addresses import Address
from kip405.errors import Corrupt, Unavailable

_READ_SIZE_BYTES = 256 * 1024
_GRACE_S = 1.0
"""So long a closed connection may take to end."""
_TLS_ALERT = b"\x15\x03"
_TLS_ALONE = "SSL"
_Frame = asyncio.Future[bytes | bytearray]


class _Channel:
    """An open connection: correlation ids, waiting calls, and the loop of the reader task."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        security: ChannelSecurity,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._assembler = FrameAssembler()
        self._waiting: dict[int, _Frame] = {}
        self._next_id = 0
        self._security = security
        self._has_heard = False
        self.broken: Exception | None = None
        self.session: Session | None = None
        """None while the connection authenticates: nothing else may be sent then."""

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
                if not self._has_heard and data.startswith(_TLS_ALERT):
                    raise ConnectionResetError(speaks_tls(self._security.settings))
                self._has_heard = True
                for frame in self._assembler.feed(data):
                    self._hand_over(frame)
            if not self._has_heard:
                error = ConnectionResetError(closed_at_once(self._security.settings))
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
            self._writer.close()  # once: with TLS a second one would make `abort` do nothing
        for future in self._waiting.values():
            if not future.done():
                reset = ConnectionResetError(str(error))
                reset.__cause__ = error
                future.set_exception(reset)
        self._waiting.clear()

    async def wait_gone(self) -> None:
        """Return once the socket of a closed connection is gone. With TLS the broker has to say
        farewell, too; one that does not is not waited for any longer.
        """
        gone = asyncio.get_running_loop().create_task(self._writer.wait_closed())
        gone.add_done_callback(lambda it: it.cancelled() or it.exception())  # retrieved
        try:
            await asyncio.wait({gone}, timeout=_GRACE_S)
        finally:
            self._writer.transport.abort()  # one that has ended takes no notice
        await asyncio.wait({gone})


class BrokerConnection:
    """Calls to one address; safe for concurrent use. The owner calls `close`."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        security: ChannelSecurity | None = None,
        connect_timeout_ms: int = 5_000,
    ) -> None:
        """`security` None: PLAINTEXT."""
        self.address = address
        self._security = security or plaintext()
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
        except SecurityRefused as error:
            raise type(error)(f"{api.name} v{version}: {error}") from error
        except OSError as error:
            raise Unavailable(f"{what}: {_reason(error)}") from error

    def send(self, api: Api, version: int, body: Mapping[str, Any]) -> Awaitable[Value]:
        """Write a request at once on the connection that a call has opened; its answer comes later.

        ConnectionResetError: there is no open connection (raised here: nothing was written), or it
        ended before the answer. No deadline: the caller sets one, and closes the connection.
        """
        channel = self._channel
        if channel is None or channel.broken is not None or channel.session is None:
            raise ConnectionResetError(f"there is no open connection to broker {self.address}")
        return self._answer(channel.send(api, version, body, self._client_id), api, version)

    async def _answer(self, frame: _Frame, api: Api, version: int) -> Value:
        return self.decoded(api, version, await frame)

    def decoded(self, api: Api, version: int, frame: bytes | bytearray) -> Value:
        """The answer in a frame of `response`; Corrupt if it is none of this version."""
        what = f"{api.name} v{version} to broker {self.address}"
        try:
            _, value = decode_response(api, version, frame)
        except WireError as error:
            raise Corrupt(f"{what}: {error}") from error
        return value

    async def _open(self) -> _Channel:
        """A connection that takes a request now: the caller sends it before it awaits anything."""
        async with self._opening:
            channel = self._channel
            if channel is None or channel.broken is not None:
                return await self._connect()
            if channel.session is None or channel.session.is_due(_now()):
                channel.session = None
                async with self._security.connecting(str(self.address)):
                    await self._authenticate(channel)
            return channel

    async def _connect(self) -> _Channel:
        address, timeout_s = self.address, self._connect_timeout_ms / 1000
        async with self._security.connecting(str(address)):
            context = self._security.tls_context()
            async with asyncio.timeout(timeout_s):
                streams = await asyncio.open_connection(address.host, address.port, ssl=context)
            channel = self._channel = _Channel(*streams, self._security)
            # The reader task belongs to this object, not to the call that happened to open the
            # connection.
            self._reader_task = asyncio.get_running_loop().create_task(channel.read_forever())
            await self._authenticate(channel)
        return channel

    async def _authenticate(self, channel: _Channel) -> None:
        """Prove who this client is; any failure, also that of the caller, closes the connection."""

        async def ask(api: Api, version: int, body: Mapping[str, Any]) -> Value:
            return await self._answer(
                channel.send(api, version, body, self._client_id), api, version
            )

        try:
            if self._security.settings.protocol == _TLS_ALONE:
                # A broker refuses a client's certificate after the handshake (TLS 1.3).
                await ask(API_VERSIONS, 0, {})
            channel.session = await self._security.authenticate(ask)
        except BaseException as error:
            channel.close(ConnectionResetError(f"it was not authenticated: {error}"))
            raise

    async def close(self) -> None:
        """Close the connection; waiting calls get Unavailable."""
        channel, task = self._channel, self._reader_task
        self._channel = self._reader_task = None
        if channel is not None:
            channel.close(ConnectionResetError("closed by us"))
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if channel is not None:
            await channel.wait_gone()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _reason(error: OSError) -> str:
    """`Connection refused` rather than asyncio's own words, which name the address once more."""
    return os.strerror(error.errno) if error.errno else str(error)
