"""Bounds on connections to the HTTP endpoint: how many, and what a first request may cost (H36).

Why: aiohttp waits for the end of a request's headers for ever, and keeps what came of them. Later
requests of a connection are bounded by its own keep-alive timeout. Must not know what is asked.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """`first_request_bytes` and `first_request_ms` are for a connection's first request, whole."""

    connections: int = 256
    first_request_bytes: int = 16_384
    first_request_ms: int = 10_000


class LimitedConnections:
    """Makes the protocols of a listening socket, each in front of one of aiohttp's."""

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: HttpLimits) -> None:
        self._make = make
        self.limits: Final = limits
        self._open: dict[asyncio.BaseTransport, _Limited] = {}

    def __call__(self) -> asyncio.Protocol:
        return _Limited(self, self._make())

    def served(self, transport: asyncio.BaseTransport | None) -> None:
        """A request of this connection was understood."""
        limited = None if transport is None else self._open.get(transport)
        if limited is not None:
            limited.served()

    def admit(self, transport: asyncio.BaseTransport, limited: "_Limited") -> bool:
        """Whether there is room for one more."""
        if len(self._open) >= self.limits.connections:
            return False
        self._open[transport] = limited
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """The connection is over."""
        self._open.pop(transport, None)


class _Limited(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's protocol, within the limits."""

    def __init__(self, connections: LimitedConnections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._left_bytes: int | None = connections.limits.first_request_bytes
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream, as asked for
        if not self._connections.admit(transport, self):
            log.warning("http_connection_refused", limit=self._connections.limits.connections)
            transport.abort()
            return
        self._transport = transport
        wait_s = self._connections.limits.first_request_ms / 1_000
        self._deadline = asyncio.get_running_loop().call_later(wait_s, transport.abort)
        self._inner.connection_made(transport)

    def served(self) -> None:
        """Its first request was understood."""
        self._left_bytes = None
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                self._transport.abort()
                return
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._transport is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._connections.leave(self._transport)
        if self._deadline is not None:
            self._deadline.cancel()
        self._inner.connection_lost(exc)
