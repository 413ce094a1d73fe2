"""Receives the answers to ranged GETs straight into memory that is used again.

aiohttp gives a body as many new pieces, which are then joined in new memory: three copies, and the
page faults of all of them. Here the socket, or the TLS layer, writes into the body's own buffer.
Only plain answers are received so: a 206 that says its length and is not encoded, and errors that
do. For every other answer, and where the connection ends before its answer began, `receive` returns
None: the caller then sends the same signed request through aiohttp, which is the authority on
redirects and everything else of HTTP. An overloaded server is not asked twice: its answer counts
without its body, if that is not plain.

There are as many connections as requests are under way. This module must not know botocore, or what
is read.
"""

import asyncio
import ctypes
import mmap
import ssl
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

SLOT_BYTES = 16 << 20
"""The largest range that a service asks for; a larger one goes through aiohttp."""
SLOTS_KEPT = 8
IDLE_SECONDS = 12.0
"""Servers and what is before them drop idle connections, some without a word."""
NEXT_ADDRESS_SECONDS = 0.25
"""From RFC 8305, as aiohttp does it: an address that does not answer delays no more than this."""
_HEAD_MAX_BYTES = 16 << 10
_END_OF_HEAD = b"\r\n\r\n"
PARTIAL_CONTENT = 206
_OK = 200
_FIRST_ERROR = 400
_TOO_MANY = 429
_FIRST_OF_SERVER = 500
_ERROR_MAX_BYTES = 64 << 10
_FRAMING = {"connection", "content-encoding", "content-length", "content-range"}
"""Headers that say what the body is; an answer with two of one kind is not understood here."""
PORTS = {"http": 80, "https": 443}
_Slot = ctypes.c_ubyte * SLOT_BYTES
_Origin: TypeAlias = tuple[str, str, int]


