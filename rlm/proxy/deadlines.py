"""Ends clients that make no progress: no first request, a stalled request, or idle (H36).

A connection costs memory and file descriptors here and at the broker, whoever opened it. A client
from which the proxy itself has stopped reading is not at fault and stays. This module must not know
sockets.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from rlm.clock import Clock

log = structlog.get_logger(__name__)

_MOST_CHECK_INTERVAL_MS = 1_000
_CHECKS_IN_A_DEADLINE = 10


class Requests(Protocol):
    """How far the client's stream of requests has been parsed."""

    @property
    def has_request(self) -> bool: ...
    @property
    def is_within_frame(self) -> bool: ...


class Client(Protocol):
    """A connection as its stream of requests shows it; hashable."""

    @property
    def requests(self) -> Requests: ...

    @property
    def peer(self) -> str:
        """Its address, for the log."""
        ...

    @property
    def received_bytes(self) -> int:
        """All bytes that ever came from it."""
        ...

    @property
    def taken_bytes(self) -> int:
        """All bytes that its socket ever took."""
        ...

    @property
    def is_idle(self) -> bool:
        """Neither a request nor an answer is under way."""
        ...

    @property
    def is_read(self) -> bool:
        """Bytes are wanted from it now."""
        ...

    def abort(self, cause: str) -> None:
        """End it at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineSettings:
    """proxy.first.request.timeout.ms, proxy.stalled.request.timeout.ms and
    proxy.connections.max.idle.ms.
    """

    first_request_timeout_ms: int
    stalled_request_timeout_ms: int
    max_idle_ms: int

    @property
    def check_interval_ms(self) -> int:
        """How often to check, so that a deadline is kept to a tenth of it or a second."""
        shortest_ms = min(
            self.first_request_timeout_ms, self.stalled_request_timeout_ms, self.max_idle_ms
        )
        return max(1, min(shortest_ms // _CHECKS_IN_A_DEADLINE, _MOST_CHECK_INTERVAL_MS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """A client that was first seen at `first_seen_ms` and has moved no byte since `since_ms`
    (monotonic clock).
    """

    moved_bytes: int
    since_ms: int
    first_seen_ms: int


class ClientDeadlines:
    """Checks all clients at intervals."""

    def __init__(
        self,
        *,
        clients: Callable[[], Iterable[Client]],
        clock: Clock,
        settings: DeadlineSettings,
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._settings = settings
        self._progress: dict[Client, _Progress] = {}

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._clock.sleep_ms(self._settings.check_interval_ms)
            self.check()

    def check(self) -> None:
        """End every client that has passed a deadline."""
        now_ms = self._clock.monotonic_ms()
        self._progress = {client: self._progress_of(client, now_ms) for client in self._clients()}
        for client, progress in self._progress.items():
            cause = self._overdue(client, progress, now_ms)
            if cause is not None:
                log.info("client_ended", peer=client.peer, cause=cause)
                client.abort(cause)

    def _progress_of(self, client: Client, now_ms: int) -> _Progress:
        known = self._progress.get(client)
        moved_bytes = client.received_bytes + client.taken_bytes
        if known is not None and known.moved_bytes == moved_bytes and client.is_read:
            return known
        first_seen_ms = now_ms if known is None else known.first_seen_ms
        return _Progress(moved_bytes=moved_bytes, since_ms=now_ms, first_seen_ms=first_seen_ms)

    def _overdue(self, client: Client, progress: _Progress, now_ms: int) -> str | None:
        """The first request has an absolute deadline: a byte now and then does not move it."""
        settings, still_ms = self._settings, now_ms - progress.since_ms
        if not client.requests.has_request:
            known_ms = now_ms - progress.first_seen_ms
            return "no_request" if known_ms >= settings.first_request_timeout_ms else None
        if client.requests.is_within_frame:
            return "stalled_request" if still_ms >= settings.stalled_request_timeout_ms else None
        if client.is_idle and still_ms >= settings.max_idle_ms:
            return "idle"
        return None
