"""A bounded cache: a load happens once, outlives the asker, and a failure is never kept.

The unit is bytes: every value has a weight, and a scan of values read once drives out none that are
read again. Who begins a load decides where it runs; here it is only remembered while it is under
way.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from rlm.cache.eviction import ScanResistant

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlightCache(Generic[K, V]):
    """`capacity_bytes` bounds what is kept; who begins loads bounds what is in flight."""

    def __init__(self, *, capacity_bytes: int, weigh: Callable[[V], int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._weigh = weigh
        self._kept: dict[K, V] = {}
        self._order: ScanResistant[K] = ScanResistant(capacity_bytes)
        self._flights: dict[K, asyncio.Future[V]] = {}
        self.hits = 0
        self.misses = 0

    @property
    def kept_bytes(self) -> int:
        """Weight of everything kept."""
        return self._order.bytes

    def peek(self, key: K, reader: int = 0) -> V | None:
        """The value if it is here, marked as used by `reader`."""
        value = self._kept.get(key)
        if value is not None:
            self._order.touch(key, reader)
            self.hits += 1
        return value

    def flight(self, key: K) -> asyncio.Future[V] | None:
        """The load of the value that is under way; shield it."""
        return self._flights.get(key)

    def start(
        self, key: K, begin: Callable[[], asyncio.Future[V]], reader: int = 0
    ) -> asyncio.Future[V]:
        """Begin a load, or join the one under way; the future may be shielded and dropped."""
        flight = self._flights.get(key)
        if flight is None:
            self.misses += 1
            flight = begin()
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._landed(key, done, reader))
        return flight

    async def get(self, key: K, begin: Callable[[], asyncio.Future[V]], reader: int = 0) -> V:
        """The value, loaded once for all who ask; cancelling the asker does not cancel the load."""
        value = self.peek(key, reader)
        if value is not None:
            return value
        return await asyncio.shield(self.start(key, begin, reader))

    def _landed(self, key: K, flight: asyncio.Future[V], reader: int) -> None:
        self._flights.pop(key, None)
        if flight.cancelled() or flight.exception() is not None:
            return
        value = flight.result()
        weight = self._weigh(value)
        if weight > self._capacity_bytes:
            return  # it would drive out all the others and then itself
        # Room first: the newest is not to be the one that leaves.
        while self.kept_bytes + weight > self._capacity_bytes:
            leaving = self._order.pop(lambda _: True)
            if leaving is None:
                break
            del self._kept[leaving]
        self._order.add(key, weight, reader)
        self._kept[key] = value
