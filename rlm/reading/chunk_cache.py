"""Caches in memory: verified chunks, and values whose load all callers share.

`ChunkCache` keeps chunks that are read again, chunks that were read ahead until their reader needs
them, and chunks to which an answer still refers. Eviction skips the last kind: dropping such a
chunk would free nothing, so the bytes that count as kept are exactly the bytes in memory. The
interpreter's reference count shows whether a chunk is referred to, so senders report nothing. A
chunk that is kept already when a reader will soon need it is expected: it waits for that reader
too. Otherwise a reader of what nearly fits would evict what comes next with each chunk that lacks.

`SingleFlightCache` runs each load once, even when its first caller is cancelled, and never keeps a
failure. Its bound is in bytes: every value has a weight, and a scan of values that are read once
evicts nothing that is read again. The caller that begins a load decides where it runs; the cache
only remembers it while it is under way. This module must not know stores or segments.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeAlias, TypeVar

from kip405.ids import Uuid
from rlm.reading.chunk_memory import Chunk
from rlm.reading.eviction import ScanResistant

ChunkKey: TypeAlias = tuple[Uuid, int]
"""Segment id and number of the chunk."""


def _references_of_one_held_once() -> int:
    held = {0: bytes(100)}
    return sys.getrefcount(held[0])


_HELD_ONCE = _references_of_one_held_once()


class ChunkCache:
    """Chunks by key. It never evicts by itself: a caller that needs room calls `evict`."""

    def __init__(self, capacity_bytes: int) -> None:
        self._data: dict[ChunkKey, Chunk] = {}
        self._order: ScanResistant[ChunkKey] = ScanResistant(capacity_bytes)
        self._ahead: dict[ChunkKey, int] = {}
        self._ahead_of: dict[int, set[ChunkKey]] = {}
        self._expected: dict[ChunkKey, int] = {}
        self._expected_of: dict[int, set[ChunkKey]] = {}
        self._given: set[ChunkKey] = set()
        self.kept_bytes = 0
        self.expected_bytes = 0
        self.ahead_bytes = 0
        """Read ahead and waiting for its reader."""
        self.wasted_bytes = 0
        """Read ahead in vain so far."""
        self.evicted_bytes = 0

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: ChunkKey) -> bool:
        return key in self._data

    def get(self, key: ChunkKey, reader: int) -> Chunk | None:
        """The chunk if it is kept; it counts as read by `reader`."""
        data = self._data.get(key)
        if data is None:
            return None
        if key in self._ahead:
            self._unprotect(key)
            self._order.add(key, len(data), reader)
        else:
            self._expect_no_more(key)
            self._order.touch(key, reader)
        self._given.add(key)
        return data

    def put(self, key: ChunkKey, data: Chunk, reader: int, *, is_ahead: bool) -> None:
        """Keep a chunk; a chunk that was read ahead waits for `reader`, which is expected soon."""
        if key in self._data:
            return
        self._data[key] = data
        self.kept_bytes += len(data)
        if is_ahead:
            self._ahead[key] = reader
            self._ahead_of.setdefault(reader, set()).add(key)
            self.ahead_bytes += len(data)
        else:
            self._order.add(key, len(data), reader)

    def expect(self, key: ChunkKey, reader: int, most_bytes: int) -> None:
        """A reader will soon need the chunk: if it is kept, it waits for that. Nothing more is done
        once `most_bytes` wait for readers.
        """
        data = self._data.get(key)
        if data is None or key in self._ahead or key in self._expected:
            return
        if self.ahead_bytes + self.expected_bytes + len(data) <= most_bytes:
            self._expected[key] = reader
            self._expected_of.setdefault(reader, set()).add(key)
            self.expected_bytes += len(data)

    def release(self, reader: int) -> int:
        """A reader will not come back: what was kept for it may be evicted. Returns the bytes that
        were read ahead for it in vain.
        """
        for key in tuple(self._expected_of.get(reader, ())):
            self._expect_no_more(key)
        released = 0
        for key in tuple(self._ahead_of.get(reader, ())):
            self._unprotect(key)
            size = len(self._data[key])
            self._order.add(key, size, reader)
            released += size
        self.wasted_bytes += released
        return released

    def evict(self, wanted_bytes: int, *, spares_ahead: bool) -> int:
        """Drop chunks until so many bytes are free. Chunks that wait for a reader are dropped last,
        or not at all. Returns the freed bytes, which are fewer where the rest is referred to.
        """
        freed = 0
        while freed < wanted_bytes and (key := self._order.pop(self._may_leave)) is not None:
            freed += self._drop(key)
        if freed < wanted_bytes and not spares_ahead:
            while freed < wanted_bytes and (key := self._order.pop(self.is_free)) is not None:
                freed += self._drop(key)
            for key in tuple(self._ahead):
                if freed >= wanted_bytes:
                    break
                if self.is_free(key):
                    self._unprotect(key)
                    self.wasted_bytes += len(self._data[key])
                    freed += self._drop(key)
        return freed

    def keys(self) -> tuple[ChunkKey, ...]:
        """All chunks that are kept, whatever for."""
        return tuple(self._data)

    def drop(self, keys: Collection[ChunkKey]) -> None:
        """Drop chunks that nobody will read again, except those that answers refer to."""
        for key in keys:
            if key in self._data and self.is_free(key):
                if key in self._ahead:
                    self._unprotect(key)
                    self.wasted_bytes += len(self._data[key])
                self._order.discard(key)
                self._drop(key)

    def is_free(self, key: ChunkKey) -> bool:
        """Whether only this cache refers to the chunk."""
        return sys.getrefcount(self._data[key]) <= _HELD_ONCE

    def _may_leave(self, key: ChunkKey) -> bool:
        return key not in self._expected and self.is_free(key)

    def pinned_bytes(self) -> int:
        """Bytes of the chunks given out that an answer still refers to."""
        given = [key for key in self._given if key in self._data and not self.is_free(key)]
        self._given = set(given)
        return sum(len(self._data[key]) for key in given)

    def _unprotect(self, key: ChunkKey) -> None:
        reader = self._ahead.pop(key)
        waiting = self._ahead_of[reader]
        waiting.discard(key)
        if not waiting:
            del self._ahead_of[reader]
        self.ahead_bytes -= len(self._data[key])

    def _expect_no_more(self, key: ChunkKey) -> None:
        reader = self._expected.pop(key, None)
        if reader is not None:
            waiting = self._expected_of[reader]
            waiting.discard(key)
            if not waiting:
                del self._expected_of[reader]
            self.expected_bytes -= len(self._data[key])

    def _drop(self, key: ChunkKey) -> int:
        self._expect_no_more(key)
        size = len(self._data.pop(key))
        self.kept_bytes -= size
        self.evicted_bytes += size
        return size


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlightCache(Generic[K, V]):
    """`capacity_bytes` bounds what is kept; callers that begin loads bound what is in flight."""

    def __init__(self, *, capacity_bytes: int, weigh: Callable[[V], int]) -> None:
        self._capacity_bytes = capacity_bytes
        self._weigh = weigh
        self._kept: dict[K, V] = {}
        self._order: ScanResistant[K] = ScanResistant(capacity_bytes)
        self._pending: dict[K, asyncio.Future[V]] = {}

    @property
    def kept_bytes(self) -> int:
        """Weight of everything kept."""
        return self._order.bytes

    def peek(self, key: K, reader: int) -> V | None:
        """The value if it is kept; it counts as used by `reader`."""
        value = self._kept.get(key)
        if value is not None:
            self._order.touch(key, reader)
        return value

    def start(
        self, key: K, begin: Callable[[], asyncio.Future[V]], reader: int
    ) -> asyncio.Future[V]:
        """Begin a load, or join the running one; the future may be shielded and dropped."""
        pending = self._pending.get(key)
        if pending is None:
            pending = begin()
            self._pending[key] = pending
            pending.add_done_callback(lambda done: self._landed(key, done, reader))
        return pending

    def _landed(self, key: K, pending: asyncio.Future[V], reader: int) -> None:
        self._pending.pop(key, None)
        if not pending.cancelled() and pending.exception() is None:
            self.put(key, pending.result(), reader)

    def drop(self, key: K) -> None:
        """Keep a value no longer."""
        if self._kept.pop(key, None) is not None:
            self._order.discard(key)

    def put(self, key: K, value: V, reader: int) -> None:
        """Keep a value, in place of one that is kept already."""
        self.drop(key)
        weight = self._weigh(value)
        if weight > self._capacity_bytes:
            return  # it would evict all the others and then itself
        # Make room first, so that the newest value is not evicted.
        while self.kept_bytes + weight > self._capacity_bytes:
            leaving = self._order.pop(lambda _: True)
            if leaving is None:
                break
            del self._kept[leaving]
        self._order.add(key, weight, reader)
        self._kept[key] = value
