"""Bounds the memory of all connections of the proxy together, and decides which may use more (H36).

Memory must follow the bytes that were received, with one bound for any number of connections. Three
things count: requests and answers that are being assembled, requests that are being answered, and
bytes that wait for a socket. Bytes of the remote tier have a bound of their own
(`rlm.reading.memory`).

When the bound is reached, a connection that holds almost nothing continues, so that small requests,
Produce and their answers pass (G6). A connection that wants to assemble more has to wait. Only one
at a time may exceed the bound, until it has what it asked for; otherwise all connections could wait
for each other. Connections that the broker has not answered yet may belong to anybody. They share
an eighth of the bound; beyond it, the connection that asks for more is closed. This module is pure
and must not know sockets or frames.
"""

import enum
from typing import Protocol

SMALL_BYTES = 16_384
"""A connection may always hold so much."""
_STRANGERS_SHARE = 8


class Holder(Protocol):
    """A connection; hashable."""

    @property
    def is_admitted(self) -> bool:
        """The broker has answered a request of its that needs authentication."""
        ...

    def memory_freed(self) -> None:
        """It may go on, perhaps. To ask at once is not allowed: others are being told, too."""
        ...


class Verdict(enum.Enum):
    """What a connection that wants to hold more has to do."""

    GO_ON = "go_on"
    WAIT = "wait"
    END = "end"


class ConnectionMemory:
    """Counts and decides; every connection reports what it holds after each event."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._strangers_bytes = 0
        self._held: dict[Holder, tuple[int, bool]] = {}
        self._waiting: dict[Holder, int] = {}  # how many more bytes the connection asked for
        self._beyond: Holder | None = None

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.max_bytes

    @property
    def lacking_bytes(self) -> int:
        """How much too much is held while somebody waits; 0 while nobody does."""
        return max(self.held_bytes - self.max_bytes, 1) if self._waiting else 0

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """The connection holds so many bytes now."""
        now = size_bytes, holder.is_admitted
        if self._held.get(holder, (0, now[1])) == now:
            return
        self._forget(holder)
        if size_bytes:
            self._held[holder] = now
            self.held_bytes += size_bytes
            self._strangers_bytes += 0 if holder.is_admitted else size_bytes
        if not self.is_full or (holder is self._beyond and size_bytes <= SMALL_BYTES):
            self._beyond = None
        self._wake()

    def leave(self, holder: Holder) -> None:
        """The connection is over, perhaps before it held what it was given leave to hold."""
        self._waiting.pop(holder, None)
        self.hold(holder, 0)
        if self._beyond is holder:
            self._beyond = None
            self._wake()

    def verdict(self, holder: Holder, more_bytes: int = 0) -> Verdict:
        """Whether the connection may receive, or assemble `more_bytes` at once.

        Who waits for much goes on waiting for it though it may receive a little.
        """
        asked_bytes = self._waiting.get(holder, 0)
        if self._may(holder, more_bytes):
            if more_bytes >= asked_bytes:
                self._waiting.pop(holder, None)
            return Verdict.GO_ON
        if not holder.is_admitted:
            return Verdict.END
        self._waiting[holder] = max(more_bytes, asked_bytes)
        return Verdict.WAIT

    def _may(self, holder: Holder, more_bytes: int) -> bool:
        own_bytes = self._held.get(holder, (0, False))[0] + more_bytes
        if own_bytes <= SMALL_BYTES:
            return True
        fits = self.held_bytes + more_bytes <= self.max_bytes and not self.is_full
        if not holder.is_admitted:
            share = self.max_bytes // _STRANGERS_SHARE
            return fits and self._strangers_bytes + more_bytes <= share
        if not fits and self._beyond is None:
            self._beyond = holder
        return fits or self._beyond is holder

    def _forget(self, holder: Holder) -> None:
        size_bytes, was_admitted = self._held.pop(holder, (0, True))
        self.held_bytes -= size_bytes
        self._strangers_bytes -= 0 if was_admitted else size_bytes

    def _wake(self) -> None:
        """All may ask again where there is room, or where nobody passes the bound."""
        if self.is_full and self._beyond is not None:
            return
        woken, self._waiting = self._waiting, {}
        for holder in woken:
            holder.memory_freed()
