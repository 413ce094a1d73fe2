"""Logs in at the broker as a client whom the proxy knows by certificate.

The first time it is done on the socket, before any byte of the client goes there. A broker takes a
token only once it has read of it, so that a refusal is tried once more, with a new token and on a
new connection: a broker ends one that it has refused. Later it is done again on the open connection
whenever the session that the broker granted is nearly over (KIP-368), between two requests of the
client. The client's own SASL is refused, as at a listener without SASL.
"""

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from kafka_clients.channel_security import ENDLESS, AskBroker
from kafka_clients.refusals import NotAuthenticated, SecurityRefused
from kafka_protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_protocol.error_codes import ILLEGAL_SASL_STATE
from kafka_protocol.frames import decode_response, encode_request, encode_response
from kafka_protocol.primitives import Buffer, WireError
from kafka_protocol.schema import Api, Value
from rlm.proxy.begun import in_task
from rlm.proxy.client_tokens import ClientTokens, TokenLease
from rlm.proxy.handshakes import done
from rlm.proxy.sasl import Asking, ask_sasl
from rlm.proxy.session import LENGTH_BYTES, SessionError, Taken

_CLIENT_ID = "rlm-proxy"
_CORRELATION_ID = 0x7FFFFFF0
_MOST_ANSWER_BYTES = 65_536
REFUSED = "token_refused"


class ClientLogin:
    """Of one connection; `subject` is of its certificate, `address` where it comes from. `known`
    gets the name of the principal each time that the broker has let it in, and may raise
    SessionError.
    """

    def __init__(
        self, tokens: ClientTokens, *, subject: str, address: str, known: Callable[[str], None]
    ) -> None:
        self._tokens = tokens
        self.subject = subject
        self.address = address
        self._lease: TokenLease | None = None
        self._known = known
        self._session = ENDLESS
        self._refused: str | None = None
        self._is_retried = False

    def is_due(self) -> bool:
        """Whether it has to be done again before the next request."""
        return self._session.is_due(asyncio.get_running_loop().time())

    def session_left_ms(self) -> float:
        """How long it has not to be done again."""
        renew_at = self._session.renew_at
        if renew_at is None:
            return math.inf
        return max(0.0, 1_000 * (renew_at - asyncio.get_running_loop().time()))

    async def prepare(self) -> None:
        """Have a token, so that nobody connects without one. SessionError."""
        await self._held().current()

    async def first(self, connected: socket.socket) -> bool:
        """On a socket that has had its TLS handshake. False: once more, on another connection.
        SessionError, WireError, OSError.
        """

        async def ask(api: Api, version: int, body: Mapping[str, Any]) -> Value:
            frame = encode_request(api, version, _CORRELATION_ID, _CLIENT_ID, body)
            await _send(connected, frame)
            return _decoded(await _receive(connected), api, version)

        try:
            await self._log_in(ask)
        except NotAuthenticated as error:
            if self._is_retried:
                raise SessionError(REFUSED, str(error)) from error
            self._is_retried = True
            return False
        return True

    async def again(self, connection: Asking) -> None:
        """On the open connection, between two requests of the client. SessionError, WireError,
        OSError.
        """
        await in_task()

        async def ask(api: Api, version: int, body: Mapping[str, Any]) -> Value:
            frame = encode_request(api, version, _CORRELATION_ID, _CLIENT_ID, body)[LENGTH_BYTES:]
            answer = await ask_sasl(connection, frame, version, _CORRELATION_ID)
            return _decoded(answer, api, version)

        try:
            await self._log_in(ask)
        except NotAuthenticated as error:
            raise SessionError(REFUSED, str(error)) from error

    async def _log_in(self, ask: AskBroker) -> None:
        token = await self._held().current(self._refused)
        try:
            self._session = await token.session.authenticate(ask)
        except NotAuthenticated:
            self._refused = token.token_id
            raise
        except SecurityRefused as error:
            raise SessionError(REFUSED, str(error)) from error
        self._known(token.principal)

    def close(self) -> None:
        """The connection has ended; calling it again does nothing."""
        if self._lease is not None:
            self._lease.close()

    def _held(self) -> TokenLease:
        """Taken when it is needed first: a connection may be refused before."""
        if self._lease is None:
            self._lease = self._tokens.lease(self.subject)
        return self._lease


async def refuse_sasl(taken: Taken, settled: Callable[[], Awaitable[None]]) -> list[Buffer]:
    """The answer of a listener without SASL: its clients have proved who they are."""
    await settled()
    if taken.api_key == SASL_HANDSHAKE.key:
        body = {"error_code": ILLEGAL_SASL_STATE, "mechanisms": []}
        return [encode_response(SASL_HANDSHAKE, taken.api_version, taken.correlation_id, body)]
    body = {
        "error_code": ILLEGAL_SASL_STATE,
        "error_message": "the client is known by its certificate",
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
    }
    return [encode_response(SASL_AUTHENTICATE, taken.api_version, taken.correlation_id, body)]


def _decoded(frame: Buffer, api: Api, version: int) -> Value:
    correlation_id, value = decode_response(api, version, frame)
    if correlation_id != _CORRELATION_ID:
        raise WireError(f"an answer of {api.name} to {correlation_id}")
    return value


async def _send(connected: socket.socket, frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        sent = await done(connected, partial(connected.send, view), is_write=True)
        view = view[sent:]


async def _receive(connected: socket.socket) -> bytes:
    """One frame. ConnectionResetError: the broker has closed the connection."""
    size_bytes = int.from_bytes(await _exactly(connected, LENGTH_BYTES), "big", signed=True)
    if not 0 <= size_bytes <= _MOST_ANSWER_BYTES:
        raise WireError(f"an answer of SASL with {size_bytes} bytes")
    return await _exactly(connected, size_bytes)


async def _exactly(connected: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        left = size_bytes - len(received)
        piece = await done(connected, partial(connected.recv, left), is_write=False)
        if not piece:
            raise ConnectionResetError("the broker closed the connection while the proxy logged in")
        received += piece
    return bytes(received)
