"""Reads partitions of a Fetch for which there seemed to be no room when it was planned.

A Fetch may name hundreds of old partitions whose limits exceed max_bytes many times over. Reads
begin in the order of the request, as far as their limits fit. Where they give less than they might,
others are read before the answer is sent: as many together as there is room for, with one short
wait for all of them. So no number of slow reads makes an answer late, and with it the local records
in it (G6). What does not come within that wait is left out, and goes on into the cache. The next
Fetch of the connection that has room begins with the partitions that have waited longest, because
a client may name its partitions in the same order each time. This module must not know the broker.
"""

from collections.abc import Callable, Iterable

from rlm.clock import Clock
from rlm.proxy.fetch_plan import Key, PartitionFetch
from rlm.proxy.reads import READ_FIRST_MS, Permit, RemoteReads

_MOST_REMEMBERED = 10_000

Unread = Callable[[], tuple[list[tuple[PartitionFetch, int]], int]]
"""The partitions of the remote tier that were not read and might be given something, each with the
bytes that it may have; and the bytes that all of them together may have.
"""


class Turns:
    """When each partition of a connection was last read further; forgotten when there are many."""

    def __init__(self) -> None:
        self._last: dict[Key, int] = {}
        self._count = 0

    def ordered(
        self, unread: Iterable[tuple[PartitionFetch, int]]
    ) -> list[tuple[PartitionFetch, int]]:
        """Those first that never had a turn, then those whose turn was longest ago."""
        return sorted(unread, key=lambda one: self._last.get(one[0].key, 0))

    def took(self, key: Key) -> None:
        """The partition has its turn now."""
        if len(self._last) >= _MOST_REMEMBERED:
            self._last.clear()
        self._count += 1
        self._last[key] = self._count


class FurtherReads:
    """The further reads of one Fetch, within the read quota."""

    def __init__(self, reads: RemoteReads, permit: Permit, turns: Turns, clock: Clock) -> None:
        self._reads, self._permit, self._turns, self._clock = reads, permit, turns, clock

    def begin(self, unread: Unread) -> list[PartitionFetch]:
        """Begin to read as many as there is room for, at least one. Returns those."""
        begun: list[PartitionFetch] = []
        found, left_bytes = unread()
        for partition, limit_bytes in self._turns.ordered(found):
            if (begun and left_bytes <= 0) or not self._permit.may_read():
                break
            self._turns.took(partition.key)
            begun.append(partition)
            left_bytes -= max(1, self._reads.start(partition, limit_bytes))
        return begun

    async def read(self, unread: Unread, until_ms: int) -> None:
        """Read until there is no room left, something takes longer than a first moment, or the time
        is over.
        """
        while begun := self.begin(unread):
            end_ms = min(self._clock.monotonic_ms() + READ_FIRST_MS, until_ms)
            while self._reads.are_running(begun):
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return
                await self._reads.wait(left_ms)
            if self._clock.monotonic_ms() >= until_ms:
                return
