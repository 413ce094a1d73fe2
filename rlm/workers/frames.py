"""Frames between a proxy worker and the core: a message, and raw bytes behind it.

proto/rlm/workers/v1/core.proto describes them. Raw bytes are not copied on their way: they are sent
from where they are (rlm.proxy.writer), and received where they stay. This module must not know what
messages mean.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kafka_protocol.primitives import Buffer
from rlm.proxy.writer import PacedWriter

_HEAD = struct.Struct(">II")
_SCRATCH_BYTES = 8_192
_MAX_MESSAGE_BYTES = 256 << 20
_MAX_RAW_BYTES = 1 << 30
_QUEUE_BYTES = 4 << 20
_SOCKET_BYTES = 1 << 20
"""What the socket may hold for the other side, if the system allows it: an answer of one chunk."""

RawBytes: TypeAlias = tuple[memoryview, ...]
"""The raw bytes of a frame, in order; each view keeps the memory that it is of."""
RawMemory: TypeAlias = Callable[[int], Sequence[memoryview]]
"""Gives memory for so many bytes that are to be received: as many bytes, in one or more views."""
Received: TypeAlias = Callable[[bytes, RawBytes], None]


def new_memory(size_bytes: int) -> Sequence[memoryview]:
    """A RawMemory without a bound, of a side that is sent no raw bytes worth mentioning."""
    return (memoryview(bytearray(size_bytes)),) if size_bytes else ()


class FrameLink(asyncio.BufferedProtocol):
    """One end of a connection. `received` gets each frame, `closed` is called once at the end."""

    def __init__(
        self,
        received: Received,
        closed: Callable[[], None],
        memory: RawMemory = new_memory,
    ) -> None:
        self._received = received
        self._closed = closed
        self._memory = memory
        self._transport: asyncio.Transport | None = None
        self._writer: PacedWriter | None = None
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._held = bytearray()
        """The start of a frame whose message has not come whole."""
        self._message = b""
        self._raw: RawBytes = ()
        self._rooms: deque[memoryview] = deque()
        """What is still to be filled of the raw bytes."""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_ending = False
        self.problem = ""
        """Why this end has closed the connection, empty = it has not."""

    @property
    def is_open(self) -> bool:
        if self._transport is None or self._is_ending:
            return False
        return not self._transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the other side that `drained` would wait too."""
        return not self._may_write.is_set()

    def send(self, message: bytes, raw: Sequence[Buffer] = ()) -> None:
        """Queue a frame; nothing is sent any more once the connection has ended. The raw bytes must
        not change, and are referred to until the socket has taken them.
        """
        if self._writer is None or not self.is_open:
            return
        raw_bytes = sum(len(piece) for piece in raw)
        self._writer.write_all((_HEAD.pack(len(message), raw_bytes), message, *raw))
        if self._writer.untaken_bytes > _QUEUE_BYTES:
            self._may_write.clear()

    async def drained(self) -> None:
        """Wait until the other side has taken what was sent, or is gone. Who sends first then may
        fill the queue again: the others wait on.
        """
        while not self._may_write.is_set():
            await self._may_write.wait()

    def close(self, problem: str = "") -> None:
        """End the connection, after what was sent. Nothing is received any more."""
        self.problem = self.problem or problem
        if self._writer is not None and self._transport is not None:
            self._is_ending = True
            self._drop_raw()
            self._transport.pause_reading()
            self._writer.finish()

    def _drop_raw(self) -> None:
        """What has come of a frame is given back."""
        self._rooms.clear()
        self._raw = ()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream, as asked for
        used: socket.socket | None = transport.get_extra_info("socket")
        if used is not None:
            used.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        self._writer = PacedWriter(transport, self._taken)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._writer is not None:
            self._writer.drop()
        self._writer = self._transport = None
        self._drop_raw()
        self._may_write.set()
        self._closed()

    def pause_writing(self) -> None:
        if self._writer is not None:
            self._writer.pause()

    def resume_writing(self) -> None:
        if self._writer is not None:
            self._writer.resume()

    def _taken(self) -> None:
        if self._writer is None or not self._writer.untaken_bytes:
            self._may_write.set()

    def eof_received(self) -> bool:
        """The other side is gone: it never ends one direction alone."""
        if self._writer is not None:
            self._writer.drop()
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._rooms[0] if self._rooms else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        if not self._rooms:
            self._take(self._scratch[:nbytes])
            return
        self._filled(nbytes)
        self._end_raw()

    def _take(self, data: memoryview) -> None:
        self._held += data
        at = 0
        while self.is_open and len(self._held) - at >= _HEAD.size:
            message_bytes, raw_bytes = _HEAD.unpack_from(self._held, at)
            if message_bytes > _MAX_MESSAGE_BYTES or raw_bytes > _MAX_RAW_BYTES:
                return self.close(f"a frame of {message_bytes} and {raw_bytes} bytes")
            begin, end = at + _HEAD.size, at + _HEAD.size + message_bytes
            if len(self._held) < end:
                break
            self._message = bytes(self._held[begin:end])
            self._rooms.extend(self._memory(raw_bytes))
            self._raw = tuple(self._rooms)
            at = end + self._fill(self._held[end : end + raw_bytes])
            self._end_raw()
        del self._held[:at]

    def _fill(self, data: bytearray) -> int:
        """Copy what came with the message; returns how much that is."""
        left = memoryview(data)
        while left:
            size_bytes = min(len(left), len(self._rooms[0]))
            self._rooms[0][:size_bytes] = left[:size_bytes]
            self._filled(size_bytes)
            left = left[size_bytes:]
        return len(data)

    def _filled(self, size_bytes: int) -> None:
        """So many bytes of the first room were received."""
        room = self._rooms.popleft()
        if size_bytes < len(room):
            self._rooms.appendleft(room[size_bytes:])

    def _end_raw(self) -> None:
        """Hand over the frame once its raw bytes are whole."""
        if not self._rooms:
            raw, self._raw = self._raw, ()
            self._received(self._message, tuple(view.toreadonly() for view in raw))
