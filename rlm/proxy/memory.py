"""The memory that all client connections of the proxy hold together, within one bound (H36). Pure.

Memory must follow the bytes that were received, with one bound for any number of connections. The
bound has parts, in an order in which each waits for later ones only, so that nothing ever waits for
memory that it would free itself:

1. Requests that are being received, that wait for their turn, that the broker answers at once, or
   that its socket has not taken: two sixteenths.
2. Requests in work: half. Each counts many times its bytes (`rlm.proxy.account`), and that covers
   an answer of the broker without records. So a long poll that ends is answered whatever else is
   held.
3. Answers: what is put together beyond that, and what waits for a client's socket. They have a
   quarter, and what requests in work leave of their half. A client that takes nothing is ended
   when others wait (`rlm.proxy.limits`).

Two sixteenths are for connections that the broker has not answered yet, which may belong to any
stranger: one for their requests in work, one for all else.

Where a part is full, a connection that holds almost nothing of its kind continues, so that small
requests, Produce and their answers pass (G6). One that wants more has to wait. Only one at a time
may exceed the part, until it has what it asked for; otherwise all could wait for each other. A
stranger that sends or gets more is ended, because nothing says when it will be done. A whole
request of it waits for its turn.

So the bound is exceeded at most by one request that is received, two in work, of which one is a
stranger's, and one answer, as large as these may be, and by `OVERDRAFT_BYTES` for each connection.
Bytes of the remote tier have a bound of their own (`rlm.reading.load_scheduler`). This module must
not know sockets or frames.
"""

import enum
from collections.abc import Callable
from typing import Final, Protocol

SMALL_BYTES = 16_384
"""A connection may always hold so much of requests, and so much of answers."""
OVERDRAFT_BYTES = 4 * SMALL_BYTES
"""Of one connection: it may hold a small part of each kind, and receive as much into it once."""
_SIXTEENTHS = 16
_RECEIVED_SIXTEENTHS, _WORK_SIXTEENTHS, _LEAST_ANSWERS_SIXTEENTHS = 2, 8, 4


class Holder(Protocol):
    """A connection; hashable."""

    @property
    def is_admitted(self) -> bool:
        """Whether the broker has answered a request that needs authentication."""
        ...

    def memory_freed(self) -> None:
        """There may be room again. The connection must not ask within this call, because other
        connections are being notified, too.
        """
        ...


class Verdict(enum.Enum):
    """What a connection that wants to hold more has to do."""

    GO_ON = "go_on"
    WAIT = "wait"
    END = "end"


class MemoryPool:
    """One part: counts and decides. `limit_bytes` may be another one each time."""

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: dict[Holder, int] = {}
        self._waiting: dict[Holder, int] = {}  # how many more bytes the connection asked for
        self._beyond: Holder | None = None

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self._limit_bytes()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def lacking_bytes(self) -> int:
        """By how many bytes the part is exceeded while a connection waits; 0 while none does."""
        return max(self.held_bytes - self._limit_bytes(), 1) if self._waiting else 0

    def hold(self, holder: Holder, size_bytes: int) -> bool:
        """Set the bytes that the connection holds now; whether others may have room by that."""
        before_bytes = self._held.get(holder, 0)
        # What was let pass the bound may have come and gone between two reports.
        is_done = holder is self._beyond and size_bytes <= SMALL_BYTES
        if size_bytes == before_bytes and not is_done:
            return False
        self.held_bytes += size_bytes - before_bytes
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            self._held.pop(holder, None)
        if is_done:
            self._beyond = None
        return is_done or size_bytes < before_bytes

    def leave(self, holder: Holder) -> bool:
        """Forget a connection, also one that may have been about to exceed the part. Returns
        whether it was waiting.
        """
        self.held_bytes -= self._held.pop(holder, 0)
        if self._beyond is holder:
            self._beyond = None
        return self._waiting.pop(holder, None) is not None

    def may_hold(self, holder: Holder, own_bytes: int, more_bytes: int, *, waits: bool) -> bool:
        """Whether the connection, which has `own_bytes` of the kind that it asks for, may hold
        `more_bytes`. With `waits` it may be the one that exceeds the part, or it is notified.

        A connection that waits for much still waits for it when it may receive a little.
        """
        asked_bytes = self._waiting.get(holder, 0)
        if self._fits(holder, own_bytes, more_bytes, may_exceed=waits):
            if more_bytes >= asked_bytes:
                self._waiting.pop(holder, None)
            return True
        if waits:
            self._waiting[holder] = max(more_bytes, asked_bytes)
        return False

    def _fits(self, holder: Holder, own_bytes: int, more_bytes: int, *, may_exceed: bool) -> bool:
        if own_bytes + more_bytes <= SMALL_BYTES:
            return True
        limit_bytes = self._limit_bytes()
        fits = self.held_bytes + more_bytes <= limit_bytes and self.held_bytes < limit_bytes
        if not fits and may_exceed and self._beyond is None:
            self._beyond = holder
        return fits or self._beyond is holder

    def wake(self) -> None:
        """Notify in turn the connections that have room now, and one that may exceed the part."""
        if not self._waiting and self._beyond is None:
            return
        room_bytes = self._limit_bytes() - self.held_bytes
        if room_bytes > 0:
            self._beyond = None
        woken: list[Holder] = []
        for holder, asked_bytes in self._waiting.items():
            if room_bytes > 0 and asked_bytes <= room_bytes:
                room_bytes -= asked_bytes
            elif self._beyond is None:
                self._beyond = holder
            elif room_bytes <= 0:
                break
            else:
                continue
            woken.append(holder)
        for holder in woken:
            del self._waiting[holder]
        for holder in woken:
            holder.memory_freed()


