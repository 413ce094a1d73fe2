"""Remote index files of one partition, in one folder: segments by their offsets, each once.

A segment is appended to the file that ends before it, or begins a file of its own. Files are closed
by size and by time. Segments that overlap it in offsets, of another lineage or of an earlier topic
of this name, leave, and so do those behind it in the same file: they are kept again when they are
read again. Blocking; its caller serialises.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kip405.errors import Corrupt
from kip405.remote_index import RemoteLogIndexEntry, SegmentRecord
from rlm.reading.remote_index_file import (
    MOST_OFFSETS,
    SUFFIXES,
    IndexFile,
    Run,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a file gets no more segments: its remotelogindex would exceed the size, or it was begun
    so long ago.
    """

    segment_bytes: int
    segment_ms: int


class PartitionIndex:
    """The files of one folder, which is made when it is needed."""

    def __init__(self, folder: Path, rotation: Rotation) -> None:
        self.folder = folder
        self._rotation = rotation
        self._files: list[IndexFile] = []
        self.damaged = 0
        """How often something had to be cut off or made anew."""

    def load(self) -> None:
        """Find the files; what has no sound segment is removed. OSError: the disk fails."""
        bases: dict[int, int] = {}
        for path in self.folder.iterdir():
            if path.suffix in SUFFIXES and len(path.stem) == 20 and path.stem.isdigit():
                bases[int(path.stem)] = int(path.stat().st_mtime * 1000)
        self._files, offset = [], 0
        for base, changed_ms in sorted(bases.items()):
            file = IndexFile(self.folder, base, changed_ms)
            file.load()
            if file.runs and base >= offset:
                self._files.append(file)
                offset = file.next_offset
            else:
                file.delete()

    @property
    def file_count(self) -> int:
        return len(self._files)

    def disk_bytes(self) -> int:
        """Of all files."""
        return sum(file.disk_bytes() for file in self._files)

    def runs(self) -> Iterator[Run]:
        """All segments, by offset."""
        for file in self._files:
            yield from file.runs

    def keep(self, record: SegmentRecord, entries: bytes, now_ms: int) -> None:
        """Add a segment in place of what overlaps it."""
        self._make_room(record.start_offset, record.end_offset + 1)
        self.folder.mkdir(parents=True, exist_ok=True)
        at = self._file_number(record.start_offset)
        file = self._files[at - 1] if at else None
        if file is None or not self._has_room(file, record, len(entries), now_ms):
            file = IndexFile(self.folder, record.start_offset, now_ms)
            file.delete()
            self._files.insert(at, file)
        try:
            file.append(record, entries)
        except Corrupt:
            self.damaged += 1
            file.mend()
            file.append(record, entries)

    def read(self, segment_id: bytes, start_offset: int) -> tuple[SegmentRecord, bytes] | None:
        """Record and entries of a segment; None: not kept. Damage is cut off, and not kept."""
        at = self._file_number(start_offset)
        file = self._files[at - 1] if at else None
        if file is None:
            return None
        if not file.check():
            self.damaged += 1
        run = next((run for run in file.runs if run.segment_id == segment_id), None)
        try:
            return None if run is None else file.read(run)
        except Corrupt:
            self._mend(file)
            return None
        finally:
            self._drop_if_empty(file)

    def entry_at(self, offset: int) -> RemoteLogIndexEntry | None:
        """The entry whose records hold the offset, by the remoteoffsetindex. None: no such entry is
        known.
        """
        at = self._file_number(offset)
        file = self._files[at - 1] if at else None
        for _ in range(2):
            if file is None:
                return None
            try:
                entry = file.entry_at(offset)
            except Corrupt:
                self._mend(file)
            else:
                return entry if entry is not None and offset <= entry.last_offset else None
        return None

    def entry_since(self, timestamp_ms: int) -> RemoteLogIndexEntry | None:
        """The first entry with a record at or above the timestamp, by the remotetimeindex."""
        for file in tuple(self._files):
            try:
                entry = file.entry_since(timestamp_ms)
            except Corrupt:
                self._mend(file)
                entry = file.entry_since(timestamp_ms)
            if entry is not None:
                return entry
        return None

    def drop(self, ended: frozenset[bytes]) -> None:
        """Remove files of which all segments have ended, and segments at the end of the others."""
        for file in tuple(self._files):
            living = [n for n, run in enumerate(file.runs, 1) if run.segment_id not in ended]
            count = max(living, default=0)
            if count < len(file.runs):
                self._cut(file, count)

    def cut_at(self, segment_id: bytes, start_offset: int) -> None:
        """Remove a segment, and those behind it in the same file."""
        at = self._file_number(start_offset)
        if at:
            file = self._files[at - 1]
            for number, run in enumerate(file.runs):
                if run.segment_id == segment_id:
                    self._cut(file, number)
                    return

    def _make_room(self, start: int, end: int) -> None:
        """Remove what overlaps the offsets [start, end), or lies behind them in the same file."""
        for file in tuple(self._files):
            if file.next_offset > start and file.base_offset < end:
                self._cut(file, sum(run.next_offset <= start for run in file.runs))

    def _has_room(self, file: IndexFile, record: SegmentRecord, added: int, now_ms: int) -> bool:
        return (
            file.size_bytes + added <= min(self._rotation.segment_bytes, MOST_OFFSETS)
            and now_ms - file.created_ms < self._rotation.segment_ms
            and record.end_offset - file.base_offset <= MOST_OFFSETS
        )

    def _file_number(self, offset: int) -> int:
        """How many files begin at or below the offset."""
        return bisect_right(self._files, offset, key=lambda file: file.base_offset)

    def _mend(self, file: IndexFile) -> None:
        self.damaged += 1
        file.mend()
        self._drop_if_empty(file)

    def _cut(self, file: IndexFile, count: int) -> None:
        try:
            file.cut(count)
        except Corrupt:
            self.damaged += 1
            file.mend()
            file.cut(count)
        self._drop_if_empty(file)

    def _drop_if_empty(self, file: IndexFile) -> None:
        if not file.runs and file in self._files:
            self._files.remove(file)
            file.delete()
