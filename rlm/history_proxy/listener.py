"""The socket that Kafka clients of an attached reader connect to: frames in, answers out.

Requests of one connection are answered one after the other, as a broker does. TLS, handshakes and
counts are those of the proxy beside a broker. The number of connections, the size of a request and
the time without progress are bounded (H36). This module must not know what is answered.
"""

import asyncio
import contextlib
import socket
from functools import partial
from typing import Protocol

import structlog

from kafka_protocol.apis import API_VERSIONS
from kafka_protocol.frames import FrameAssembler, encode_response, parse_request_header
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import Api, Value, decode
from kip405.addresses import Address
from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.history_proxy.answers import NotOffered, offered, versions_answer
from rlm.proxy.handshakes import HandshakeFailed, accept, done, refuse_expired
from rlm.proxy.listening import Acceptor, listen
from rlm.proxy.settings import ProxyMetrics
from rlm.proxy.tls_files import Contexts
from rlm.proxy.tls_transport import peer_of

log = structlog.get_logger(__name__)

MOST_CONNECTIONS = 128
"""Each may hold an answer until its client has taken it. A consumer in a group has about three."""
MOST_REQUEST_BYTES = 1 << 20
IDLE_MS = 600_000
STALLED_MS = 30_000
"""How long a client may take for SENT_BYTES of an answer: a slow one goes on, a dead one ends."""
SENT_BYTES = 65_536
_READ_BYTES = 65_536
_V0 = 0


class Answers(Protocol):
    """rlm.history_proxy.answers.HistoryAnswers."""

    async def answer(self, api: Api, version: int, request: Value) -> Value: ...


class HistoryListener:
    """`start` listens, `close` ends every connection; each is served by a task of the group.
    `contexts`: TLS towards clients, None = none.
    """

    def __init__(
        self,
        *,
        at: Address,
        answers: Answers,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        metrics: ProxyMetrics,
        contexts: Contexts | None = None,
        handshake_timeout_ms: int = 10_000,
    ) -> None:
        self._tasks = tasks
        self._at = at
        self._answers = answers
        self._clock = clock
        self._metrics = metrics
        self._contexts = contexts
        self._handshake_timeout_ms = handshake_timeout_ms
        self._listening = contextlib.ExitStack()
        self._accepting: asyncio.Task[None] | None = None
        self._open: dict[socket.socket, asyncio.Task[None]] = {}

    async def start(self) -> int:
        """Listen and return the port. Invalid: the address cannot be listened on."""
        sockets = self._listening.enter_context(listen(self._at.host, self._at.port))
        acceptor = Acceptor(sockets, self._no_wait, self._accept, self._clock)
        self._accepting = self._tasks.create_task(acceptor.run())
        port: int = sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Clients connect again, if there is somebody to connect to."""
        if self._accepting is None:
            return
        serving = (self._accepting, *self._open.values())
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        for client in tuple(self._open):  # of a task that was cancelled before it began
            self._ended(client, "shutdown")
        self._listening.close()

    async def _no_wait(self) -> None:
        """Whom there is no room for is refused."""

    async def _accept(self, client: socket.socket) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            log.warning("connection_refused", limit=MOST_CONNECTIONS)
            client.close()
            return
        self._metrics.connection_opened()
        self._open[client] = self._tasks.create_task(self._serve(client))

    def _ended(self, client: socket.socket, cause: str) -> None:
        del self._open[client]
        client.close()
        self._metrics.connection_closed(cause)

    async def _serve(self, client: socket.socket) -> None:
        """Serve one client to its end, whatever that is, and count why."""
        peer, cause = str(peer_of(client)), "shutdown"
        try:
            cause = await self._why_ended(client, peer)
        finally:
            self._ended(client, cause)

    async def _why_ended(self, client: socket.socket, peer: str) -> str:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = await self._secured(client)
            with contextlib.closing(secured):
                return await self._answer_all(secured)
        except HandshakeFailed as error:
            log.info("client_turned_away", peer=peer, cause=error.cause, why=str(error))
            return error.cause
        except OSError:
            return "client_error"
        except (WireError, NotOffered, RemoteStorageError) as error:
            log.warning("kafka_connection_ended", peer=peer, error=str(error))
            return _CAUSES.get(type(error), "not_answered")
        except Exception:
            log.exception("kafka_connection_failed", peer=peer)
            return "crashed"

    async def _secured(self, client: socket.socket) -> socket.socket:
        if self._contexts is None:
            return client
        secured = await accept(client, self._contexts.current(), self._handshake_timeout_ms)
        try:
            refuse_expired(secured, self._clock.now_ms())
        except HandshakeFailed:
            secured.close()
            raise
        return secured

    async def _answer_all(self, client: socket.socket) -> str:
        """Until the client goes, or says or takes nothing for long. OSError: its socket failed."""
        assembler = FrameAssembler(MOST_REQUEST_BYTES)
        while True:
            try:
                async with asyncio.timeout(IDLE_MS / 1_000):
                    data = await done(client, partial(client.recv, _READ_BYTES), is_write=False)
            except TimeoutError:
                return "idle"
            if not data:
                return "client_closed"
            for frame in assembler.feed(data):
                answer = await self._answered(bytes(frame))
                try:
                    await _send(client, answer)
                except TimeoutError:
                    return "stalled"

    async def _answered(self, frame: bytes) -> bytes:
        header = parse_request_header(frame)
        version = header.api_version
        api = offered(header.api_key, version)
        if api is API_VERSIONS:
            answer = versions_answer(version)
            sent = _V0 if answer["error_code"] else version
            return encode_response(api, sent, header.correlation_id, answer)
        request, end = decode(api.request, version, frame, header.body_offset)
        if end != len(frame):
            raise WireError(f"{api.name} v{version}: {len(frame) - end} bytes after its end")
        answer = await self._answers.answer(api, version, request)
        return encode_response(api, version, header.correlation_id, answer)


async def _send(client: socket.socket, answer: bytes) -> None:
    """TimeoutError: the client took none of it for too long."""
    left = memoryview(answer)
    while left:
        piece = left[:SENT_BYTES]
        async with asyncio.timeout(STALLED_MS / 1_000):
            sent = await done(client, partial(client.send, piece), is_write=True)
        left = left[sent:]


_CAUSES: dict[type[Exception], str] = {WireError: "bad_frame", NotOffered: "version_not_offered"}
