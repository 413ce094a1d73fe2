"""Planted bugs of the remote index files: what they have wrong must cost time and no record."""

from tests.mutants.edits import Edit, Target

_READS = "tests/rlm/reading/test_remote_index_reads.py"
_HISTORIES = "tests/rlm/reading/test_remote_index_histories.py"
READER = Target("rlm/reading/reader.py", (_READS,))
SOURCE = Target("rlm/reading/source.py", (_READS,))
INDEXES = Target("rlm/reading/segment_indexes.py", (_READS, _HISTORIES))
FILE = Target("rlm/reading/remote_index_file.py", (_HISTORIES,))
PARTITION = Target("rlm/reading/remote_index_partition.py", (_HISTORIES,))
FORMAT = Target("kip405/remote_index.py", ("tests/kip405/test_remote_index.py",))
FILES = Target("rlm/reading/remote_index.py", (_READS,))
COPY = Target("rlm/tasks/copy_attempt.py", ("tests/rlm/tasks/test_remote_index_copies.py",))

EDITS: tuple[Edit, ...] = (
    *READER.edits(
        (
            "G9: a read begins where a wrong entry of the remote index files leads it",
            "if headers is not None and first_offset(*headers) != offset:",
            "if headers is not None and first_offset(*headers) < 0:",
        ),
        (
            "a read of a segment that no remote index file has asks the files twice",
            "parent=self.span, asks_files=False",
            "parent=self.span, asks_files=True",
        ),
    ),
    *SOURCE.edits(
        (
            "G9: wrong checksums in the remote index files make a segment count as lost",
            "if indexes.is_from_files:",
            "if indexes.is_from_files and not wrong:",
        ),
    ),
    *INDEXES.edits(
        (
            "G9: remote index files of another indexes object are used",
            "    if found != expected:\n",
            "    if found[0] != expected[0]:\n",
        ),
        (
            "a search for a timestamp begins behind a record that has it",
            "times += TIME_ENTRY.pack(largest_ms + 1, relative)",
            "times += TIME_ENTRY.pack(largest_ms, relative)",
        ),
        (
            "a record with the largest timestamp that there is makes a segment unreadable",
            "if entry.position and largest_ms < _LARGEST_MS:",
            "if entry.position:",
        ),
    ),
    *FILES.edits(
        (
            "G6: a read waits for the remote index files on a disk that hangs",
            "timeout=_MOST_WAIT_MS / 1000",
            "timeout=None",
        ),
        (
            "a read through the proxy fails where it may wait for the remote index files",
            "            job = self._threads.begin(work)",
            "            async with asyncio.timeout(60):\n"
            "                job = self._threads.begin(work)",
        ),
    ),
    *FILE.edits(
        (
            "offset and time index have entries of a segment whose append failed",
            "self.size_bytes == len(data)\n",
            "sound_bytes == len(data)\n",
        ),
        (
            "a segment is appended to a remote offset or time index that was damaged",
            "if zlib.crc32(data) != self._index_crcs[number]:",
            "if zlib.crc32(data) < 0:",
        ),
    ),
    *PARTITION.edits(
        (
            "segments of two lineages stay in the remote index files side by side",
            "if file.next_offset > start and file.base_offset < end:",
            "if file.next_offset > start and file.base_offset < start:",
        ),
        (
            "a segment that was cut off with damage still counts as kept",
            "dict.fromkeys(before - now, False)",
            "dict.fromkeys(now - before, False)",
        ),
    ),
    *FORMAT.edits(
        (
            "a damaged entry of the remote log index is read",
            'if zlib.crc32(body) != crc:\n        raise Corrupt(f"remote log',
            'if zlib.crc32(body) < 0:\n        raise Corrupt(f"remote log',
        ),
        (
            "entries that leave out a part of the log are taken for all of it",
            "if at != position or entry",
            "if entry",
        ),
    ),
    *COPY.edits(
        (
            "the index entries of a segment name another object",
            "object_name(locator, data_objects_of(locator)[0])",
            "object_name(locator, data_objects_of(locator)[1])",
        ),
    ),
)
