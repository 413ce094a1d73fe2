"""The socket that Kafka clients of an attached reader connect to: frames in, answers out.

Requests of one connection are answered one after the other, as a broker does. The number of
connections, the size of a request and the time without progress are bounded (H36). This module must
not know what is answered.
"""

import asyncio
from typing import Protocol

import structlog

from kafka_protocol.apis import API_VERSIONS
from kafka_protocol.frames import FrameAssembler, encode_response, parse_request_header
from kafka_protocol.primitives import WireError
from kafka_protocol.schema import Api, Value, decode
from kip405.addresses import Address
from kip405.errors import Invalid, RemoteStorageError
from rlm.history_proxy.answers import NotOffered, offered, versions_answer

log = structlog.get_logger(__name__)

MOST_CONNECTIONS = 64
"""Each may hold an answer until its client has taken it."""
MOST_REQUEST_BYTES = 1 << 20
IDLE_MS = 600_000
STALLED_MS = 30_000
"""How long a client may take for an answer."""
_READ_BYTES = 65_536
_V0 = 0


class Answers(Protocol):
    """rlm.history_proxy.answers.HistoryAnswers."""

    async def answer(self, api: Api, version: int, request: Value) -> Value: ...


class HistoryListener:
    """`start` listens, `close` ends every connection; each is served by a task of the group."""

    def __init__(self, listen: Address, answers: Answers, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._listen = listen
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def start(self) -> int:
        """Listen and return the port. Invalid: the address cannot be listened on."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._listen.host, self._listen.port, reuse_address=True
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise Invalid(f"proxy.listen: cannot listen on {self._listen}: {reason}") from error
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Clients connect again, if there is somebody to connect to."""
        if self._server is None:
            return
        self._server.close()
        serving = tuple(self._open.values())
        for writer, task in self._open.items():
            writer.transport.abort()  # a task that is cancelled before it began does not
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            log.warning("kafka_connection_refused", limit=MOST_CONNECTIONS)
            writer.transport.abort()
            return
        self._open[writer] = self._tasks.create_task(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername"))
        try:
            await self._answer_all(reader, writer)
        except (OSError, TimeoutError):
            pass  # the client is gone, or idle
        except (WireError, NotOffered, RemoteStorageError) as error:
            log.warning("kafka_connection_ended", peer=peer, error=str(error))
        except Exception:
            log.exception("kafka_connection_failed", peer=peer)
        finally:
            del self._open[writer]
            writer.transport.abort()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assembler = FrameAssembler(MOST_REQUEST_BYTES)
        while True:
            async with asyncio.timeout(IDLE_MS / 1_000):
                data = await reader.read(_READ_BYTES)
            if not data:
                return
            for frame in assembler.feed(data):
                writer.write(await self._answered(bytes(frame)))
                async with asyncio.timeout(STALLED_MS / 1_000):
                    await writer.drain()

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
