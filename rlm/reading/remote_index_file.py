"""Remote index files of one range of offsets: a remotelogindex and what is derived from it.

They are named by their first offset. The remotesegmentindex has a record for each segment, written
last; a read goes by it to the entries of the segment. The remotelogindex is the truth of the offset
and time index, which are for other programs: before the first append after a restart, every entry
is checked, and they are made anew where they differ. What is not whole and sound is cut off, with
all that follows it: the files only repeat what the store has. Blocking; its caller serialises.
"""

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kip405.errors import Corrupt
from kip405.remote_index import (
    RemoteLogIndexEntry,
    SegmentRecord,
    decode_entries,
    decode_entry,
    decode_record,
    index_files,
    largest_timestamp,
)

LOG_SUFFIX: Final = ".remotelogindex"
OFFSET_SUFFIX: Final = ".remoteoffsetindex"
TIME_SUFFIX: Final = ".remotetimeindex"
SEGMENT_SUFFIX: Final = ".remotesegmentindex"
SUFFIXES: Final = (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, SEGMENT_SUFFIX)
MOST_OFFSETS: Final = 2**31 - 1
"""Offsets and positions in the index files are int32, from the first offset on."""


@dataclass(frozen=True, slots=True)
class Run:
    """The entries of one segment and its record, by position; segment offsets are half-open."""

    segment_id: bytes
    start_offset: int
    next_offset: int
    position: int
    end: int
    record_position: int
    record_end: int


