"""Writes pieces to a transport so that the transport copies and keeps only a small part of them.

The transports of asyncio copy (or keep a reference to) whatever the socket does not take at once.
Written in small parts, record bytes go from where they are to the socket, and the queued amount is
known. Bytes of a buffer that is used again are given to the socket directly, and only those that it
does not take are copied. This module must not know Kafka.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable

from kafka_protocol.primitives import Buffer

PART_BYTES = 1_048_576
_SMALL_BYTES = 16_384


class PacedWriter:
    """Owns the writing side of one transport; `on_drained` is called when its queue is empty."""

    def __init__(self, transport: asyncio.WriteTransport, on_drained: Callable[[], None]) -> None:
        self._transport = transport
        self._on_drained = on_drained
        self._queue: deque[memoryview] = deque()
        self._paused = False
        self._is_finishing = False
        self._is_lent = False
        self.queued_bytes = 0
        self._given_bytes = 0
        is_tls = transport.get_extra_info("sslcontext") is not None
        self._socket = None if is_tls else transport.get_extra_info("socket")
        transport.set_write_buffer_limits(high=0)

    @property
    def accepted_bytes(self) -> int:
        """All bytes that were given to this writer so far."""
        return self._given_bytes + self.queued_bytes

    @property
    def untaken_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self.queued_bytes + self._transport.get_write_buffer_size()

    @property
    def taken_bytes(self) -> int:
        """All bytes that the socket has taken so far."""
        return self._given_bytes - self._transport.get_write_buffer_size()

    def write(self, piece: Buffer) -> None:
        """Queue a piece and send what the socket takes; the piece must not change afterwards."""
        if not len(piece) or self._is_finishing:
            return
        self._queue.append(memoryview(piece))
        self.queued_bytes += len(piece)
        self._send()

    def pass_on(self, view: Buffer) -> None:
        """Write bytes that may change after this call: what the socket takes is not copied."""
        if not len(view) or self._is_finishing:
            return
        sent_bytes = 0 if self._paused or self.untaken_bytes or self._is_lent else self._try(view)
        self._given_bytes += sent_bytes
        if sent_bytes < len(view):
            self.write(bytes(memoryview(view)[sent_bytes:]))

    def _try(self, view: Buffer) -> int:
        """How many bytes the socket takes now; its transport will meet an error by itself."""
        if self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), view)
        except OSError:  # BlockingIOError is one
            return 0

    def lend(self) -> int | None:
        """A duplicate of the socket's descriptor, to which something else writes until
        `give_back`; None where bytes are queued, under TLS, or if the socket is closed.
        """
        is_busy = self._paused or self.untaken_bytes or self._is_finishing or self._is_lent
        if is_busy or self._socket is None:
            return None
        try:
            lent_fd = os.dup(self._socket.fileno())
        except OSError:
            return None
        self._is_lent = True
        return lent_fd

    def lent(self, size_bytes: int) -> None:
        """Count bytes that the socket took from somebody else."""
        self._given_bytes += size_bytes

    def give_back(self) -> None:
        """Nothing else writes to the socket any more."""
        self._is_lent = False
        self._send()

    def write_all(self, pieces: Iterable[Buffer]) -> None:
        """Queue pieces in order, small neighbours joined: one system call, one packet."""
        small: list[Buffer] = []
        for piece in pieces:
            if len(piece) < _SMALL_BYTES:
                small.append(piece)
                continue
            if small:
                self.write(b"".join(small))
                small = []
            self.write(piece)
        if small:
            self.write(b"".join(small))

    def pause(self) -> None:
        """The transport holds bytes that the socket has not taken."""
        self._paused = True

    def resume(self) -> None:
        """The socket took everything that it was given so far."""
        self._paused = False
        self._send()
        if not self._queue and not self._paused:
            self._on_drained()

    def finish(self) -> None:
        """Close the transport once it was given everything that is queued."""
        self._is_finishing = True
        self._send()

    def drop(self) -> None:
        """The socket was closed: drop what can no longer be sent."""
        self._is_finishing = True
        self._queue.clear()
        self.queued_bytes = 0

    def _send(self) -> None:
        while self._queue and not self._paused and not self._is_lent:
            piece = self._queue.popleft()
            part = piece[:PART_BYTES]
            if len(piece) > PART_BYTES:
                self._queue.appendleft(piece[PART_BYTES:])
            self.queued_bytes -= len(part)
            self._given_bytes += len(part)
            self._transport.write(part)
        if self._is_finishing and not self._queue:
            self._transport.close()
