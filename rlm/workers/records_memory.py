"""Memory of a worker for records of the remote tier (G10, H36).

A read reserves what it may get, and what comes is counted from its first byte on until nothing
refers to it any more, as when the client's socket has taken it, or when nobody waits for it. A read
beyond the bound waits; `lacking_bytes` says for how much, so that clients that stopped reading can
be ended (rlm.proxy.limits.StalledClients).

Records are received into slots that are used again (rlm.reading.chunk_memory), each counted whole;
what would fill less than three quarters of one gets memory of its own size.
"""

import asyncio
import weakref
from collections import deque
from contextlib import suppress

from rlm.reading.chunk_memory import SLOT_BYTES, ChunkMemory

_LEAST_IN_A_SLOT_BYTES = SLOT_BYTES * 3 // 4
_KEPT_BYTES = 32 << 20
"""Slots that no record is in, for the next ones; what is free beyond that the system gets back."""
_READS = 4
"""So many of the largest reads have room at a time."""


class _Small(bytearray):
    """Memory for less than a slot, to which one can refer weakly."""

    __slots__ = ("__weakref__",)


class Room:
    """What one read has reserved."""

    def __init__(self, memory: "RecordsMemory", size_bytes: int) -> None:
        self._memory = memory
        self._size_bytes = size_bytes

    def release(self) -> None:
        """Nothing is reserved any more; again: nothing happens."""
        size_bytes, self._size_bytes = self._size_bytes, 0
        if size_bytes:
            self._memory.free(size_bytes)


class RecordsMemory:
    """Bounds what is reserved and what has come; a single batch may always be larger than that. An
    answer counts twice from its first byte to its last one.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self.slots = ChunkMemory(_KEPT_BYTES)
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
        """Wait for room for so many bytes of records, in the order of the calls."""
        size_bytes = _taken_bytes(size_bytes)
        if self._waiting or not self._fits(size_bytes):
            turn = asyncio.get_running_loop().create_future()
            one = turn, size_bytes
            self._waiting.append(one)
            try:
                await turn
            except BaseException:  # a read that nobody waits for any more ends by GeneratorExit
                if turn.done() and not turn.cancelled():
                    self.free(size_bytes)
                else:
                    with suppress(ValueError):  # it was its turn after it was cancelled
                        self._waiting.remove(one)
                    self._wake()
                raise
        else:
            self.held_bytes += size_bytes
        return Room(self, size_bytes)

    def take(self, size_bytes: int) -> list[memoryview]:
        """A RawMemory (see rlm.workers.frames): for an answer that comes."""
        sizes = [SLOT_BYTES] * (size_bytes // SLOT_BYTES)
        if size_bytes % SLOT_BYTES:
            sizes.append(size_bytes % SLOT_BYTES)
        return [self._piece(size) for size in sizes]

    def _piece(self, size_bytes: int) -> memoryview:
        taken_bytes = _taken_bytes(size_bytes)
        piece = self.slots.slot() if taken_bytes == SLOT_BYTES else _Small(size_bytes)
        self.held_bytes += taken_bytes
        weakref.finalize(piece, self.free, taken_bytes).atexit = False
        return memoryview(piece).cast("B")[:size_bytes]

    def free(self, size_bytes: int) -> None:
        """So much is not held any more."""
        self.held_bytes -= size_bytes
        self._wake()

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self.max_bytes

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, size_bytes = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += size_bytes
                turn.set_result(None)


def _taken_bytes(size_bytes: int) -> int:
    """The memory that so many bytes of records take."""
    rest_bytes = size_bytes % SLOT_BYTES
    if rest_bytes < _LEAST_IN_A_SLOT_BYTES:
        return size_bytes
    return size_bytes - rest_bytes + SLOT_BYTES
