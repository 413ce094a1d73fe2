"""Frames between a proxy worker and the core: a message, and raw bytes behind it.

proto/rlm/workers/v1/core.proto describes them. Raw bytes are received where they stay: large ones
go straight into memory of their own. This module must not know what messages mean.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence

from kafka_protocol.primitives import Buffer

_HEAD = struct.Struct(">II")
_SCRATCH_BYTES = 65_536
_MAX_MESSAGE_BYTES = 256 << 20
_MAX_RAW_BYTES = 1 << 30
_QUEUE_BYTES = 4 << 20


class RawBytes(bytearray):
    """The raw bytes of a frame; a bytearray that one can refer to weakly."""

    __slots__ = ("__weakref__",)


Received = Callable[[bytes, RawBytes], None]


class FrameLink(asyncio.BufferedProtocol):
    """One end of a connection. `received` gets each frame, `closed` is called once at the end."""

    def __init__(self, received: Received, closed: Callable[[], None]) -> None:
        self._received = received
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._held = bytearray()
        """The start of a frame whose message has not come whole."""
        self._message = b""
        self._raw: RawBytes | None = None
        self._filled_bytes = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.problem = ""
        """Why this end has closed the connection, empty = it has not."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the other side that `drained` would wait too."""
        return not self._may_write.is_set()

    def send(self, message: bytes, raw: Sequence[Buffer] = ()) -> None:
        """Queue a frame; nothing is sent any more once the connection has ended."""
        if self._transport is None or self._transport.is_closing():
            return
        raw_bytes = sum(len(piece) for piece in raw)
        self._transport.write(_HEAD.pack(len(message), raw_bytes) + message)
        for piece in raw:
            self._transport.write(piece)

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was sent, or is gone. Who sends first
        then may fill the queue again: the others wait on.
        """
        while not self._may_write.is_set():
            await self._may_write.wait()

    def close(self, problem: str = "") -> None:
        """End the connection, after what was sent."""
        self.problem = self.problem or problem
        if self._transport is not None:
            self._transport.close()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream, as asked for
        transport.set_write_buffer_limits(high=_QUEUE_BYTES)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._may_write.set()
        self._closed()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch if self._raw is None else memoryview(self._raw)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._raw is None:
            self._take(bytes(self._scratch[:nbytes]))
            return
        self._filled_bytes += nbytes
        self._end_raw(self._raw)

    def _take(self, data: bytes) -> None:
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
            raw, has = RawBytes(raw_bytes), min(raw_bytes, len(self._held) - end)
            raw[:has] = self._held[end : end + has]
            at = end + has
            self._raw, self._filled_bytes = raw, has
            self._end_raw(raw)
        del self._held[:at]

    def _end_raw(self, raw: RawBytes) -> None:
        """Hand over the frame once its raw bytes are whole."""
        if self._filled_bytes == len(raw):
            self._raw = None
            self._received(self._message, raw)
