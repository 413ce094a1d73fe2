"""Memory for chunks that is used again: a chunk is read into pages that the process already has.

A chunk in new memory costs a page fault and a cleared page for every 4 KiB, twice the processor
time of reading it. So whole chunks live in slots of anonymous mappings. A slot is free again when
nothing refers to its chunk any more: neither the cache nor a view of it that a socket has not taken
yet.

Mapping the store's own files would save the copy out of the page cache, but somebody may cut a file
short at any time, and a process that then touches the mapping dies by SIGBUS. Bytes in a slot are
those that were verified, whatever happens to the file (G9). This module must not know segments.

The mappings are private: pages of a shared one belong to a file in memory, and cost half as much
again. The kernel is asked for all pages of a slot before its first use, which saves 256 faults.
"""

import ctypes
import mmap
import sys
import threading
import weakref
from collections import deque
from typing import NamedTuple, TypeAlias

SLOT_BYTES = 1 << 20
SLOTS_AT_ONCE = 16

Chunk: TypeAlias = bytes | bytearray | ctypes.Array[ctypes.c_ubyte]
"""The bytes of one chunk, as an object that each view of them refers to."""
ChunkBuffer: TypeAlias = bytearray | ctypes.Array[ctypes.c_ubyte]

_Slot = ctypes.c_ubyte * SLOT_BYTES
_MADV_POPULATE_WRITE = 23  # Linux 5.14; an older kernel refuses it, and the pages come one by one
_madvise = ctypes.CDLL(None).madvise if sys.platform == "linux" else None


class _FreeSlot(NamedTuple):
    """Where a slot is, and whether it has held a chunk before."""

    mapping: mmap.mmap
    position: int
    is_used: bool


def view_of(chunk: Chunk) -> memoryview:
    """The chunk's bytes, which nobody changes any more; the view keeps them alive."""
    return memoryview(chunk).cast("B").toreadonly()


class ChunkMemory:
    """Slots for whole chunks, from any thread. There are never more of them than were in use at one
    time, rounded up to `SLOTS_AT_ONCE`, so whoever bounds the chunks bounds this memory.
    """

    def __init__(self) -> None:
        self._free: deque[_FreeSlot] = deque()  # used ones are at its end, and are taken first
        self._growing = threading.Lock()
        self.mapped_bytes = 0
        """Everything that was taken from the system."""

    @property
    def free_bytes(self) -> int:
        """Slots that hold no chunk."""
        return len(self._free) * SLOT_BYTES

    def buffer(self, size_bytes: int) -> ChunkBuffer:
        """Memory for one chunk, with any content. Only whole chunks get a slot: the others, the
        last ones of their logs, would waste the rest of it.
        """
        if size_bytes != SLOT_BYTES:
            return bytearray(size_bytes)
        free = self._take()
        slot = _Slot.from_buffer(free.mapping, free.position)
        gone = weakref.finalize(slot, self._free.append, free._replace(is_used=True))
        gone.atexit = False
        if not free.is_used and _madvise is not None:
            _madvise(ctypes.byref(slot), ctypes.c_size_t(SLOT_BYTES), _MADV_POPULATE_WRITE)
        return slot

    def _take(self) -> _FreeSlot:
        while True:
            try:
                return self._free.pop()
            except IndexError:
                self._grow()

    def _grow(self) -> None:
        with self._growing:
            if self._free:
                return  # another thread has just done it, or a chunk was dropped
            size_bytes = SLOTS_AT_ONCE * SLOT_BYTES
            mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.mapped_bytes += size_bytes
            positions = range(0, size_bytes, SLOT_BYTES)
            self._free.extendleft(_FreeSlot(mapping, position, False) for position in positions)
