"""Ends clients that do not take their answers when the room that these hold is needed.

Records stay in memory until the client's socket has taken them. A few hundred clients that stop
reading could hold all room, and nobody else could read cold data. Such a client may reconnect at
any time. This module must not know sockets, or what needs the room.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from rlm.clock import Clock

log = structlog.get_logger(__name__)

_STALLED_MS = 30_000
_CHECKS = 30


class Client(Protocol):
    """A client as its socket shows it; hashable."""

    @property
    def peer(self) -> str:
        """Its address, for the log."""
        ...

    @property
    def untaken_bytes(self) -> int:
        """Bytes answered that its socket did not take yet; 0 where none of them holds room."""
        ...

    @property
    def taken_bytes(self) -> int:
        """All bytes that its socket ever took."""
        ...

    def abort(self, cause: str) -> None:
        """End it at once and let go of what waits for it."""
        ...


C = TypeVar("C", bound=Client)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The client's socket has taken no byte beyond `taken_bytes` since `since_ms`."""

    taken_bytes: int
    since_ms: int


class StalledClients(Generic[C]):
    """Checks all clients at intervals; `lacking_bytes` returns how much room somebody waits for.

    `held_bytes` is the part of that room which a client holds with bytes that its socket did not
    take.
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
        self._marks: dict[C, _Mark] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep_ms(self._stalled_ms // _CHECKS)
            self.check()

    def check(self) -> None:
        """End as many clients as hold the missing room, those that took nothing for longest
        first.
        """
        now_ms = self._clock.monotonic_ms()
        self._marks = {
            client: self._mark(client, now_ms)
            for client in self._clients()
            if self._held_bytes(client)
        }
        lacking_bytes = self._lacking_bytes()
        for client, mark in sorted(self._marks.items(), key=lambda one: one[1].since_ms):
            stalled_ms = now_ms - mark.since_ms
            if lacking_bytes <= 0 or stalled_ms < self._stalled_ms:
                return
            held_bytes = self._held_bytes(client)
            lacking_bytes -= held_bytes
            log.warning(
                "stalled_client_ended",
                peer=client.peer,
                stalled_ms=stalled_ms,
                untaken_bytes=held_bytes,
            )
            client.abort("stalled")

    def _mark(self, client: C, now_ms: int) -> _Mark:
        known = self._marks.get(client)
        if known is not None and known.taken_bytes == client.taken_bytes:
            return known
        return _Mark(taken_bytes=client.taken_bytes, since_ms=now_ms)
