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
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

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

SLOT_BYTES = 16 << 20
"""The largest range that a service asks for; a larger one goes through aiohttp."""
SLOTS_KEPT = 8
PARTIAL_CONTENT = 206
_OK = 200
_FIRST_ERROR = 400
_Slot = ctypes.c_ubyte * SLOT_BYTES


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


def _body_bytes(head: Head, max_bytes: int) -> int | None:
    """How much of the body is received here; None if the answer is left to aiohttp."""
    size_bytes = head.size_bytes
    if head.status == PARTIAL_CONTENT:
        return size_bytes if size_bytes is not None and size_bytes <= max_bytes else None
    if head.status == _OK:
        return 0  # the whole object instead of a range, which nobody wants
    return None if head.status < _FIRST_ERROR else head.text_bytes()


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
        self._idle: IdleConnections[_Connection] = IdleConnections()

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
        origin = origin_of(parts)
        if self._idle.is_closed or origin is None or max_bytes > SLOT_BYTES:
            return None
        try:
            request = request_head(parts, headers)
            connection = self._idle.take(origin)
            if connection is None:
                connection = await self._idle.made(self._connect(origin, context))
            return await connection.ask(request, max_bytes)
        except OSError:
            return None

    async def _connect(self, origin: Origin, context: ssl.SSLContext | None) -> "_Connection":
        scheme, host, port = origin
        async with asyncio.timeout(self._connect_seconds):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self._memory, self._idle, origin),
                host,
                port,
                ssl=context if scheme == "https" else None,
                happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            )
        return connection

    def close(self) -> None:
        """Close idle connections; requests under way end with their callers."""
        self._idle.close()


class _Connection(asyncio.BufferedProtocol):
    """One connection; `idle` is where it goes when it can be used again."""

    def __init__(
        self, memory: BodyMemory, idle: "IdleConnections[_Connection]", origin: Origin
    ) -> None:
        self._memory = memory
        self._idle = idle
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = memoryview(bytearray(HEAD_MAX_BYTES))
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
        end = received.find(END_OF_HEAD)
        if end >= 0:
            early = received[end + len(END_OF_HEAD) :]
            self._begin(self._answer, parsed_head(received[:end]), early)
        elif self._head_bytes == len(self._head):
            self._decline(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _begin(
        self, answer: "asyncio.Future[RangeBody | None]", head: Head | None, early: bytes
    ) -> None:
        size_bytes = None if head is None else _body_bytes(head, self._max_bytes)
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
        if self._may_stay:
            self._idle.keep(self._origin, self)
        else:
            self.abort()

    def _end(self) -> None:
        error = ConnectionResetError("the connection ended before the answer did")
        if self in self._idle[self._origin]:
            self._idle[self._origin].remove(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._body is not None:
            self._body.fail(error)
            self._body = None
        self._answer = None


def _consume_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieves the failure of a future that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