class ConnectionMemory:
    """All parts; every connection reports what it holds after each event."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: Final = max_bytes
        part_bytes = max_bytes // _SIXTEENTHS
        most_bytes = _WORK_SIXTEENTHS * part_bytes
        least_bytes = _LEAST_ANSWERS_SIXTEENTHS * part_bytes
        both_bytes = most_bytes + least_bytes
        self.strangers: Final = MemoryPool(lambda: part_bytes)
        self.strangers_work: Final = MemoryPool(lambda: part_bytes)
        self.received: Final = MemoryPool(lambda: _RECEIVED_SIXTEENTHS * part_bytes)
        self.work: Final = MemoryPool(lambda: min(most_bytes, both_bytes - self.answers.held_bytes))
        self.answers: Final = MemoryPool(
            lambda: max(least_bytes, both_bytes - self.work.held_bytes)
        )
        strangers = self.strangers_work, self.strangers
        self._pools = self.answers, self.work, self.received, *strangers

    @property
    def held_bytes(self) -> int:
        return sum(pool.held_bytes for pool in self._pools)

    @property
    def lacking_bytes(self) -> int:
        """How much known clients wait for, at least; 0 while none does."""
        known = self.answers, self.work, self.received
        return sum(pool.lacking_bytes for pool in known)

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits to receive, or for room for an answer."""
        return self.answers.is_waited_for or self.received.is_waited_for

    @property
    def is_work_waited_for(self) -> bool:
        """Whether anybody waits for the memory of requests in work."""
        return self.work.is_waited_for or self.strangers_work.is_waited_for

    def is_full_for(self, holder: Holder) -> bool:
        """Whether no more than a little of its requests is received at a time."""
        return (self.received if holder.is_admitted else self.strangers).is_full

    def hold(
        self, holder: Holder, *, received_bytes: int, work_bytes: int, answers_bytes: int
    ) -> None:
        """Set the bytes that the connection holds now: of requests that are not in work, of the one
        in work, and of answers.
        """
        if holder.is_admitted:
            is_freed = self.received.hold(holder, received_bytes)
            is_freed |= self.work.hold(holder, work_bytes)
            is_freed |= self.answers.hold(holder, answers_bytes)
        else:
            is_freed = self.strangers.hold(holder, received_bytes + answers_bytes)
            is_freed |= self.strangers_work.hold(holder, work_bytes)
        if is_freed:
            self._wake()

    def admit(self, holder: Holder) -> None:
        """It is no stranger any more: it asks once more for what it waits for as one."""
        for pool in (self.strangers, self.strangers_work):
            if pool.leave(holder):
                holder.memory_freed()
        self._wake()

    def leave(self, holder: Holder) -> None:
        """Forget a connection that has ended."""
        for pool in self._pools:
            pool.leave(holder)
        self._wake()

    def _wake(self) -> None:
        for pool in self._pools:
            pool.wake()

    def may_receive(self, holder: Holder, own_bytes: int) -> Verdict:
        """Whether a connection without a request that is in work, or waits for that, may receive
        more of one than `own_bytes`.
        """
        pool = self.received if holder.is_admitted else self.strangers
        return _verdict(pool, holder, own_bytes, 0)

    def may_work(self, holder: Holder, work_bytes: int) -> bool:
        """Whether the work on a request that has come may take so much; otherwise it waits."""
        pool = self.work if holder.is_admitted else self.strangers_work
        return pool.may_hold(holder, 0, work_bytes, waits=True)

    def may_answer(self, holder: Holder, own_bytes: int, more_bytes: int = 0) -> Verdict:
        """Whether a connection with `own_bytes` of answers may receive more of the broker's, or put
        `more_bytes` together at once.
        """
        pool = self.answers if holder.is_admitted else self.strangers
        return _verdict(pool, holder, own_bytes, more_bytes)


def _verdict(pool: MemoryPool, holder: Holder, own_bytes: int, more_bytes: int) -> Verdict:
    waits = holder.is_admitted
    if pool.may_hold(holder, own_bytes, more_bytes, waits=waits):
        return Verdict.GO_ON
    return Verdict.WAIT if waits else Verdict.END
