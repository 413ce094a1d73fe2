"""TLS on one socket, as a transport: OpenSSL reads and writes the socket itself.

asyncio's own TLS keeps 256 KiB for each connection and copies every byte twice more, through memory
between OpenSSL and the socket. Here OpenSSL decrypts into the buffer that the protocol names, and
encrypts out of the pieces that it is given. Between records nothing is held but OpenSSL's state,
and at most one record that the socket has not taken. Since OpenSSL owns the socket, it could also
leave encryption to the kernel. This module must not know Kafka, nor handshakes: the socket has had
its own.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from rlm.proxy.writer import PieceTransport

RECORD_BYTES = 16_384
"""The most plain bytes that a TLS record has."""


class TlsTransport(PieceTransport):
    """Calls its protocol as asyncio's transports do. It keeps no bytes of the protocol but those of
    a record that OpenSSL has encrypted and the socket has not taken.
    """

    def __init__(self, secured: ssl.SSLSocket, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__(
            {
                "socket": secured,
                "peername": peer_of(secured),
                "sslcontext": secured.context,
                "ssl_object": secured,
            }
        )
        self._loop = asyncio.get_running_loop()
        self._secured = secured
        self._fd = secured.fileno()
        self._protocol = protocol
        self._pending: bytes = b""
        """A record to be offered to OpenSSL again, as it was."""
        self._is_paused = False
        self._is_reading = False
        self._is_watching_writes = False
        self._is_closing = False
        self._has_ended = False
        self._is_lost = False

    def begin(self) -> None:
        """Tell the protocol that the connection is made, and read."""
        self._protocol.connection_made(self)
        self._loop.call_soon(self._begin_reading)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    # Reading.

    def is_reading(self) -> bool:
        return not (self._is_paused or self._is_closing or self._has_ended)

    def pause_reading(self) -> None:
        self._is_paused = True
        self._watch_reads()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._watch_reads()
        if self._is_reading and self._secured.pending():  # of these no selector knows
            self._loop.call_soon(self._read_decrypted)

    def _watch_reads(self) -> None:
        wanted = self.is_reading()
        if wanted == self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._loop.add_reader(self._fd, self._read)
        else:
            self._loop.remove_reader(self._fd)

    def _read_decrypted(self) -> None:
        if self._is_reading and self._secured.pending():
            self._read()

    def _read(self) -> None:
        """Fill the protocol's buffer with as many records as there are now."""
        room = memoryview(self._protocol.get_buffer(-1))
        filled, is_over = 0, False
        failed: OSError | None = None
        try:
            while filled < len(room):
                got = self._secured.recv_into(room[filled:])
                filled += got
                if got < RECORD_BYTES:
                    is_over = got == 0
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass  # an answer of TLS itself that the socket does not take goes with the next record
        except OSError as error:
            failed = error
        if filled:
            self._protocol.buffer_updated(filled)
        if failed is not None:
            self._fail(failed)
        elif is_over:
            self._ended()
        elif self._is_reading and self._secured.pending():
            self._loop.call_soon(self._read_decrypted)

    def _ended(self) -> None:
        """The other side sends no more, and its socket could be read for ever."""
        self._has_ended = True
        self._watch_reads()
        if not self._is_closing and not self._protocol.eof_received():
            self.close()

    # Writing.

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing: what the transport holds is a record, and while it holds one, the protocol is
        paused.
        """

    def get_write_buffer_size(self) -> int:
        return len(self._pending)

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        """Drops what comes after the end. Before it there is `send_pieces`, which says how much was
        taken, so that nothing has to be kept here.
        """
        if not self._is_closing:
            raise RuntimeError("a TlsTransport is written to by send_pieces")

    def send_pieces(self, pieces: Sequence[memoryview]) -> int:
        """See PieceTransport."""
        if self._pending or self._is_closing:
            return 0
        taken_bytes = 0
        for piece in pieces:
            for at in range(0, len(piece), RECORD_BYTES):
                part = piece[at : at + RECORD_BYTES]
                taken_bytes += len(part)
                if not self._send(part):
                    return taken_bytes
        return taken_bytes

    def _send(self, part: memoryview) -> bool:
        """Whether the socket took the record. Otherwise it is kept: OpenSSL has to be given the
        same bytes again.
        """
        try:
            self._secured.send(part)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._pending = bytes(part)
            self._watch_writes(wanted=True)
            self._protocol.pause_writing()
            return False
        except OSError as error:
            self._fail(error)
            raise
        return True

    def _watch_writes(self, *, wanted: bool) -> None:
        if wanted == self._is_watching_writes:
            return
        self._is_watching_writes = wanted
        if wanted:
            self._loop.add_writer(self._fd, self._send_pending)
        else:
            self._loop.remove_writer(self._fd)

    def _send_pending(self) -> None:
        try:
            self._secured.send(self._pending)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._fail(error)
            return
        self._pending = b""
        self._watch_writes(wanted=False)
        if self._is_closing:
            self._say_goodbye()
        else:
            self._protocol.resume_writing()

    # The end.

    def close(self) -> None:
        """End once the socket has taken what is held."""
        if self._is_closing:
            return
        self._is_closing = True
        self._watch_reads()
        if not self._pending:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """A client that gets no close_notify cannot know whether it has got all."""
        with contextlib.suppress(OSError, ValueError):
            self._secured.unwrap()  # does not wait for the answer: the socket does not block
        self._lose(None)

    def abort(self) -> None:
        """End now."""
        self._lose(None)

    def _fail(self, error: OSError) -> None:
        self._lose(error)

    def _lose(self, error: OSError | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._pending = b""
        self._watch_reads()
        self._watch_writes(wanted=False)
        self._loop.call_soon(self._say_lost, error)

    def _say_lost(self, error: OSError | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._secured.close()


def peer_of(connected: socket.socket) -> Any:
    """Its address; None where it has gone meanwhile."""
    with contextlib.suppress(OSError):
        return connected.getpeername()
    return None
