"""Remote index files of one partition, in one folder: segments by their offsets, each once.

A segment is appended to the file that ends before it, or begins a file of its own. Files are closed
by size and by time. Segments that overlap it in offsets, of another lineage or of an earlier topic
of this name, leave, and so do those behind it in the same file: they are kept again when they are
read again. Blocking; its caller serialises.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kip405.errors import Corrupt
from kip405.remote_index import SegmentRecord
from rlm.reading.remote_index_file import MOST_OFFSETS, SUFFIXES, IndexFile, Run


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
        self._changes: dict[bytes, bool] = {}
        self.disk_bytes = 0
        """Of all files, as they were after the last change of each."""
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
                self._changes.update(dict.fromkeys((run.segment_id for run in file.runs), True))
                self._measure(file)
            else:
                file.delete()

    def take_changes(self) -> Mapping[bytes, bool]:
        """Ids of the segments that came (True) or left (False) since this was asked before."""
        taken, self._changes = self._changes, {}
        return taken

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
        self._check(file)
        try:
            try:
                file.append(record, entries)
            except Corrupt:
                self._mend(file)
                file.append(record, entries)
            self._changes[record.segment_id.raw] = True
        finally:  # the disk may be full
            self._measure(file)
            self._drop_if_empty(file)

    def read(self, segment_id: bytes, start_offset: int) -> tuple[SegmentRecord, bytes] | None:
        """Record and entries of a segment, whose entries the caller must check: a first read would
        else wait until all of the file is. None: not kept. Damage is cut off, and not kept.
        """
        at = self._file_number(start_offset)
        file = self._files[at - 1] if at else None
        if file is None:
            return None
        number = _number(file.runs, segment_id, start_offset)
        try:
            return None if number is None else file.read(file.runs[number])
        except Corrupt:
            self._mend(file)
            return None
        finally:
            self._drop_if_empty(file)

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
            number = _number(file.runs, segment_id, start_offset)
            if number is not None:
                self._cut(file, number)

    def _make_room(self, start: int, end: int) -> None:
        """Remove what overlaps the offsets [start, end), or lies behind them in the same file."""
        first, last = max(self._file_number(start) - 1, 0), self._file_number(end - 1)
        for file in self._files[first:last]:
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

    def _check(self, file: IndexFile) -> None:
        if not file.is_checked:
            with self._changing(file):
                self.damaged += not file.check()

    def _mend(self, file: IndexFile) -> None:
        self.damaged += 1
        with self._changing(file):
            file.mend()

    def _cut(self, file: IndexFile, count: int) -> None:
        with self._changing(file):
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
            self.disk_bytes -= file.noted_bytes
            file.delete()

    @contextmanager
    def _changing(self, file: IndexFile) -> Iterator[None]:
        """Note what a change of a file, other than an append, does to it."""
        before = {run.segment_id for run in file.runs}
        try:
            yield
        finally:
            now = {run.segment_id for run in file.runs}
            self._changes.update(dict.fromkeys(before - now, False))
            self._changes.update(dict.fromkeys(now - before, True))
            self._measure(file)

    def _measure(self, file: IndexFile) -> None:
        before, file.noted_bytes = file.noted_bytes, file.disk_bytes()
        self.disk_bytes += file.noted_bytes - before


def _number(runs: Sequence[Run], segment_id: bytes, start_offset: int) -> int | None:
    """Which of the segments of a file it is; None: none of them."""
    at = bisect_left(runs, start_offset, key=lambda run: run.start_offset)
    return at if at < len(runs) and runs[at].segment_id == segment_id else None
