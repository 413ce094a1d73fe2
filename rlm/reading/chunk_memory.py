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
from contextlib import suppress
from typing import NamedTuple, TypeAlias

SLOT_BYTES = 1 << 20
SLOTS_AT_ONCE = 16

Slot: TypeAlias = ctypes.Array[ctypes.c_ubyte]
Chunk: TypeAlias = bytes | bytearray | Slot
"""The bytes of one chunk, as an object that each view of them refers to."""
ChunkBuffer: TypeAlias = bytearray | Slot

_Slot = ctypes.c_ubyte * SLOT_BYTES
_MADV_POPULATE_WRITE = 23  # Linux 5.14; an older kernel refuses it, and the pages come one by one
_madvise = ctypes.CDLL(None).madvise if sys.platform == "linux" else None


class _FreeSlot(NamedTuple):
    """Where a slot is."""

    mapping: mmap.mmap
    position: int


def view_of(chunk: Chunk) -> memoryview:
    """The chunk's bytes, which nobody changes any more; the view keeps them alive."""
    return memoryview(chunk).cast("B").toreadonly()


class ChunkMemory:
    """Slots for whole chunks, from any thread. There are never more of them than were in use at one
    time, rounded up to `SLOTS_AT_ONCE`, so whoever bounds the chunks bounds this memory. Of slots
    that are free again, those beyond `kept_bytes` give their pages back; None = none does.
    """

    def __init__(self, kept_bytes: int | None = None) -> None:
        self._kept_bytes = kept_bytes
        self._free: deque[_FreeSlot] = deque()
        self._unused: deque[_FreeSlot] = deque()  # without pages
        self._growing = threading.Lock()
        self.mapped_bytes = 0
        """All slots."""

    @property
    def free_bytes(self) -> int:
        """Slots that hold no chunk."""
        return (len(self._free) + len(self._unused)) * SLOT_BYTES

    @property
    def resident_bytes(self) -> int:
        """Slots that have pages: those that hold a chunk, and those that are kept for the next."""
        return self.mapped_bytes - len(self._unused) * SLOT_BYTES

    def buffer(self, size_bytes: int) -> ChunkBuffer:
        """Memory for one chunk, with any content. Only whole chunks get a slot: the others, the
        last ones of their logs, would waste the rest of it.
        """
        return self.slot() if size_bytes == SLOT_BYTES else bytearray(size_bytes)

    def slot(self) -> Slot:
        """Memory of SLOT_BYTES, with any content, for as long as anything refers to it."""
        free, has_pages = self._take()
        slot = _Slot.from_buffer(free.mapping, free.position)
        gone = weakref.finalize(slot, self._dropped, free)
        gone.atexit = False
        if not has_pages and _madvise is not None:
            _madvise(ctypes.byref(slot), ctypes.c_size_t(SLOT_BYTES), _MADV_POPULATE_WRITE)
        return slot

    def _dropped(self, slot: _FreeSlot) -> None:
        if self._kept_bytes is None or len(self._free) * SLOT_BYTES < self._kept_bytes:
            self._free.append(slot)
        else:
            slot.mapping.madvise(mmap.MADV_DONTNEED, slot.position, SLOT_BYTES)
            self._unused.append(slot)

    def _take(self) -> tuple[_FreeSlot, bool]:
        """A slot, and whether it has its pages."""
        while True:
            for slots in (self._free, self._unused):
                with suppress(IndexError):
                    return slots.pop(), slots is self._free
            self._grow()

    def _grow(self) -> None:
        with self._growing:
            if self._free or self._unused:
                return  # another thread has just done it, or a chunk was dropped
            size_bytes = SLOTS_AT_ONCE * SLOT_BYTES
            mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.mapped_bytes += size_bytes
            positions = range(0, size_bytes, SLOT_BYTES)
            self._unused.extend(_FreeSlot(mapping, position) for position in reversed(positions))
