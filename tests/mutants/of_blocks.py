"""Planted bugs in segments in blocks: what is proved before it is stored, and when it is read."""

from tests.mutants.edits import Edit, Target

_WRITING = "tests/rsm_plugins/blocks/test_writing.py"
_READING = "tests/rsm_plugins/blocks/test_reading.py"
_SEGMENTS = "tests/rsm_plugins/blocks/test_segments.py"
PLAN = Target("rsm_plugins/blocks/plan.py", (_WRITING,))
SOURCE = Target("rsm_plugins/blocks/source.py", (_WRITING,))
INDEX = Target("rsm_plugins/blocks/index.py", (_READING,))
READING = Target("rsm_plugins/blocks/reading.py", (_READING,))
SEGMENTS = Target("rsm_plugins/blocks/segments.py", (_SEGMENTS,))
STORED = Target("rsm_plugins/layout/stored.py", (_SEGMENTS,))
_STREAMED = "tests/rsm_plugins/s3/test_streamed_bodies.py"
BODIES = Target("rsm_plugins/s3/bodies.py", (_STREAMED,))
CALLS = Target("rsm_plugins/s3/calls.py", (_STREAMED,))

EDITS: tuple[Edit, ...] = (
    *PLAN.edits(
        (
            "H13: a log that ends inside a batch is stored",
            "        if self._left or self._carry:\n",
            "        if False:\n",
        ),
        (
            "an entry is cut at the end of its block",
            "self._used_bytes + entry_bytes > self._block_size_bytes:",
            "self._used_bytes + entry_bytes > self._block_size_bytes + 1:",
        ),
        (
            "H13: batches in no order are stored",
            " or entry_id <= self._last_id:",
            ":",
        ),
    ),
    *SOURCE.edits(
        (
            "H13: a log of another checksum is stored in blocks",
            "    if plan.log_crc32c != data.log_crc32c:\n",
            "    if False:\n",
        ),
        (
            "H13: a block is sent whole though the file changed after the plan",
            "    if crc != planned or size_bytes != block.size_bytes:\n",
            "    if False:\n",
        ),
    ),
    *BODIES.edits(
        (
            "G10: a block that goes through aiohttp is in memory",
            "list(islice(pieces, _STREAMED_PIECES))",
            "list(pieces)",
        ),
    ),
    *CALLS.edits(
        (
            "a file that changed is tried again, as if the server were away",
            "            if isinstance(body, StreamedBody) and body.error is not None:\n",
            "            if False:\n",
        ),
    ),
    *INDEX.edits(
        (
            "blocks that do not hold the whole log are read",
            "    if log_position != log_bytes:\n",
            "    if False:\n",
        ),
        (
            "an index of an unknown version is read",
            "    if metadata.format_version != FORMAT_VERSION:\n",
            "    if False:\n",
        ),
        (
            "a position that no entry can have is believed",
            "        if rest or not 0 <= headers < block.entry_count:\n",
            "        if False:\n",
        ),
    ),
    *READING.edits(
        (
            "G10: a read to the end of a block reads its filling too",
            "    if log_end == block.log_end:  # where a known",
            "    if log_end < 0:  # where a known",
        ),
        (
            "a damaged header of a block is not noticed",
            "    if read.start == read.block.position:\n",
            "    if False:\n",
        ),
        (
            "an entry whose length or id is not its batch's is given out",
            "        batch_bytes != size_bytes or ",
            "        False and ",
        ),
        (
            "a data object that was cut short is read",
            "    if len(view) != read.end - read.start:\n",
            "    if False:\n",
        ),
        (
            "a read ends before the batches that it should have",
            "(log_end - before.log_position) + headers_bytes\n",
            "(log_end - before.log_position)\n",
        ),
        (
            "remembered positions grow without a limit",
            "        if len(self._order) > self._remembered_max:\n",
            "        if False:\n",
        ),
        (
            "indexes are kept without a limit",
            "        while self._kept_bytes > self._max_bytes and len(self._kept) > 1:\n",
            "        while False:\n",
        ),
    ),
    *STORED.edits(
        (
            "H13: a segment with other indexes than were given is stored",
            "    if crc32c(data.indexes) != data.indexes_crc32c:\n",
            "    if False:\n",
        ),
    ),
    *SEGMENTS.edits(
        (
            "an index that the copy did not store is read",
            "    if stored not in (None, content):\n",
            "    if False:\n",
        ),
        (
            "the index of another segment is read",
            "    if index.segment_id != locator.segment_id.id.raw:\n",
            "    if False:\n",
        ),
        (
            "the index of one copy is kept beside the data of the next",
            "                self._known.forget((name,))\n",
            "                pass\n",
        ),
        (
            "copies at once leave the index of one and the data of another",
            "        async with self._copies.of(name):\n",
            "        async with _NamedLocks().of(name):\n",
        ),
        (
            "a missing data object is no error for an empty range",
            "            await self._objects.read_range(name, ByteRange(start=0, end=0))\n",
            "",
        ),
    ),
)
