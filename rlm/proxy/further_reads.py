"""Reads partitions of a Fetch for which there seemed to be no room when it was planned.

A Fetch may name hundreds of old partitions whose limits exceed max_bytes many times over. Reads
begin in the order of the request, as far as their limits fit. Where they give less than they might,
others are read before the answer is sent: as many together as there is room for, in rounds, with
one short wait for all of them. So no number of slow reads makes an answer late, and with it the
local records in it (G6), and no number of small ones keeps others from the event loop. What does
not come within that wait is left out, and goes on into the cache. The next Fetch of the connection
that has room begins with the partitions that have waited longest, because a client may name its
partitions in the same order each time. This module must not know the broker.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from rlm.clock import Clock, next_turn
from rlm.proxy.fetch_plan import AnswerRoom, Key, PartitionFetch
from rlm.proxy.reads import READ_FIRST_MS, Permit, RemoteReads

_MOST_REMEMBERED = 10_000


class Unread(NamedTuple):
    """A partition of the remote tier that was not read and might be given something, the bytes that
    it may have, and the room that those before it in the request leave, as far as they are known.
    """

    partition: PartitionFetch
    limit_bytes: int
    room: AnswerRoom


class Turns:
    """When each partition of a connection was last read further; forgotten when there are many."""

    def __init__(self) -> None:
        self._last: dict[Key, int] = {}
        self._count = 0

    def ordered(self, unread: Iterable[Unread]) -> list[Unread]:
        """Those first that never had a turn, then those whose turn was longest ago."""
        return sorted(unread, key=lambda one: self._last.get(one.partition.key, 0))

    def took(self, key: Key) -> None:
        """The partition has its turn now."""
        if len(self._last) >= _MOST_REMEMBERED:
            self._last.clear()
        self._count += 1
        self._last[key] = self._count


class FurtherReads:
    """The further reads of one Fetch, within the read quota.

    What is unread is looked at once for each answer of the broker. What reads give is taken from
    the room of all that are read after them, so many small rounds cost no more than one large one.
    """

    def __init__(self, reads: RemoteReads, permit: Permit, turns: Turns, clock: Clock) -> None:
        self._reads, self._permit, self._turns, self._clock = reads, permit, turns, clock
        self._unread: deque[Unread] = deque()
        self._given_bytes = 0
        self._begun: list[Unread] = []

    def begin(self, unread: Iterable[Unread]) -> bool:
        """The first round: begin to read as many as there is room for, at least one. Returns
        whether any was begun.
        """
        self._unread, self._given_bytes = deque(self._turns.ordered(unread)), 0
        return self._begin_round()

    def goes_on(self) -> bool:
        """Whether a read of the last round is running, or there is room for another round."""
        return self._is_running or self._has_more()

    async def read(self, unread: Iterable[Unread], until_ms: int) -> None:
        """Read until there is no room left, or the time is over: all rounds together have one first
        moment, and others have their turn of the event loop after each.
        """
        if not self.begin(unread):
            return
        end_ms = min(self._clock.monotonic_ms() + READ_FIRST_MS, until_ms)
        while True:
            while self._is_running:
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return
                await self._reads.wait(left_ms)
            if self._clock.monotonic_ms() >= end_ms or not self._has_more():
                return
            await next_turn()
            if not self._begin_round():
                return

    @property
    def _is_running(self) -> bool:
        return self._reads.are_running(one.partition for one in self._begun)

    def _has_more(self) -> bool:
        """Whether there is room for another round after the last one, which is over."""
        for one in self._begun:
            given_bytes = self._reads.given_bytes(one.partition, one.limit_bytes)
            is_first = self._is_first(one)
            self._given_bytes += given_bytes if is_first else min(given_bytes, one.limit_bytes)
        self._begun = []
        while self._unread and not self._has_room(self._unread[0]):
            self._unread.popleft()
        return bool(self._unread)

    def _has_room(self, one: Unread) -> bool:
        """Whether it may have anything beside what was read before it."""
        return self._is_first(one) or one.room.left_bytes > self._given_bytes

    def _is_first(self, one: Unread) -> bool:
        """Whether nothing else has given the answer any bytes."""
        return one.room.is_empty and not self._given_bytes

    def _begin_round(self) -> bool:
        begun, wanted_bytes = list[Unread](), 0
        while self._unread and self._permit.may_read():
            one = self._unread[0]
            left_bytes = one.room.left_bytes - self._given_bytes
            if begun and left_bytes <= wanted_bytes:
                break
            self._unread.popleft()
            if self._has_room(one):
                one = one._replace(limit_bytes=max(0, min(one.limit_bytes, left_bytes)))
                self._turns.took(one.partition.key)
                begun.append(one)
                wanted_bytes += max(1, self._reads.start(one.partition, one.limit_bytes))
        self._begun = begun
        return bool(begun)
