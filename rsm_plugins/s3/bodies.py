"""Sends the bodies of uploads piece by piece, from threads, while they are read.

aiohttp passes a body through the event loop, with copies of what the socket does not take at once,
and over TLS of everything. Here a thread of its own reads a piece, adds it to the checksum while
the processor's cache has it, and gives it to the socket or the TLS layer, which wait and encrypt
without Python's lock. So no body is held in memory, and the event loop is not in its way.

Only plain answers are understood: those that say their length and are not encoded. For every other
answer, and where the connection ends before its answer began, `send` returns None: the caller then
sends the same signed request through aiohttp, which is the authority on everything else of HTTP. An
overloaded server is not sent a body twice: its answer counts without its text, if that is not
plain. This module must not know botocore, or what is sent.
"""

import asyncio
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from urllib.parse import urlsplit

from kip405.errors import RemoteStorageError
from rsm_plugins.s3.plain_http import (
    END_OF_HEAD,
    HEAD_MAX_BYTES,
    NEXT_ADDRESS_SECONDS,
    Head,
    IdleConnections,
    Origin,
    origin_of,
    parsed_head,
    request_head,
)
from rsm_plugins.threads import Threads

PIECE_BYTES = 256 * 1024
_STREAMED_PIECES = 8
"""So many are read for aiohttp at a time, in one job of a thread."""
_READ_BYTES = 16 << 10
_FIRST_FINAL = 200


class Body(ABC):
    """Bytes to send. botocore takes it for a file, because it has `read`, which nothing calls:
    payloads are not signed.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pieces(self) -> Iterator[bytes]:
        """All of it from the first byte on; blocks. It ends with an error of kip405's before the
        last piece where the bytes are not those that should be sent.
        """

    @abstractmethod
    async def for_aiohttp(self) -> "Pieces | StreamedBody":
        """The same for aiohttp: in memory, or read while it is sent."""

    def read(self) -> bytes:
        """All of it at once."""
        return b"".join(self.pieces())

    def seek(self, _position: int) -> None:  # noqa: B027 - nothing moves
        """Called before another try: each iteration begins at the first byte."""


class Pieces(Body):
    """A body in memory, as it was read."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def pieces(self) -> Iterator[bytes]:
        """See Body."""
        return iter(self._pieces)

    async def for_aiohttp(self) -> "Pieces":
        """See Body."""
        return self

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        """Views, of which aiohttp makes no copies as of large bytes."""
        for piece in self._pieces:
            view = memoryview(piece)
            for position in range(0, len(view), PIECE_BYTES):
                yield view[position : position + PIECE_BYTES]


class StreamedBody:
    """A body for aiohttp that is read in threads while it is sent; a few of its pieces are in
    memory.

    aiohttp cancels it where an answer comes before its end. It wraps an error of the body as one of
    the connection, so `error` keeps the first.
    """

    def __init__(self, body: Body, threads: Threads) -> None:
        self._body = body
        self._threads = threads
        self.error: RemoteStorageError | None = None

    def __len__(self) -> int:
        return len(self._body)

    def seek(self, position: int) -> None:
        """See Body."""
        self._body.seek(position)

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        pieces = self._body.pieces()
        try:
            while some := await self._threads.run(lambda: list(islice(pieces, _STREAMED_PIECES))):
                async for view in Pieces(some):
                    yield view
        except RemoteStorageError as error:
            self.error = error
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    text: bytes


class BodyConnections:
    """Connections to servers, each with one request at a time; its creator calls `close`.

    `threads` send: as many as there are bodies on their way. `patience_seconds`: how long a thread
    may take; who waits for it has a deadline of its own.
    """

    def __init__(
        self, threads: Threads, *, connect_seconds: float | None, patience_seconds: float
    ) -> None:
        self._threads = threads
        self._connect_seconds = connect_seconds
        self._hang_ms = int(patience_seconds * 1000)
        self._idle: IdleConnections[_Connection] = IdleConnections()
        self._busy: set[_Connection] = set()

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        body: Body,
        context: ssl.SSLContext | None,
    ) -> Answer | None:
        """PUT a body; None for an answer that is not plain, and where no connection can be made or
        it ends too early. `context` counts for https only. Errors of the body's are passed on. One
        who is cancelled ends the connection.
        """
        parts = urlsplit(url)
        origin = origin_of(parts)
        if self._idle.is_closed or origin is None:
            return None
        try:
            head = request_head(parts, headers, method="PUT")
            connection = self._idle_one(origin)
            if connection is None:
                connection = await self._idle.made(self._connect(origin, context))
            answer = await self._exchanged(connection, head, body)
        except OSError:
            return None
        if connection.may_stay:
            self._idle.keep(origin, connection)
        else:
            connection.abort()
        return answer

    async def _exchanged(self, connection: "_Connection", head: bytes, body: Body) -> Answer | None:
        self._busy.add(connection)
        is_answered = False
        try:
            job = self._threads.begin(
                partial(connection.exchange, head, body), hang_ms=self._hang_ms
            )
            answer = await self._threads.result(job)
            is_answered = True
            return answer
        finally:
            self._busy.discard(connection)
            if not (is_answered and connection.may_stay):
                connection.abort()

    def _idle_one(self, origin: Origin) -> "_Connection | None":
        """One that the server has not ended."""
        while (connection := self._idle.take(origin)) is not None:
            if connection.is_quiet():
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, context: ssl.SSLContext | None) -> "_Connection":
        """asyncio tries several addresses; its transport is given up for the socket."""
        scheme, host, port = origin
        async with asyncio.timeout(self._connect_seconds):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, host, port, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
            )
        try:
            found = transport.get_extra_info("socket").dup()
        finally:
            transport.abort()
        return _Connection(found, host, context if scheme == "https" else None)

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        self._idle.close()
        for connection in self._busy:
            connection.abort()