class IndexFile:
    """The four files of one first offset; they need not exist yet."""

    def __init__(self, folder: Path, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self._stem = folder / f"{base_offset:020d}"
        self.runs: list[Run] = []
        self.is_checked = False
        """Whether every entry was checked since the files were loaded."""
        self.noted_bytes = 0
        """For the owner of several: the `disk_bytes` that it knows."""
        self._index_crcs = (0, 0)

    @property
    def size_bytes(self) -> int:
        """Of the remotelogindex, as far as it is valid."""
        return self.runs[-1].end if self.runs else 0

    @property
    def next_offset(self) -> int:
        """First offset after the last segment."""
        return self.runs[-1].next_offset if self.runs else self.base_offset

    def disk_bytes(self) -> int:
        """Of all four files."""
        return sum(size_of(self._path(suffix)) for suffix in SUFFIXES)

    def load(self) -> None:
        """Read which segments there are; cut off a torn tail. OSError: the disk fails."""
        data, log_bytes = self._read(SEGMENT_SUFFIX), size_of(self._path(LOG_SUFFIX))
        self.runs, position, end, offset = [], 0, 0, self.base_offset
        while position < len(data):
            try:
                record, after = decode_record(data, position)
            except Corrupt:
                break
            last = record.position + record.size_bytes
            if record.position != end or last > log_bytes or record.start_offset < offset:
                break
            self.runs.append(_run(record, position, after))
            position, end, offset = after, last, record.end_offset + 1
        self.is_checked = False
        if position != len(data) or end != log_bytes:
            self._truncate()

    def check(self) -> bool:
        """Check every entry, once; whether nothing had to be cut off or made anew."""
        if self.is_checked:
            return True
        found: list[tuple[int, RemoteLogIndexEntry]] = []
        data = self._read(LOG_SUFFIX)
        with suppress(Corrupt):
            for one in decode_entries(data):
                found.append(one)  # noqa: PERF402 - what was found before an error counts
        sound_bytes = decode_entry(data, found[-1][0])[1] if found else 0
        kept = [run for run in self.runs if run.end <= sound_bytes]
        # entries behind the last segment are of one whose append failed, however sound they are
        is_whole = len(kept) == len(self.runs) and self.size_bytes == len(data)
        if not is_whole:
            self.runs = kept
            self._truncate()
            found = [(position, entry) for position, entry in found if position < self.size_bytes]
        return self._rebuild(found) and is_whole

    def append(self, record: SegmentRecord, entries: bytes) -> None:
        """Add a segment behind all others; the record's position is set here. Corrupt: what is
        there is damaged, mend it first.
        """
        self.check()
        at = self.size_bytes
        found = [(at + position, entry) for position, entry in decode_entries(entries)]
        record_at = self.runs[-1].record_end if self.runs else 0
        placed = replace(record, position=at, size_bytes=len(entries))
        encoded = placed.encode()
        indexes = [self._checked_index(OFFSET_SUFFIX, 0), self._checked_index(TIME_SUFFIX, 1)]
        added = index_files(found, self.base_offset, largest_timestamp(indexes[1]))
        _write_at(self._path(LOG_SUFFIX), at, entries)
        crcs = []
        for suffix, before, more in zip((OFFSET_SUFFIX, TIME_SUFFIX), indexes, added, strict=True):
            _write_at(self._path(suffix), len(before), more)
            crcs.append(zlib.crc32(more, zlib.crc32(before)))
        _write_at(self._path(SEGMENT_SUFFIX), record_at, encoded)
        self._index_crcs = (crcs[0], crcs[1])
        self.runs.append(_run(placed, record_at, record_at + len(encoded)))

    def read(self, run: Run) -> tuple[SegmentRecord, bytes]:
        """Record and entries of a segment; the entries are not checked. Corrupt: the record is
        damaged, or they are not there.
        """
        data = _read_at(self._path(SEGMENT_SUFFIX), run.record_position, run.record_end)
        record, _ = decode_record(data, 0)
        entries = _read_at(self._path(LOG_SUFFIX), run.position, run.end)
        if len(entries) != run.end - run.position or record.segment_id.raw != run.segment_id:
            raise Corrupt(f"{self._stem}: the segment at {run.position} is not what was written")
        return record, entries

    def mend(self) -> None:
        """After damage: keep what is sound."""
        self.load()
        self.check()

    def cut(self, count: int) -> None:
        """Keep the first so many segments only."""
        self.check()
        self.is_checked = False  # the disk may fail before the other files are cut
        self.runs = self.runs[:count]
        self._truncate()
        self._rebuild(list(decode_entries(self._read(LOG_SUFFIX))))

    def delete(self) -> None:
        """Remove the files; one that is missing is no error."""
        self.runs = []
        for suffix in reversed(SUFFIXES):
            self._path(suffix).unlink(missing_ok=True)

    def _checked_index(self, suffix: str, number: int) -> bytes:
        """The index file as it was written; it has no checksum of its own."""
        data = self._read(suffix)
        if zlib.crc32(data) != self._index_crcs[number]:
            raise Corrupt(f"{self._path(suffix)} is not what was written")
        return data

    def _rebuild(self, entries: Sequence[tuple[int, RemoteLogIndexEntry]]) -> bool:
        """Make the index files what they must be; whether they were."""
        were_right = True
        wanted = index_files(entries, self.base_offset)
        for suffix, data in zip((OFFSET_SUFFIX, TIME_SUFFIX), wanted, strict=True):
            if self._read(suffix) != data:
                were_right = False
                _write_at(self._path(suffix), 0, data)
        self._index_crcs = (zlib.crc32(wanted[0]), zlib.crc32(wanted[1]))
        self.is_checked = True
        return were_right

    def _truncate(self) -> None:
        for suffix, size in (
            (SEGMENT_SUFFIX, self.runs[-1].record_end if self.runs else 0),
            (LOG_SUFFIX, self.size_bytes),
        ):
            path = self._path(suffix)
            if size_of(path) > size:
                os.truncate(path, size)

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix)

    def _read(self, suffix: str) -> bytes:
        try:
            return self._path(suffix).read_bytes()
        except FileNotFoundError:
            return b""


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _run(record: SegmentRecord, position: int, end: int) -> Run:
    return Run(
        record.segment_id.raw,
        record.start_offset,
        record.end_offset + 1,
        record.position,
        record.position + record.size_bytes,
        position,
        end,
    )


def _read_at(path: Path, start: int, end: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), end - start, start)
    except FileNotFoundError as error:
        raise Corrupt(f"{path} is gone") from error


def _write_at(path: Path, position: int, data: bytes) -> None:
    """What was behind the position is replaced by the data."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, position)
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], position + written)
    finally:
        os.close(descriptor)
