"""Decides which cache entry is evicted next: S3-FIFO by bytes, resistant to scans. Pure.

New entries wait in a small queue. Only an entry that is read there again, by another reader, moves
to the main queue. The key of an entry that was evicted from the small queue is remembered for a
while; if the entry returns, it joins the main queue at once. Consecutive reads by one reader count
once; otherwise every sequential reader would count as many. Source: Yang et al., "FIFO queues are
all you need for cache eviction", 2023.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SMALL_SHARE = 10
_MOST_USES = 3


@dataclass(slots=True, eq=False)
class _Entry:
    weight_bytes: int
    reader: int
    uses: int = 0


class _Queue(Generic[K]):
    """Entries in order of arrival, and their total weight."""

    def __init__(self) -> None:
        self.entries: OrderedDict[K, _Entry] = OrderedDict()
        self.bytes = 0

    def add(self, key: K, entry: _Entry) -> None:
        self.entries[key] = entry
        self.bytes += entry.weight_bytes

    def pop_first(self) -> tuple[K, _Entry]:
        key, entry = self.entries.popitem(last=False)
        self.bytes -= entry.weight_bytes
        return key, entry

    def discard(self, key: K) -> bool:
        entry = self.entries.pop(key, None)
        if entry is None:
            return False
        self.bytes -= entry.weight_bytes
        return True


class ScanResistant(Generic[K]):
    """The order of eviction; the owner of the values calls `pop` until there is enough room."""

    def __init__(self, capacity_bytes: int) -> None:
        self._small_bytes = capacity_bytes // _SMALL_SHARE
        self._ghost_bytes = capacity_bytes
        self._small: _Queue[K] = _Queue()
        self._main: _Queue[K] = _Queue()
        self._ghosts: _Queue[K] = _Queue()

    @property
    def bytes(self) -> int:
        """Weight of all entries."""
        return self._small.bytes + self._main.bytes

    def __len__(self) -> int:
        return len(self._small.entries) + len(self._main.entries)

    def __contains__(self, key: K) -> bool:
        return key in self._small.entries or key in self._main.entries

    def keys(self) -> tuple[K, ...]:
        """All entries."""
        return (*self._small.entries, *self._main.entries)

    def add(self, key: K, weight_bytes: int, reader: int) -> None:
        """A new entry, read by `reader` (any number that identifies a reader)."""
        self.discard(key)
        queue = self._main if self._ghosts.discard(key) else self._small
        queue.add(key, _Entry(weight_bytes, reader))

    def touch(self, key: K, reader: int) -> None:
        """Count a read of the entry; consecutive reads by one reader count once."""
        entry = self._small.entries.get(key) or self._main.entries.get(key)
        if entry is not None and entry.reader != reader:
            entry.reader = reader
            entry.uses = min(entry.uses + 1, _MOST_USES)

    def discard(self, key: K) -> None:
        """Remove an entry that is gone for another reason."""
        if not self._small.discard(key):
            self._main.discard(key)

    def pop(self, may_leave: Callable[[K], bool]) -> K | None:
        """Remove the entry that is evicted next; None where none may be evicted now."""
        small_first = self._small.bytes >= self._small_bytes or not self._main.entries
        for is_small in (small_first, not small_first):
            key = self._pop_small(may_leave) if is_small else self._pop_main(may_leave)
            if key is not None:
                return key
        return None

    def _pop_small(self, may_leave: Callable[[K], bool]) -> K | None:
        for _ in range(len(self._small.entries)):
            key, entry = self._small.pop_first()
            if entry.uses:
                entry.uses = 0
                self._main.add(key, entry)
            elif may_leave(key):
                self._remember(key, entry)
                return key
            else:
                self._small.add(key, entry)
        return None

    def _pop_main(self, may_leave: Callable[[K], bool]) -> K | None:
        for _ in range(len(self._main.entries) * (_MOST_USES + 1)):
            key, entry = self._main.pop_first()
            if not entry.uses and may_leave(key):
                return key
            entry.uses = max(entry.uses - 1, 0)
            self._main.add(key, entry)
        return None

    def _remember(self, key: K, entry: _Entry) -> None:
        self._ghosts.add(key, entry)
        while self._ghosts.bytes > self._ghost_bytes:
            self._ghosts.pop_first()
