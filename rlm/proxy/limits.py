"""Time without progress: deadlines of clients that send, and of clients that take answers (H36).

A connection costs memory and file descriptors here and at the broker. `ClientDeadlines` ends a
client that sends no first request, that does not complete a request or sends it byte by byte, or
that is idle. A client from which the proxy itself has stopped reading is not at fault and stays.

What was answered stays in memory until the client's socket has taken it, so a few hundred clients
that stop reading could hold all room for reads, or all memory of connections (`rlm.proxy.memory`).
`StalledClients` ends them when others need that room; such a client may reconnect at any time. This
module must not know sockets or frames.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from rlm.clock import Clock

log = structlog.get_logger(__name__)

_MOST_CHECK_INTERVAL_MS = 1_000
_CHECKS_IN_A_DEADLINE = 10
_STALLED_MS = 30_000
_LEAST_TAKEN_BYTES_PER_S = 16_384
"""An answer of 1 MiB, as much as a consumer takes of a partition by default, must reach the client
within its request.timeout.ms, which is 30 s by default, or it asks again and again: that is 34 KiB
in each second. Half of it is no honest speed, but how single bytes look that keep memory held.
"""
_CHECKS = 30


class Requests(Protocol):
    """How far the client's stream of requests has been parsed."""

    @property
    def has_request(self) -> bool: ...
    @property
    def is_within_frame(self) -> bool: ...


class RequestingClient(Protocol):
    """A connection as seen by its stream of requests; hashable."""

    @property
    def requests(self) -> Requests: ...

    @property
    def peer(self) -> str:
        """Its address, for the log."""
        ...

    @property
    def received_bytes(self) -> int:
        """All bytes received from it so far."""
        ...

    @property
    def taken_bytes(self) -> int:
        """All bytes that its socket has taken so far."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether neither a request nor an answer is in flight."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether the proxy reads from it now."""
        ...

    def abort(self, cause: str) -> None:
        """End it at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineSettings:
    """proxy.first.request.timeout.ms, proxy.stalled.request.timeout.ms,
    proxy.connections.max.idle.ms and proxy.stalled.request.min.bytes.
    """

    first_request_timeout_ms: int
    stalled_request_timeout_ms: int
    max_idle_ms: int
    stalled_request_min_bytes: int

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
    (monotonic clock). It has been in the middle of a request since `request_since_ms`, and had sent
    `request_from_bytes` then.
    """

    moved_bytes: int
    since_ms: int
    first_seen_ms: int
    request_since_ms: int
    request_from_bytes: int


R = TypeVar("R", bound=RequestingClient)


def _may_stay(client: RequestingClient) -> str | None:
    return None


class ClientDeadlines(Generic[R]):
    """Checks all clients at intervals. `stayed` is called for one that has been there for longer
    than a first request may take, with each check; it returns a cause where the client ends now.
    """

    def __init__(
        self,
        *,
        clients: Callable[[], Iterable[R]],
        clock: Clock,
        settings: DeadlineSettings,
        stayed: Callable[[R], str | None] = _may_stay,
    ) -> None:
        self._clients = clients
        self._stayed = stayed
        self._clock = clock
        self._settings = settings
        self._progress: dict[R, _Progress] = {}

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

    def _progress_of(self, client: R, now_ms: int) -> _Progress:
        known = self._progress.get(client)
        moved_bytes = client.received_bytes + client.taken_bytes
        is_still = known is not None and known.moved_bytes == moved_bytes and client.is_read
        goes_on = known is not None and self._is_sending(client, known)
        return _Progress(
            moved_bytes=moved_bytes,
            since_ms=known.since_ms if known is not None and is_still else now_ms,
            first_seen_ms=now_ms if known is None else known.first_seen_ms,
            request_since_ms=known.request_since_ms if known is not None and goes_on else now_ms,
            request_from_bytes=(
                known.request_from_bytes if known is not None and goes_on else client.received_bytes
            ),
        )

    def _is_sending(self, client: RequestingClient, known: _Progress) -> bool:
        """Whether it is still in the middle of a request, of which it has not sent enough."""
        sent_bytes = client.received_bytes - known.request_from_bytes
        is_slow = sent_bytes < self._settings.stalled_request_min_bytes
        return is_slow and client.is_read and client.requests.is_within_frame

    def _overdue(self, client: R, progress: _Progress, now_ms: int) -> str | None:
        """Why the client is overdue, if it is. The first request has an absolute deadline, which
        single bytes do not move.
        """
        settings, still_ms = self._settings, now_ms - progress.since_ms
        has_stayed = now_ms - progress.first_seen_ms >= settings.first_request_timeout_ms
        if not client.requests.has_request:
            return "no_request" if has_stayed else None
        if has_stayed and (cause := self._stayed(client)) is not None:
            return cause
        if client.requests.is_within_frame:
            if now_ms - progress.request_since_ms < settings.stalled_request_timeout_ms:
                return None
            is_still = client.received_bytes == progress.request_from_bytes
            return "stalled_request" if is_still else "slow_request"
        if client.is_idle and still_ms >= settings.max_idle_ms:
            return "idle"
        return None


