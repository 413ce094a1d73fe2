"""Planted bugs on the way of cached chunks to the socket: their memory, views and reads."""

from tests.mutants.edits import Edit, Target
from tests.mutants.of_reading import LOADER, TIER

API_FETCH = Target("rlm/api/fetch.py", ("tests/rlm/api/test_fetch_service.py",))
_ENDED = "tests/rlm/cache/test_ended_segments.py"
ENDED = Target("rlm/reading/ended_segments.py", (_ENDED,))
FINISHED = Target("rlmm/manager.py", ("tests/rlmm/test_manager.py",))
DISK_CACHE = Target("rlm/reading/disk_cache.py", ("tests/rlm/cache/test_disk.py", _ENDED))
CHUNK_MEMORY = Target("rlm/reading/chunk_memory.py", ("tests/rlm/reading/test_chunk_memory.py",))
BEGUN = Target("rlm/proxy/begun.py", ("tests/rlm/proxy/test_begun.py",))
REPEATED = Target(
    "kafka_protocol/fetch/repeated.py", ("tests/kafka_protocol/test_fetch_repeated.py",)
)
WRITER = Target("rlm/proxy/writer.py", ("tests/rlm/proxy/test_writer.py",))
_KEPT_BY_SLOT = (
    "        gone = weakref.finalize(slot, self._dropped, free)\n        gone.atexit = False\n"
)

