"""Keeps segment files open, so that their bytes can be copied after the broker has deleted them.

A deleted file keeps its bytes while somebody has it open. The broker first renames the files of a
segment to `.deleted` and removes them later (file.delete.delay.ms), so these are opened too. Each
open file gets a name in a folder of our own: a symbolic link to /proc/<pid>/fd/N under the name
that the broker gave the file. So whatever reads a segment by path reads a held one. Transaction
indexes are small and needed of all later segments too (H9), so they are copied into the folder.
Without /proc (not Linux) nothing can be held. It blocks. This module must not know which segments
are copied.
"""

import os
import resource
import shutil
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from kip405.indexes import whole_transaction_entries
from rlm.log_dir.scanner import Closed, LocalSegment

log = structlog.get_logger()

_OPEN_FILES = Path("/proc/self/fd")
_MOST_SEGMENTS = 2_000
_LIMIT_SHARE = 16
"""Of a segment up to four files are open; all together take at most a quarter of the limit."""
USEFUL_OPEN_FILES = _MOST_SEGMENTS * _LIMIT_SHARE
"""A higher limit holds no more segments."""
_TXN_INDEX = ".txnindex"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFiles:
    """What is kept of one segment; `segment` has the paths in the folder of held files.

    With `is_whole` False that is only its transaction index, if it has one.
    """

    segment: LocalSegment
    is_whole: bool
    descriptors: tuple[int, ...]
    names: tuple[Path, ...]

    def close(self) -> None:
        """The bytes of deleted files are gone after this."""
        for name in self.names:
            name.unlink(missing_ok=True)
        with suppress(OSError):  # others have names there
            Path(self.segment.path).parent.rmdir()
        _close(self.descriptors)

    def divided(self) -> tuple["HeldFiles", "HeldFiles"]:
        """What is to be closed when only the transaction index is needed, and that."""
        names = tuple(name for name in self.names if name.suffix != _TXN_INDEX)
        rest = tuple(name for name in self.names if name.suffix == _TXN_INDEX)
        return (
            replace(self, names=names),
            replace(self, is_whole=False, descriptors=(), names=rest),
        )


class SegmentFiles:
    """Opens files below `folder`, which is emptied at first: links of a former process are dead."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        self._holds = 0

    @property
    def most_segments(self) -> int:
        """Segments that may be held at a time; 0 = this platform cannot."""
        if not _OPEN_FILES.is_dir():
            return 0
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return _MOST_SEGMENTS
        return min(_MOST_SEGMENTS, soft // _LIMIT_SHARE)

    def open(
        self, segments: Sequence[LocalSegment], wanted: Container[int]
    ) -> tuple[HeldFiles, ...]:
        """Keep those of these successive segments whole whose base offset is wanted, and of each
        other one the transaction index, which the complete list of aborted transactions needs (H9).

        The answer ends with the newest segment. It begins behind the newest one that is gone; it
        is empty where our folder cannot be made.
        """
        self._holds += 1
        folder = self._folder / str(self._holds)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            log.warning("segments_not_held", folder=str(folder), error=str(error))
            return ()
        found: list[HeldFiles] = []
        for at in reversed(range(len(segments))):
            held = _opened(segments[at], folder, is_whole=segments[at].base_offset in wanted)
            if held is None:
                break
            found.insert(0, held)
        with suppress(OSError):  # it is not empty
            folder.rmdir()
        return tuple(found)


def _opened(segment: LocalSegment, folder: Path, *, is_whole: bool) -> HeldFiles | None:
    """None where the segment is not there (any more) as it was scanned.

    A broker renames and deletes the log file before the other files. So if that one is still there
    at the end, every file that the segment had was there before.
    """
    descriptors: dict[str, int] = {}
    names: list[Path] = []
    try:
        txn_index = _read(segment.sibling(_TXN_INDEX))
        for path in (*(_beside(segment) if is_whole else ()), segment.path):
            descriptor = _open(path)
            if descriptor is not None:
                descriptors[path] = descriptor
        is_there = _is_complete(segment, descriptors, is_whole=is_whole)
        if not is_whole:
            _close(descriptors.values())
            descriptors.clear()
        for path, descriptor in descriptors.items():
            names.append(folder / os.path.basename(path))
            names[-1].symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
        if txn_index:
            names.append(folder / os.path.basename(segment.sibling(_TXN_INDEX)))
            names[-1].write_bytes(txn_index)
    except OSError as error:
        log.warning("segment_not_held", path=segment.path, error=str(error))
        is_there = False
    lacks_snapshot = is_whole and segment.snapshot_path not in descriptors
    held = HeldFiles(
        segment=replace(
            segment,
            path=str(folder / os.path.basename(segment.path)),
            closed=Closed.SNAPSHOT_MISSING if lacks_snapshot else segment.closed,
        ),
        is_whole=is_whole,
        descriptors=tuple(descriptors.values()),
        names=tuple(names),
    )
    if is_there:
        return held
    held.close()
    return None


def _beside(segment: LocalSegment) -> tuple[str, ...]:
    """The files beside the log that are opened."""
    return (*_indexes(segment), segment.snapshot_path)


def _indexes(segment: LocalSegment) -> tuple[str, str]:
    return segment.sibling(".index"), segment.sibling(".timeindex")


def _is_complete(segment: LocalSegment, descriptors: Mapping[str, int], *, is_whole: bool) -> bool:
    needed = (*_indexes(segment), segment.path) if is_whole else (segment.path,)
    if any(name not in descriptors for name in needed):
        return False
    status = os.fstat(descriptors[segment.path])
    is_active = segment.next_offset is None  # which may have grown
    is_same_size = is_active or status.st_size == segment.size_bytes
    return status.st_ino == segment.inode and is_same_size


def _open(name: str) -> int | None:
    for path in (name, f"{name}.deleted"):
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _read(name: str) -> bytes:
    """Of an active segment, whose broker may be writing the last entry: whole entries."""
    descriptor = _open(name)
    if descriptor is None:
        return b""
    with open(descriptor, "rb") as file:
        return whole_transaction_entries(file.read())


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