class BodyMemory:
    """Buffers of bodies. A buffer is free again when the last view of it is gone; some stay mapped,
    so that bodies do not cost a page fault for every 4 KiB.
    """

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque(maxlen=SLOTS_KEPT)

    def take(self, size_bytes: int) -> memoryview:
        """A buffer of at most `SLOT_BYTES`, with any content."""
        mapping = self._free.pop() if self._free else mmap.mmap(-1, SLOT_BYTES)
        slot = _Slot.from_buffer(mapping)
        gone = weakref.finalize(slot, self._free.append, mapping)
        gone.atexit = False
        return memoryview(slot).cast("B")[:size_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of an answer; names of headers are in lower case.

    `size_bytes` is None where the body does not say its length or is encoded. `may_stay`: the
    connection can be used again.
    """

    status: int
    headers: Mapping[str, str]
    size_bytes: int | None
    may_stay: bool

    def body_bytes(self, max_bytes: int) -> int | None:
        """How much of the body is received here; None if the answer is left to aiohttp."""
        size_bytes = self.size_bytes
        if self.status == PARTIAL_CONTENT:
            return size_bytes if size_bytes is not None and size_bytes <= max_bytes else None
        if self.status == _OK:
            return 0  # the whole object instead of a range, which nobody wants
        if self.status < _FIRST_ERROR:
            return None
        if size_bytes is not None and size_bytes <= _ERROR_MAX_BYTES:
            return size_bytes
        return 0 if self.status >= _FIRST_OF_SERVER or self.status == _TOO_MANY else None


def parsed_head(head: bytes) -> Head | None:
    """The head of an answer; None for one that is not understood."""
    line, *lines = head.split(b"\r\n")
    version, _, rest = line.partition(b" ")
    if version != b"HTTP/1.1" or not rest[:3].isdigit() or rest[3:4] not in (b" ", b""):
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if not colon or not name or name != name.strip() or key in _FRAMING & headers.keys():
            return None
        headers[key] = value.strip().decode("latin-1")
    return Head(
        status=int(rest[:3]),
        headers=headers,
        size_bytes=_plain_size(headers),
        may_stay="close" not in headers.get("connection", "").lower(),
    )


def _plain_size(headers: Mapping[str, str]) -> int | None:
    length = headers.get("content-length", "")
    is_encoded = headers.get("content-encoding", "identity").lower() != "identity"
    if is_encoded or "transfer-encoding" in headers:
        return None
    return int(length) if length.isascii() and length.isdecimal() else None


class RangeBody:
    """The body of one answer, while it arrives and after."""

    def __init__(self, head: Head, buffer: memoryview, connection: "_Connection") -> None:
        self.status = head.status
        self.headers = head.headers
        self._buffer = buffer
        self._connection = connection
        self._arrived_bytes = 0
        self._arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived.add_done_callback(_consume_exception)

    @property
    def rest(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._arrived_bytes :]

    async def read(self) -> memoryview:
        """All of it; ConnectionError if the connection ended before. One who is cancelled while
        waiting gives up what has not arrived.
        """
        try:
            await asyncio.shield(self._arrived)
        except asyncio.CancelledError:
            self.close()
            raise
        return self._buffer

    def close(self) -> None:
        """Give up what has not arrived; nothing is written to its buffer after this."""
        if not self._arrived.done():
            self._connection.abort()

    # Called by the connection.

    def advance(self, size_bytes: int) -> bool:
        """So many bytes have arrived; whether that was the last of them."""
        self._arrived_bytes += size_bytes
        is_whole = self._arrived_bytes == len(self._buffer)
        if is_whole and not self._arrived.done():
            self._arrived.set_result(None)
        return is_whole

    def fail(self, error: ConnectionError) -> None:
        if not self._arrived.done():
            self._arrived.set_exception(error)


class RangeConnections:
    """Connections to servers, each with one request at a time; its creator calls `close`."""

    def __init__(self, *, connect_seconds: float | None) -> None:
        self._connect_seconds = connect_seconds
        self._memory = BodyMemory()
        self._idle: defaultdict[_Origin, list[_Connection]] = defaultdict(list)
        self._is_closed = False

    async def receive(
        self,
        url: str,
        headers: Mapping[str, str],
        max_bytes: int,
        context: ssl.SSLContext | None,
    ) -> RangeBody | None:
        """Send a GET; the body of a plain 206 of at most so many bytes, None for anything else and
        where no connection can be made. `context` counts for https only.
        """
        parts = urlsplit(url)
        host = parts.hostname
        if self._is_closed or host is None or max_bytes > SLOT_BYTES:
            return None
        origin = (parts.scheme, host, parts.port or PORTS[parts.scheme])
        try:
            request = request_head(parts, headers)
            connection = self._idle_one(origin) or await self._connect(origin, context)
            return await connection.ask(request, max_bytes)
        except OSError:
            return None

    def _idle_one(self, origin: _Origin) -> "_Connection | None":
        """The connection that was used last, if it is not too old; a server, or something between,
        may have dropped an older one without a word.
        """
        idle = self._idle[origin]
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: _Origin, context: ssl.SSLContext | None) -> "_Connection":
        scheme, host, port = origin
        async with asyncio.timeout(self._connect_seconds):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self._memory, self._idle[origin], lambda: self._is_closed),
                host,
                port,
                ssl=context if scheme == "https" else None,
                happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            )
        return connection

    def close(self) -> None:
        """Close idle connections; requests under way end with their callers."""
        self._is_closed = True
        for idle in self._idle.values():
            while idle:
                idle.pop().abort()


class _Connection(asyncio.BufferedProtocol):
    """One connection; `idle` is where it goes when it can be used again, unless `is_over`."""

    def __init__(
        self, memory: BodyMemory, idle: "list[_Connection]", is_over: Callable[[], bool]
    ) -> None:
        self._memory = memory
        self._idle = idle
        self._is_over = is_over
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = memoryview(bytearray(_HEAD_MAX_BYTES))
        self._head_bytes = 0
        self._max_bytes = 0
        self._answer: asyncio.Future[RangeBody | None] | None = None
        self._body: RangeBody | None = None
        self._may_stay = False
        self.idle_since = 0.0

    async def ask(self, request: bytes, max_bytes: int) -> RangeBody | None:
        """Send the request and wait for the head of its answer. ConnectionError if the connection
        ended before that.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._max_bytes = max_bytes
        answer: asyncio.Future[RangeBody | None] = self._loop.create_future()
        self._answer = answer
        answer.add_done_callback(_consume_exception)
        self._transport.write(request)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self.abort()
            elif answer.exception() is None and (body := answer.result()) is not None:
                body.close()  # the connection may be another caller's by now
            raise

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._head[self._head_bytes :] if self._body is None else self._body.rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is not None:
            self._advance(self._body, nbytes)
            return
        if self._answer is None or self._answer.done():
            self.abort()  # nothing was asked
            return
        self._head_bytes += nbytes
        received = bytes(self._head[: self._head_bytes])
        end = received.find(_END_OF_HEAD)
        if end >= 0:
            early = received[end + len(_END_OF_HEAD) :]
            self._begin(self._answer, parsed_head(received[:end]), early)
        elif self._head_bytes == len(self._head):
            self._decline(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _begin(
        self, answer: "asyncio.Future[RangeBody | None]", head: Head | None, early: bytes
    ) -> None:
        size_bytes = None if head is None else head.body_bytes(self._max_bytes)
        if head is None or size_bytes is None:
            self._decline(answer)
            return
        is_plain = size_bytes == head.size_bytes and len(early) <= size_bytes
        self._head_bytes, self._may_stay = 0, head.may_stay and is_plain
        early = early[:size_bytes]
        buffer = self._memory.take(size_bytes)
        buffer[: len(early)] = early
        self._body = RangeBody(head, buffer, self)
        answer.set_result(self._body)
        self._advance(self._body, len(early))

    def _decline(self, answer: "asyncio.Future[RangeBody | None]") -> None:
        answer.set_result(None)
        self.abort()

    def _advance(self, body: RangeBody, size_bytes: int) -> None:
        if not body.advance(size_bytes):
            return
        self._body = self._answer = None
        if self._may_stay and not self._is_over():
            self.idle_since = self._loop.time()
            self._idle.append(self)
        else:
            self.abort()

    def _end(self) -> None:
        error = ConnectionResetError("the connection ended before the answer did")
        if self in self._idle:
            self._idle.remove(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._body is not None:
            self._body.fail(error)
            self._body = None
        self._answer = None


def request_head(parts: SplitResult, headers: Mapping[str, str], *, method: str = "GET") -> bytes:
    """The head of a request for a URL whose parts are encoded already; ConnectionError for a header
    that would not stay one line.
    """
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    host = parts.netloc.removesuffix(f":{PORTS[parts.scheme]}")  # as it is signed
    given = {"Host": host, "Accept-Encoding": "identity", **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ConnectionAbortedError("a header has more than one line")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _consume_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieves the failure of a future that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