class _Connection:
    """One connection; `exchange` is called in a thread, everything else by the event loop."""

    def __init__(self, raw: socket.socket, host: str, context: ssl.SSLContext | None) -> None:
        self._raw = raw
        self._host = host
        self._context = context
        self._stream: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_used = False
        self._over = threading.Event()
        self.may_stay = False
        self.idle_since = 0.0

    def is_quiet(self) -> bool:
        """Whether the server has neither ended the connection nor sent what nobody asked for."""
        self._raw.setblocking(False)
        try:
            self._raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def abort(self) -> None:
        """End the connection now: a thread that waits for the socket gets an error."""
        with self._lock:
            self._over.set()
            with suppress(OSError):
                self._raw.shutdown(socket.SHUT_RDWR)
            if not self._is_used:
                self._close()

    def exchange(self, head: bytes, body: Body) -> Answer | None:
        """Send the request and read its answer. OSError where the connection ends before it."""
        self.may_stay = False
        with self._lock:
            if self._over.is_set():
                raise ConnectionAbortedError("the connection was given up")
            self._is_used = True
        try:
            return self._exchange(head, body)
        finally:
            with self._lock:
                self._is_used = False
                if self._over.is_set():  # only now: another file may get the descriptor's number
                    self._close()

    def _exchange(self, head: bytes, body: Body) -> Answer | None:
        self._raw.setblocking(True)
        if self._stream is None:
            self._stream = self._opened()
        was_sent = _send(self._stream, head, body)
        received, early = _received_head(self._stream)
        size_bytes = None if received is None else received.text_bytes()
        if received is None or size_bytes is None:
            return None
        text = early + _received(self._stream, size_bytes - len(early))
        is_plain = size_bytes == received.size_bytes and len(early) <= size_bytes
        self.may_stay = was_sent and received.may_stay and is_plain
        return Answer(status=received.status, headers=received.headers, text=text[:size_bytes])

    def _opened(self) -> socket.socket:
        """The socket, or TLS over a second descriptor of it: `abort` must not touch TLS."""
        if self._context is None:
            return self._raw
        return self._context.wrap_socket(self._raw.dup(), server_hostname=self._host)

    def _close(self) -> None:
        self._raw.close()
        if self._stream is not None:
            self._stream.close()


def _send(stream: socket.socket, head: bytes, body: Body) -> bool:
    """Whether everything was sent: a server may refuse a request before it has all of it, and its
    answer be there all the same.
    """
    try:
        stream.sendall(head)
        for piece in body.pieces():
            stream.sendall(piece)
    except OSError:
        return False
    return True


def _received_head(stream: socket.socket) -> tuple[Head | None, bytes]:
    """The head of the answer and what came with it; None for one that is not understood."""
    received = b""
    while len(received) < HEAD_MAX_BYTES:
        head, end, early = received.partition(END_OF_HEAD)
        if end:
            found = parsed_head(head)
            if found is None or found.status >= _FIRST_FINAL:
                return found, early
            received = early  # an answer in between
            continue
        received += _some(stream, _READ_BYTES)
    return None, b""


def _received(stream: socket.socket, size_bytes: int) -> bytes:
    found = b""
    while len(found) < size_bytes:
        found += _some(stream, size_bytes - len(found))
    return found


def _some(stream: socket.socket, size_bytes: int) -> bytes:
    found = stream.recv(size_bytes)
    if not found:
        raise ConnectionResetError("the connection ended before the answer did")
    return found
