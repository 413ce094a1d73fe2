"""Memory of a worker for records of the remote tier (G10, H36).

A read reserves what it may get, and what it got is counted until nothing refers to it any more, as
when the client's socket has taken it. A read beyond the bound waits; `lacking_bytes` says for how
much, so that clients that stopped reading can be ended (rlm.proxy.limits.StalledClients).
"""

import asyncio
import weakref
from collections import deque
from contextlib import suppress

from rlm.workers.frames import RawBytes

_READS = 4
"""So many of the largest reads have room at a time."""


class Room:
    """What one read has reserved."""

    def __init__(self, memory: "RecordsMemory", size_bytes: int) -> None:
        self._memory = memory
        self._size_bytes = size_bytes

    def hold(self, raw: RawBytes) -> None:
        """The read got these bytes, which count for as long as they live."""
        reserved_bytes, self._size_bytes = self._size_bytes, 0
        self._memory.add(len(raw) - reserved_bytes)
        weakref.finalize(raw, self._memory.add, -len(raw))

    def release(self) -> None:
        """Nothing is reserved any more; again: nothing happens."""
        size_bytes, self._size_bytes = self._size_bytes, 0
        if size_bytes:
            self._memory.add(-size_bytes)


class RecordsMemory:
    """Counts; a single batch may always be larger than the bound."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def most_of_a_read_bytes(self) -> int:
        """What one read may ask for, so that it leaves room for others."""
        return self.max_bytes // _READS

    @property
    def lacking_bytes(self) -> int:
        """What the reads that wait want to have; 0 while none waits."""
        return sum(size_bytes for _, size_bytes in self._waiting)

    async def reserve(self, size_bytes: int) -> Room:
        """Wait for room, in the order of the calls."""
        if self._waiting or not self._fits(size_bytes):
            turn = asyncio.get_running_loop().create_future()
            one = turn, size_bytes
            self._waiting.append(one)
            try:
                await turn
            except BaseException:  # a read that nobody waits for any more ends by GeneratorExit
                if turn.done() and not turn.cancelled():
                    self.add(-size_bytes)
                else:
                    with suppress(ValueError):  # it was its turn after it was cancelled
                        self._waiting.remove(one)
                    self._wake()
                raise
        else:
            self.held_bytes += size_bytes
        return Room(self, size_bytes)

    def add(self, size_bytes: int) -> None:
        """Change what is held."""
        self.held_bytes += size_bytes
        self._wake()

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self.max_bytes

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, size_bytes = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += size_bytes
                turn.set_result(None)
