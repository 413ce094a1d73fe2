"""Planted bugs on the way of cached chunks to the socket: their memory, views and reads."""

from tests.mutants.edits import Edit, Target

CHUNK_MEMORY = Target("rlm/reading/chunk_memory.py", ("tests/rlm/reading/test_chunk_memory.py",))
BEGUN = Target("rlm/proxy/begun.py", ("tests/rlm/proxy/test_begun.py",))
WRITER = Target("rlm/proxy/writer.py", ("tests/rlm/proxy/test_writer.py",))
_KEPT_BY_SLOT = (
    "        gone = weakref.finalize("
    "slot, self._free.append, place._replace(is_used=True))\n"
    "        gone.atexit = False\n"
)

EDITS: tuple[Edit, ...] = (
    *CHUNK_MEMORY.edits(
        (
            "G9: memory is used again while something refers to its chunk",
            _KEPT_BY_SLOT,
            "        self._free.append(place._replace(is_used=True))\n",
        ),
        (
            "G10: memory of chunks is never used again",
            _KEPT_BY_SLOT,
            "",
        ),
        (
            "G9: all slots of a mapping are the same memory",
            "_Place(mapping, position, False)",
            "_Place(mapping, 0, False)",
        ),
        (
            "a view of a chunk can be written to",
            '.cast("B").toreadonly()',
            '.cast("B")',
        ),
    ),
    *BEGUN.edits(
        (
            "a cancelled read of a fetch goes on",
            "waits_for = work.throw(error)",
            "raise",
        ),
    ),
    *WRITER.edits(
        (
            "a transport is closed while it says that it holds nothing, and ends twice",
            "        if self._is_finishing:  # asyncio ends",
            "        if False:  # asyncio ends",
        ),
        (
            "what a buffer held is given to the socket after it was used again",
            "            self.write(bytes(memoryview(view)[sent_bytes:]))",
            "            self.write(memoryview(view)[sent_bytes:])",
        ),
        (
            "bytes that the socket did not take are lost",
            "                self._queue.appendleft(piece[size_bytes:])\n",
            "                pass\n",
        ),
        (
            "bytes that the socket took are sent again",
            "self._queue.appendleft(piece[size_bytes:])",
            "self._queue.appendleft(piece)",
        ),
        (
            "G10: the transport copies what the socket does not take",
            "if self._socket is None else _NUDGE_BYTES",
            "if self._socket is None else PART_BYTES",
        ),
    ),
)
