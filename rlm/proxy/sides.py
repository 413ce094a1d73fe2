"""The two sockets of a connection: callbacks of asyncio, forwarded to whoever joins the sides.

This module must not know Kafka.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from rlm.proxy.splicing import Pipes, Splicing
from rlm.proxy.writer import PacedWriter, plain_socket


class Joined(Protocol):
    """What joins two sides. `..._room` is where the next bytes are to be received, and `..._data`
    that so many were.
    """

    def flow(self) -> None:
        """A side has taken everything that it was given."""
        ...

    def client_made(self) -> None: ...
    def client_room(self) -> memoryview: ...
    def client_data(self, size_bytes: int) -> None: ...
    def client_lost(self, error: Exception | None) -> None: ...

    def broker_made(self, transport: asyncio.Transport) -> None: ...
    def broker_room(self) -> memoryview: ...
    def broker_data(self, size_bytes: int) -> None: ...
    def broker_lost(self, error: Exception | None) -> None: ...


class Side(asyncio.BufferedProtocol):
    """One socket, its writer, and the run that is moved from it within the kernel, if any."""

    transport: asyncio.Transport
    writer: PacedWriter

    def __init__(self, joined: Joined) -> None:
        self._joined = joined
        self.splicing: Splicing | None = None
        self._may_splice = True
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream, as asked for
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.transport = transport
        self.writer = PacedWriter(transport, self._joined.flow)

    def read(self, *, wanted: bool) -> None:
        """Read from the socket or not; never while a run is moved from it."""
        wanted = wanted and self.splicing is None
        if wanted and self.is_paused:
            self.is_paused = False
            self.transport.resume_reading()
        elif not wanted and not self.is_paused:
            self.is_paused = True
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def eof_received(self) -> bool:
        """Nothing more comes, but what is queued may still be read: it ends after that."""
        self.writer.finish()
        return True

    def splice_to(
        self, target: "Side", size_bytes: int, pipes: Pipes, moved: Callable[[int], None]
    ) -> bool:
        """Move so many bytes within the kernel from now on, if that is possible; then this side
        must not be read until `flow` is called. `moved` gets the numbers of bytes taken.
        """
        if not self._may_splice or self.splicing is not None or target.writer.untaken_bytes:
            return False
        if (pipe := pipes.take()) is None:
            return False
        source_fd = self._duplicate()
        target_fd = None if source_fd is None else target.writer.lend()
        if source_fd is None or target_fd is None:
            pipes.give_back(pipe)
            if source_fd is not None:
                os.close(source_fd)
            return False

        def count(moved_bytes: int) -> None:
            target.writer.lent(moved_bytes)
            moved(moved_bytes)

        def ended(rest: bytes | None) -> None:
            self.splicing = None
            target.writer.give_back()
            if rest is not None:
                self._may_splice = False  # what went wrong is met by reading and writing
                target.writer.write(rest)
                moved(len(rest))
            self._joined.flow()

        fds = source_fd, target_fd
        self.splicing = Splicing(pipes, pipe, fds, size_bytes, count, ended)
        return True

    def _duplicate(self) -> int | None:
        """A duplicate of the descriptor to read from; None under TLS, or if it is closed."""
        used = plain_socket(self.transport)
        if used is None:
            return None
        try:
            return os.dup(used.fileno())
        except OSError:
            return None


class ClientSide(Side):
    """The socket of the client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._joined.client_made()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._joined.client_room()

    def buffer_updated(self, nbytes: int) -> None:
        self._joined.client_data(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._joined.client_lost(exc)


class BrokerSide(Side):
    """The socket of the broker."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._joined.broker_made(self.transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._joined.broker_room()

    def buffer_updated(self, nbytes: int) -> None:
        self._joined.broker_data(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._joined.broker_lost(exc)
