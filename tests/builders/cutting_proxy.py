"""An HTTP proxy in front of an S3 server that does, to the requests a test names, what networks and
stores do: refuse, break off, stall, lie about lengths, flip bits, lose answers, be slow.

Requests keep their Host header, so that signatures stay valid. Counts requests by kind, answers by
status, bytes, and connections that are open, and keeps what was asked of what. Heads are parsed,
bodies streamed.
"""

import asyncio
import base64
import contextlib
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kip405.crc import crc32c
from tests.builders.cutting_actions import (
    Action,
    Answer,
    AnswerLost,
    Delay,
    Fault,
    FlipAnswer,
    FlipRequest,
    ResetAnswer,
    ResetRequest,
    ShortBody,
    StallAnswer,
    StallRequest,
    WrongLength,
)
from tests.builders.s3_requests import Asked, Head, asked, error_answer, operation

HEAD_MAX_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
_GO = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Broken(Exception):
    """The connection is to end now; `reset` without goodbye."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two sides of one client's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class CuttingProxy:
    """Listens on a free loopback port while the `async with` block runs."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self.port = 0
        self.faults: list[Fault] = []
        self.requests: Counter[str] = Counter()
        self.asked: Counter[Asked] = Counter()
        self.statuses: Counter[int] = Counter()
        self.connections = 0
        self.bytes_up = 0
        self.bytes_down = 0

    async def __aenter__(self) -> "CuttingProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_MAX_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections of clients that have not ended."""
        return len(self._handlers)

    def script(
        self,
        action: Action,
        *operations: str,
        times: int | None = 1,
        skip: int = 0,
    ) -> Fault:
        """Add a fault; the first that applies to a request is done to it."""
        fault = Fault(action=action, operations=operations, times=times, skip=skip)
        self.faults.append(fault)
        return fault

    def forget(self) -> None:
        """No more faults, and all counters but that of open connections starts again."""
        self.faults.clear()
        self.requests.clear()
        self.asked.clear()
        self.statuses.clear()
        self.bytes_up = self.bytes_down = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connections += 1
        server: _Pair | None = None
        try:
            while (head := await _read_head(reader)) is not None:
                if server is None:
                    server = await self._dial()
                if not await self._exchange(head, _Pair(reader, writer), server):
                    break
        except _Broken as broken:
            if broken.reset:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            for side in (writer, *((server.writer,) if server else ())):
                side.close()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await side.wait_closed()
            self._handlers.discard(task)

    async def _dial(self) -> _Pair:
        return _Pair(
            *await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=HEAD_MAX_BYTES)
        )

    async def _exchange(self, head: Head, client: _Pair, server: _Pair) -> bool:
        """One request and its answer; whether the connection may be used again."""
        name = operation(head)
        self.requests[name] += 1
        self.asked[asked(head)] += 1
        action = next((fault.action for fault in self.faults if fault.applies(name)), None)
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
        if isinstance(action, Answer):
            await self._take_body(head, client)
            await self._answer(action, head, client)
            return True
        if isinstance(action, StallRequest) and action.after_bytes == 0:
            await _until_gone(client)
        if isinstance(action, ResetRequest) and action.after_bytes == 0:
            raise _Broken(reset=True)
        server.writer.write(head.raw)
        sending = asyncio.create_task(self._send_body(head, client, server, action))
        answered = asyncio.create_task(self._relay_answer(head, client, server, action))
        try:
            await asyncio.wait((sending, answered), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            sending.cancel()
            answered.cancel()
            results = await asyncio.gather(sending, answered, return_exceptions=True)
        return _outcome(results)

    async def _answer(self, action: Answer | AnswerLost, head: Head, client: _Pair) -> None:
        with_body = head.method != "HEAD"
        client.writer.write(error_answer(action.status, action.code, with_body=with_body))
        await client.writer.drain()

    async def _take_body(self, head: Head, client: _Pair) -> None:
        if head.waits_for_go:
            client.writer.write(_GO)
        async for piece in _body(head, client.reader):
            self.bytes_up += len(piece)

    async def _send_body(
        self, head: Head, client: _Pair, server: _Pair, action: Action | None
    ) -> None:
        sent = 0
        async for piece in _body(head, client.reader):
            self.bytes_up += len(piece)
            if isinstance(action, FlipRequest):
                piece = _flipped(piece, action.position - sent)
            if isinstance(action, ResetRequest) and sent + len(piece) > action.after_bytes:
                raise _Broken(reset=True)
            if not (isinstance(action, StallRequest) and sent + len(piece) > action.after_bytes):
                server.writer.write(piece)
                await server.writer.drain()
            sent += len(piece)
        if isinstance(action, StallRequest):
            await _until_gone(client)

    async def _relay_answer(
        self, head: Head, client: _Pair, server: _Pair, action: Action | None
    ) -> bool:
        while True:
            answer = await _read_head(server.reader)
            if answer is None:
                raise _Broken(reset=False)
            if answer.status >= 200:
                break
            client.writer.write(answer.raw)
        self.statuses[answer.status] += 1
        body = _answer_body(head, answer, server.reader)
        if isinstance(action, AnswerLost):
            async for _ in body:
                pass
            await self._answer(action, head, client)
        elif isinstance(action, WrongLength | FlipAnswer) and answer.status < 300:
            await self._changed_answer(answer, body, client, action)
        else:
            await self._streamed_answer(answer, body, client, action)
        return answer.headers.get("connection", "").lower() != "close"

    async def _streamed_answer(
        self, answer: Head, body: AsyncIterator[bytes], client: _Pair, action: Action | None
    ) -> None:
        limit = None
        if isinstance(action, ResetAnswer | StallAnswer):
            limit = action.after_bytes
        elif isinstance(action, ShortBody):
            limit = max((answer.length or 0) - action.missing_bytes, 0)
        client.writer.write(answer.raw)
        sent = 0
        async for piece in body:
            part = piece if limit is None else piece[: limit - sent]
            client.writer.write(part)
            await client.writer.drain()
            sent += len(part)
            self.bytes_down += len(part)
            if limit is not None and sent >= limit:
                break
        if isinstance(action, StallAnswer):
            await _until_gone(client)
        if limit is not None:
            raise _Broken(reset=isinstance(action, ResetAnswer))
        await client.writer.drain()

    async def _changed_answer(
        self,
        answer: Head,
        body: AsyncIterator[bytes],
        client: _Pair,
        action: WrongLength | FlipAnswer,
    ) -> None:
        """An answer whose body is known as a whole before its head is written."""
        whole = b"".join([piece async for piece in body])
        if isinstance(action, WrongLength):
            whole = whole[: max(len(whole) - action.missing_bytes, 0)]
            head = answer.changed(content_length=str(len(whole)))
        else:
            whole = _flipped(whole, action.position)
            head = answer.changed(**_checksums(answer, whole)) if action.mended else answer.raw
        client.writer.write(head + whole)
        self.bytes_down += len(whole)
        await client.writer.drain()


def _outcome(results: tuple[BaseException | None, BaseException | bool]) -> bool:
    """What became of an exchange; a break that was scripted goes before what followed from it."""
    for error in results:
        if isinstance(error, _Broken):
            raise _Broken(reset=error.reset)
    sent, reusable = results
    if isinstance(reusable, BaseException):
        raise _Broken(reset=True) from reusable
    if isinstance(sent, BaseException):
        raise _Broken(reset=False) from sent  # the server had answered before all was sent
    return reusable


async def _until_gone(client: _Pair) -> None:
    """Until the client closes its side; whatever it still sends is swallowed."""
    while await client.reader.read(PIECE_BYTES):
        pass
    raise _Broken(reset=True)


async def _read_head(reader: asyncio.StreamReader) -> Head | None:
    try:
        return Head.parse(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None


async def _body(head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Pieces of a body as they are on the wire, those of a chunked one with its framing."""
    if head.is_chunked:
        size = -1
        while size != 0:
            line = await reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
        return
    left = head.length or 0
    while left:
        piece = await reader.read(min(left, PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


def _answer_body(head: Head, answer: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    if head.method == "HEAD" or answer.status in (204, 304):
        return _nothing()
    if answer.length is None and not answer.is_chunked:
        return _until_end(reader)
    return _body(answer, reader)


async def _nothing() -> AsyncIterator[bytes]:
    none: tuple[bytes, ...] = ()
    for piece in none:
        yield piece


async def _until_end(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(PIECE_BYTES):
        yield piece


def _flipped(piece: bytes, position: int) -> bytes:
    if not 0 <= position < len(piece):
        return piece
    changed = bytearray(piece)
    changed[position] ^= 1
    return bytes(changed)


def _checksums(answer: Head, body: bytes) -> dict[str, str | None]:
    """Checksum headers of a changed body: right where we can compute them, else left out."""
    known = {"x-amz-checksum-crc32c": crc32c(body), "x-amz-checksum-crc32": zlib.crc32(body)}
    found: dict[str, str | None] = {}
    for name in answer.headers:
        if name.startswith("x-amz-checksum-"):
            number = known.get(name)
            text = None if number is None else base64.b64encode(number.to_bytes(4, "big"))
            found[name] = None if text is None else text.decode()
    return found
