"""A bounded cache whose loads happen once whoever asks, outlive the asker, and never remember a
failure.

The unit is bytes: every value has a weight, and the least recently used leave first. Loads run in a
pool that the owner gives; a full pool answers Busy.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LoadPool(Protocol):
    """Runs loads; raises Busy where its queue is full."""

    def submit(self, job: Callable[[], Awaitable[V]]) -> asyncio.Future[V]: ...


class SingleFlightCache(Generic[K, V]):
    """LRU by weight; `capacity_bytes` bounds what is kept, not what is in flight (the pool bounds
    that).
    """

    def __init__(self, *, capacity_bytes: int, weigh: Callable[[V], int], pool: LoadPool) -> None:
        self._capacity_bytes = capacity_bytes
        self._weigh = weigh
        self._pool = pool
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._flights: dict[K, asyncio.Future[V]] = {}
        self.kept_bytes = 0
        self.hits = 0
        self.misses = 0

    def peek(self, key: K) -> V | None:
        """The value if it is here, marked as used."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
            self.hits += 1
        return value

    def knows(self, key: K) -> bool:
        """Whether the value is kept or on its way."""
        return key in self._kept or key in self._flights

    def start(self, key: K, load: Callable[[], Awaitable[V]]) -> asyncio.Future[V]:
        """Begin a load, or join the one under way; the future may be shielded and dropped."""
        flight = self._flights.get(key)
        if flight is None:
            self.misses += 1
            flight = self._pool.submit(load)
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._landed(key, done))
        return flight

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The value, loaded once for all who ask; cancelling the asker does not cancel the load."""
        value = self.peek(key)
        if value is not None:
            return value
        return await asyncio.shield(self.start(key, load))

    def forget(self, belongs: Callable[[K], bool]) -> None:
        """Drop every kept value whose key belongs, as after a corrupt read."""
        for key in [key for key in self._kept if belongs(key)]:
            self.kept_bytes -= self._weigh(self._kept.pop(key))

    def _landed(self, key: K, flight: asyncio.Future[V]) -> None:
        self._flights.pop(key, None)
        if flight.cancelled() or flight.exception() is not None:
            return
        value = flight.result()
        weight = self._weigh(value)
        if weight > self._capacity_bytes:
            return  # it would drive out all the others and then itself
        if key in self._kept:
            self.kept_bytes -= self._weigh(self._kept.pop(key))
        self._kept[key] = value
        self.kept_bytes += weight
        while self.kept_bytes > self._capacity_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.kept_bytes -= self._weigh(dropped)
