"""Writes pieces to a transport so that the transport copies and keeps only a small part of them.

The transports of asyncio copy (or keep a reference to) whatever the socket does not take at once.
So pieces go to the socket past the transport, several with one system call, as long as the
transport itself holds nothing. What the socket does not take stays a view of the piece; the
transport gets only so much of it that it says when the socket takes more. Under TLS a
`PieceTransport` takes the pieces, and there is no way past it: `plain_socket` decides that, for
this module and for all that moves bytes within the kernel. Of bytes in a buffer that is used again,
what the socket does not take is copied. This module must not know Kafka.
"""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kafka_protocol.primitives import Buffer

PART_BYTES = 1_048_576
_SMALL_BYTES = 16_384
_JOINED_BYTES = 65_536
_PIECES_AT_ONCE = 64
_NUDGE_BYTES = 16_384  # what the transport is given when the socket is full


class Socket(Protocol):
    def fileno(self) -> int: ...


class PieceTransport(asyncio.Transport):
    """A transport that takes pieces itself, since its socket must not be written to as it is."""

    @abstractmethod
    def send_pieces(self, pieces: Sequence[memoryview]) -> int:
        """How many bytes were taken, from the first on. If these are not all, the protocol was
        paused, and of what was taken the transport keeps a part. OSError: the connection is over,
        which the protocol gets to know by itself.
        """


def plain_socket(transport: asyncio.BaseTransport) -> Socket | None:
    """The socket to which the transport writes bytes as they are, and that may be read and written
    past it; None under TLS.
    """
    if not hasattr(os, "writev") or transport.get_extra_info("sslcontext") is not None:
        return None
    used: Socket | None = transport.get_extra_info("socket")
    return used


class PacedWriter:
    """Owns the writing side of one transport; `on_taken` is called when the socket has taken what
    the transport held, and was given more.
    """

    def __init__(self, transport: asyncio.WriteTransport, on_taken: Callable[[], None]) -> None:
        self._transport = transport
        self._on_taken = on_taken
        self._queue: list[memoryview] = []
        self._paused = False
        self._is_finishing = False
        self._is_lent = False
        self._is_broken = False
        self.queued_bytes = 0
        self._given_bytes = 0
        self._socket = plain_socket(transport)
        self._secured = transport if isinstance(transport, PieceTransport) else None
        transport.set_write_buffer_limits(high=0)

    @property
    def accepted_bytes(self) -> int:
        """All bytes that were given to this writer so far."""
        return self._given_bytes + self.queued_bytes

    @property
    def untaken_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self.queued_bytes + self._buffered_bytes()

    @property
    def taken_bytes(self) -> int:
        """All bytes that the socket has taken so far."""
        return self._given_bytes - self._buffered_bytes()

    def _buffered_bytes(self) -> int:
        """What the transport holds; one that holds anything has paused this writer."""
        is_empty = self._socket is not None and not self._paused
        return 0 if is_empty else self._transport.get_write_buffer_size()

    def write(self, piece: Buffer) -> None:
        """Queue a piece and send what the socket takes; the piece must not change afterwards."""
        if not self._is_finishing:
            self._put(piece)
            self._send()

    def _put(self, piece: Buffer) -> None:
        if len(piece):
            self._queue.append(memoryview(piece))
            self.queued_bytes += len(piece)

    def pass_on(self, view: Buffer) -> None:
        """Write bytes that may change after this call: what the socket takes is not copied."""
        if not len(view) or self._is_finishing:
            return
        sent_bytes = 0 if self._paused or self.untaken_bytes or self._is_lent else self._try(view)
        self._given_bytes += sent_bytes
        if sent_bytes < len(view):
            self.write(bytes(memoryview(view)[sent_bytes:]))

    def pass_all(self, pieces: list[Buffer]) -> None:
        """As `pass_on` with each piece in order; small ones are joined: one system call."""
        if len(pieces) > 1 and sum(map(len, pieces)) <= _JOINED_BYTES:
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self.pass_on(piece)

    def _try(self, view: Buffer) -> int:
        """How many bytes the socket takes now; its transport will meet an error by itself."""
        try:
            if self._secured is not None:
                return self._secured.send_pieces([memoryview(view)])
            return 0 if self._socket is None else os.write(self._socket.fileno(), view)
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
        """Queue pieces in order, small neighbours joined, and send what the socket takes: one
        system call where it takes all.
        """
        if self._is_finishing:
            return
        small: list[Buffer] = []
        for piece in pieces:
            if len(piece) < _SMALL_BYTES:
                small.append(piece)
                continue
            self._put(b"".join(small))
            small = []
            self._put(piece)
        self._put(b"".join(small))
        self._send()

    def pause(self) -> None:
        """The transport holds bytes that the socket has not taken."""
        self._paused = True

    def resume(self) -> None:
        """The socket took everything that it was given so far; the writer goes on right after this
        call. Within it asyncio would end a transport twice that is closed or meets an error.
        """
        self._paused = False
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._send()
        self._on_taken()

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
        part_bytes = PART_BYTES if self._socket is None else _NUDGE_BYTES
        while self._queue and not self._paused and not self._is_lent and not self._is_broken:
            if self._transport.is_closing():  # it would only warn of each piece
                self.drop()
            elif not self._send_past_transport() and not self._is_broken:
                part = self._queue[0][:part_bytes]
                self._advance(len(part))
                self._transport.write(part)
        if self._is_finishing and not self._queue:
            self._transport.close()

    def _send_past_transport(self) -> bool:
        """Send to the socket itself, to which the transport has nothing more to send. False: the
        transport has to go on, because the socket is full; or the connection ends, as it is broken.
        """
        pieces = self._queue[:_PIECES_AT_ONCE]
        try:
            if self._secured is not None:
                taken_bytes = self._secured.send_pieces(pieces)
            elif self._socket is not None:
                taken_bytes = os.writev(self._socket.fileno(), pieces)
            else:
                return False
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # not by the transport, which need not meet the error
            self._is_broken = True
            asyncio.get_running_loop().call_soon(self._transport.abort)
            return False
        self._advance(taken_bytes)
        return True

    def _advance(self, size_bytes: int) -> None:
        """So many queued bytes were given away."""
        self.queued_bytes -= size_bytes
        self._given_bytes += size_bytes
        whole = 0
        while size_bytes and len(self._queue[whole]) <= size_bytes:
            size_bytes -= len(self._queue[whole])
            whole += 1
        del self._queue[:whole]
        if size_bytes:
            self._queue[0] = self._queue[0][size_bytes:]