class AnsweredClient(Protocol):
    """A client as seen by its socket; hashable."""

    @property
    def peer(self) -> str:
        """Its address, for the log."""
        ...

    @property
    def untaken_bytes(self) -> int:
        """Answered bytes that its socket has not taken yet; 0 if none of them holds room of
        reads.
        """
        ...

    @property
    def taken_bytes(self) -> int:
        """All bytes that its socket has taken so far."""
        ...

    def abort(self, cause: str) -> None:
        """End it at once and drop what is queued for it."""
        ...


C = TypeVar("C", bound=AnsweredClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stall:
    """The client's socket has not taken enough bytes beyond `taken_bytes` since `since_ms`."""

    taken_bytes: int
    since_ms: int


class StalledClients(Generic[C]):
    """Checks all clients at intervals; `lacking_bytes` returns the room that others wait for.

    `held_bytes` returns the part of that room which a client holds until its socket has taken what
    it was answered. A client is stalled that has held some for `stalled_ms` and in that time has
    taken less than `_LEAST_TAKEN_BYTES_PER_S`: the time begins anew whenever it has taken enough
    for all of it.
    """

    def __init__(
        self,
        *,
        clients: Callable[[], Iterable[C]],
        lacking_bytes: Callable[[], int],
        clock: Clock,
        held_bytes: Callable[[C], int] = lambda client: client.untaken_bytes,
        stalled_ms: int = _STALLED_MS,
    ) -> None:
        self._clients = clients
        self._lacking_bytes = lacking_bytes
        self._clock = clock
        self._held_bytes = held_bytes
        self._stalled_ms = stalled_ms
        self._least_bytes = _LEAST_TAKEN_BYTES_PER_S * stalled_ms // 1_000
        self._stalls: dict[C, _Stall] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep_ms(self._stalled_ms // _CHECKS)
            self.check()

    def check(self) -> None:
        """End as many clients as hold the missing room, the longest stalled ones first."""
        now_ms = self._clock.monotonic_ms()
        self._stalls = {
            client: self._stall_of(client, now_ms)
            for client in self._clients()
            if self._held_bytes(client)
        }
        lacking_bytes = self._lacking_bytes()
        for client, stall in sorted(self._stalls.items(), key=lambda one: one[1].since_ms):
            stalled_ms = now_ms - stall.since_ms
            if lacking_bytes <= 0 or stalled_ms < self._stalled_ms:
                return
            held_bytes = self._held_bytes(client)
            lacking_bytes -= held_bytes
            self._end(client, stall, stalled_ms, held_bytes)

    def _end(self, client: C, stall: _Stall, stalled_ms: int, held_bytes: int) -> None:
        taken_bytes = client.taken_bytes - stall.taken_bytes
        cause = "slow_reader" if taken_bytes else "stalled"
        log.warning(
            "stalled_client_ended",
            peer=client.peer,
            cause=cause,
            stalled_ms=stalled_ms,
            taken_bytes=taken_bytes,
            held_bytes=held_bytes,
        )
        client.abort(cause)

    def _stall_of(self, client: C, now_ms: int) -> _Stall:
        known = self._stalls.get(client)
        if known is not None and client.taken_bytes - known.taken_bytes < self._least_bytes:
            return known
        return _Stall(taken_bytes=client.taken_bytes, since_ms=now_ms)