EDITS: tuple[Edit, ...] = (
    *TIER.edits(
        (
            "H15: a hole that was recorded meanwhile is not seen by a read",
            "known[0] is snapshot and known[1] is holes",
            "known[0] is snapshot",
        ),
        (
            "H04: a read goes along the lineage of an earlier snapshot",
            "known is not None and known[0] is snapshot and",
            "known is not None and",
        ),
        (
            "H02: a read goes by what the ledger had before",
            "if history.ledger is ledger and history.trusted is trusted:",
            "if history.trusted is trusted:",
        ),
        (
            "H15: a ledger with a problem still proves holes to a read",
            "if history.ledger is ledger and history.trusted is trusted:",
            "if history.ledger is ledger:",
        ),
    ),
    *API_FETCH.edits(
        (
            "the API gives away records of topics that are not enabled",
            "        await self._require_enabled(led.key, led.topic_id_partition.topic)\n"
            "        self._require_led(led)\n"
            "        try:\n",
            "        self._require_led(led)\n        try:\n",
        ),
    ),
    *ENDED.edits(
        (
            "erasure: chunks of deleted segments stay in the caches",
            "            cached.difference_update(ids)\n",
            "            cached.clear()\n",
        ),
        (
            "all chunks are dropped before the ledger was read",
            "        await self._wait_ready()\n",
            "",
        ),
    ),
    *FINISHED.edits(
        (
            "erasure: a segment whose deletion has begun counts as one that is read",
            "if state_id_of(packed) == _FINISHED",
            "if state_id_of(packed) >= _FINISHED",
        ),
    ),
    *DISK_CACHE.edits(
        (
            "erasure: the file of a chunk that was dropped stays",
            "                self._removals.append(key)\n                self._has_work()\n",
            "                self._has_work()\n",
        ),
        (
            "records in the disk cache can be read by every user of the machine",
            "    return os.open(path, flags, 0o600)\n",
            "    return os.open(path, flags, 0o666)\n",
        ),
        (
            "folders that an earlier version left open to others stay so",
            "            part.chmod(_OWNER_ONLY)  # earlier versions left that to the umask\n",
            "            pass\n",
        ),
    ),
    *LOADER.edits(
        (
            "what the cache has of what a reader needs next is evicted before it comes",
            "                self._chunks.expect(key, wanted.reader, most_bytes)\n",
            "                pass\n",
        ),
    ),
    *CHUNK_MEMORY.edits(
        (
            "G9: memory is used again while something refers to its chunk",
            _KEPT_BY_SLOT,
            "        self._dropped(free)\n",
        ),
        (
            "G10: memory of chunks is never used again",
            _KEPT_BY_SLOT,
            "",
        ),
        (
            "G9: all slots of a mapping are the same memory",
            "_FreeSlot(mapping, position)",
            "_FreeSlot(mapping, 0)",
        ),
        (
            "G9: pages of a chunk that is in use are given back",
            "madvise(mmap.MADV_DONTNEED, slot.position, SLOT_BYTES)",
            "madvise(mmap.MADV_DONTNEED, 0, 3 * SLOT_BYTES)",
        ),
        (
            "G10: a worker keeps all memory that it ever needed at a time",
            "            slot.mapping.madvise(mmap.MADV_DONTNEED, slot.position, SLOT_BYTES)\n"
            "            self._unused.append(slot)\n",
            "            self._free.append(slot)\n",
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
        (
            "H20: a request of a connection that is over is handled on",
            "        elif self._is_over:\n            found.close()\n",
            "",
        ),
        (
            "what a request holds stays until the connection is collected",
            "            waiting.close()\n",
            "            pass\n",
        ),
        (
            "H36: as many requests as a client sends at once are handled within one another",
            "        if not self._is_running:\n            self._run(None)",
            "        self._run(None)",
        ),
        (
            "a connection goes on after a handler has failed",
            "        self._in_group(_raise(error))\n",
            "        pass\n",
        ),
        (
            "a handler that only lets others run is never gone on with",
            "found.waits_for is not None and found",
            "found",
        ),
        (
            "a client waits for ever for a handler that broke off in its task",
            "        raise _broken_off(error) from error\n",
            "        raise\n",
        ),
        (
            "a client waits for ever for a handler that broke off without a task",
            "            error = _broken_off(error)\n",
            "            pass\n",
        ),
        (
            "a request is handled after the end of its connection",
            "        if self._is_over:\n            work.close()\n            return\n",
            "",
        ),
    ),
    *REPEATED.edits(
        (
            "G7: a repeated fetch is answered from the offset of the one before",
            "return self._client_id, _at_other_offsets(frame, known)",
            "return self._client_id, known",
        ),
        (
            "H36: requests of any size are remembered with their connections",
            "        if len(frame) > _MOST_REMEMBERED_BYTES:",
            "        if len(frame) < 0:",
        ),
        (
            "G7: a request with another number of bytes before its offsets counts as repeated",
            "            if masked == self._masked:",
            "            if masked[-4:] == self._masked[-4:]:",
        ),
    ),
    *WRITER.edits(
        (
            "H24: a connection whose socket is broken stays open, and everything waits behind it",
            "            asyncio.get_running_loop().call_soon(self._transport.abort)\n",
            "",
        ),
        (
            "H24: bytes go on over a connection whose socket met an error",
            "            elif not self._send_past_transport() and not self._is_broken:\n",
            "            elif not self._send_past_transport():\n",
        ),
        (
            "H24: a transport that says that it goes on meets an error meanwhile, and ends twice",
            "        asyncio.get_running_loop().call_soon(self._go_on)\n",
            "        self._go_on()\n",
        ),
        (
            "a transport that is ending warns of each piece that it is given",
            "            if self._transport.is_closing():  # it",
            "            if False:  # it",
        ),
        (
            "what a buffer held is given to the socket after it was used again",
            "            self.write(bytes(memoryview(view)[sent_bytes:]))",
            "            self.write(memoryview(view)[sent_bytes:])",
        ),
        (
            "bytes that the socket did not take are lost",
            "            self._queue[0] = self._queue[0][size_bytes:]\n",
            "            del self._queue[0]\n",
        ),
        (
            "bytes that the socket took are sent again",
            "        if size_bytes:\n            self._queue[0] =",
            "        if False:\n            self._queue[0] =",
        ),
        (
            "G10: the transport copies what the socket does not take",
            "if self._socket is None else _NUDGE_BYTES",
            "if self._socket is None else PART_BYTES",
        ),
    ),
)
