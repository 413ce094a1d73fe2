"""Scans the broker's log directories: thin IO, read-only, by polling.

The broker works in these directories meanwhile: files vanish (retention, topic deletion), appear
(roll) and are renamed. A scan that was overtaken is repeated; a vanished file is simply absent. Of
what a segment holds, the scanner caches only its newest timestamp and the epochs of batches below
the start of the log. Small files are read at each scan, and parsed where their bytes have changed.
It blocks: call it off the event loop.

A segment is closed when a later .log exists. The producer snapshot at that later base offset
belongs to its copy. Kafka writes the snapshot a moment after the new .log, but it may be missing
permanently: if the log is older than snapshots at every roll, or after files were lost. This module
must not know about the ledger, or whether any broker leads the partition. Sources: LocalLog.roll,
LogFileUtils and LogManager of Kafka.
"""

import enum
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kip405.checkpoints import (
    parse_leader_epochs,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kip405.errors import Corrupt, Invalid, NotFound, Unavailable
from kip405.ids import Uuid
from kip405.lineage import Lineage, merge
from kip405.segments import EpochEntry
from rlm.log_dir.epochs_below import EpochsBelow, SegmentFile

_SEGMENT = re.compile(r"([0-9]{20})\.(log|snapshot)")
_DIRECTORY = re.compile(r"(.+)-([0-9]+)")
_EPOCHS = "leader-epoch-checkpoint"
_METADATA = "partition.metadata"
_RECOVERY_POINT = "recovery-point-offset-checkpoint"
_CLEANER = "cleaner-offset-checkpoint"
_TIME_ENTRY = struct.Struct(">qi")
_TRIES = 3
_MAX_REMEMBERED = 100_000
_READ_BYTES = 64 * 1024
T = TypeVar("T")


class Closed(enum.Enum):
    """How far a segment is from being closed."""

    ACTIVE = "active"
    SNAPSHOT_MISSING = "snapshot missing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """One .log file; `next_offset` is the base offset of the following one, None for the active
    segment.

    `max_timestamp_ms` is the last entry of the time index, or the file's mtime where it has none
    (as Kafka does). `indexes_size_bytes` is .index, .timeindex and .txnindex together, read only
    for a closed segment of 0 bytes; None = not read, or one of them is missing.
    """

    base_offset: int
    next_offset: int | None
    closed: Closed
    size_bytes: int
    inode: int
    path: str
    max_timestamp_ms: int
    indexes_size_bytes: int | None = None

    @property
    def is_closed(self) -> bool:
        """Whether a later segment follows, its producer snapshot or not."""
        return self.closed is not Closed.ACTIVE

    def sibling(self, suffix: str) -> str:
        """Path of the file of the same base with another suffix (".index", ".txnindex", ...)."""
        return self.path.removesuffix(".log") + suffix

    @property
    def snapshot_path(self) -> str:
        """Producer state at the segment's end: the file Kafka uploads with it."""
        if self.next_offset is None:
            raise ValueError(f"the active segment {self.path} has no snapshot")
        return os.path.join(os.path.dirname(self.path), f"{self.next_offset:020d}.snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """One partition directory as it was during one scan.

    `topic_id` is None while partition.metadata is not written yet. `lineage` is what the epoch file
    says, and `epochs_below` are those of the batches below its first entry, and its own, in the
    segment that this lies in. `recovery_point` is the offset below which everything is flushed to
    disk, `cleaned_up_to` the offset below which the log cleaner has worked; None where the
    checkpoint of the log directory does not say.
    """

    topic: str
    partition: int
    topic_id: Uuid | None
    directory: str
    segments: tuple[LocalSegment, ...]
    lineage: Lineage
    recovery_point: int | None
    cleaned_up_to: int | None = None
    epochs_below: tuple[EpochEntry, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def whole_lineage(self) -> Lineage:
        """All that this log shows of its own lineage, also after a DeleteRecords into the middle of
        a segment (H8).
        """
        if not self.epochs_below:
            return self.lineage
        return merge(Lineage(self.epochs_below), self.lineage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stat:
    base_offset: int
    size_bytes: int
    inode: int
    mtime_ms: int


class _Parsed(Generic[T]):
    """What small files say, the same object for as long as their bytes are the same."""

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self._parse = parse
        self._known: dict[str, tuple[bytes, T]] = {}

    def of(self, path: str, data: bytes) -> T:
        """What these bytes of the file say; errors are those of `parse`."""
        known = self._known.get(path)
        if known is None or known[0] != data:
            found = data, self._parse(data)
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            known = self._known[path] = found
        return known[1]


class LogDirs:
    """All log.dirs of one broker."""

    def __init__(self, paths: Sequence[str]) -> None:
        if not paths:
            raise Invalid("log.dirs names no directory")
        self.paths = tuple(paths)
        self._timestamps: dict[tuple[str, _Stat], int] = {}
        self._topic_ids = _Parsed(parse_partition_metadata)
        self._lineages = _Parsed(parse_leader_epochs)
        self._checkpoints = _Parsed(parse_offset_checkpoint)
        self._epochs_below = EpochsBelow()

    def directory_of(self, topic: str, partition: int) -> str:
        """Where the partition is; NotFound if nowhere, Invalid if in two log dirs: which one is the
        broker's is not ours to guess (H13).
        """
        name = f"{topic}-{partition}"
        found = [
            directory for path in self.paths if os.path.isdir(directory := os.path.join(path, name))
        ]
        if not found:
            raise NotFound(f"{name} is in none of log.dirs {', '.join(self.paths)}")
        if len(found) > 1:
            raise Invalid(f"{name} is in {found[0]} and in {found[1]}")
        return found[0]

    def scan(self, topic: str, partition: int) -> PartitionLog:
        """The partition as it is now.

        NotFound: it is not here. Unavailable: the broker kept changing it under our eyes.
        """
        trouble: Exception | None = None
        for _ in range(_TRIES):
            directory = self.directory_of(topic, partition)
            try:
                return self._scan(directory, topic, partition)
            except (OSError, Corrupt) as error:
                trouble = error
        raise Unavailable(f"{topic}-{partition} cannot be read: {trouble}") from trouble

    def _scan(self, directory: str, topic: str, partition: int) -> PartitionLog:
        segments, snapshots = _segment_files(directory)
        if not segments:
            raise FileNotFoundError(f"{directory} has no segment")
        topic_id, lineage = self._topic_id(directory), self._lineage(directory)
        return PartitionLog(
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            directory=directory,
            segments=self._segments(directory, segments, snapshots),
            lineage=lineage,
            recovery_point=self._checkpoint(directory, _RECOVERY_POINT).get((topic, partition)),
            cleaned_up_to=self._checkpoint(directory, _CLEANER).get((topic, partition)),
            epochs_below=self._below(directory, segments, topic_id, lineage.first),
        )

    def _below(
        self,
        directory: str,
        segments: Sequence[_Stat],
        topic_id: Uuid | None,
        first: EpochEntry | None,
    ) -> tuple[EpochEntry, ...]:
        """The epochs below the epoch file's first entry, in the segment that this lies in; whole
        segments below it are not copied, and the broker soon deletes them.
        """
        if first is None:
            return ()
        begun = [one for one in segments if one.base_offset <= first.start_offset]
        if not begun or begun[-1].base_offset == first.start_offset:
            return ()
        base_offset, inode = begun[-1].base_offset, begun[-1].inode
        file = SegmentFile(_log_path(directory, base_offset), base_offset, inode, topic_id)
        return self._epochs_below.of(file, first)

    def _checkpoint(self, directory: str, name: str) -> Mapping[tuple[str, int], int]:
        """What a checkpoint of the partition directory's log dir says, by topic and partition.

        A broker makes the file when it starts and writes it when it has something to say; the
        cleaner's stays empty for as long as nothing was ever compacted. Written ones replace it
        whole. It is read each time and parsed when it has changed: it names all partitions.
        """
        path = os.path.join(os.path.dirname(directory), name)
        data = _read(path)
        return self._checkpoints.of(path, data) if data else {}

    def _topic_id(self, directory: str) -> Uuid | None:
        path = os.path.join(directory, _METADATA)
        data = _read(path)
        return None if data is None else self._topic_ids.of(path, data)

    def _lineage(self, directory: str) -> Lineage:
        path = os.path.join(directory, _EPOCHS)
        data = _read(path)
        # Before Kafka 4.0 a replica that has no record yet has an empty file.
        return self._lineages.of(path, data) if data else Lineage()

    def _segments(
        self, directory: str, segments: Sequence[_Stat], snapshots: frozenset[int]
    ) -> tuple[LocalSegment, ...]:
        nexts: list[int | None] = [segment.base_offset for segment in segments[1:]]
        return tuple(
            self._segment(directory, segment, next_offset, snapshots)
            for segment, next_offset in zip(segments, [*nexts, None], strict=True)
        )

    def _segment(
        self, directory: str, stat: _Stat, next_offset: int | None, snapshots: frozenset[int]
    ) -> LocalSegment:
        path = _log_path(directory, stat.base_offset)
        is_active = next_offset is None
        return LocalSegment(
            base_offset=stat.base_offset,
            next_offset=next_offset,
            closed=_closed(next_offset, snapshots),
            size_bytes=stat.size_bytes,
            inode=stat.inode,
            path=path,
            max_timestamp_ms=stat.mtime_ms if is_active else self._timestamp(path, stat),
            indexes_size_bytes=None if is_active or stat.size_bytes else _indexes_size(path),
        )

    def _timestamp(self, path: str, stat: _Stat) -> int:
        key = (path, stat)  # another file of this name may get the inode of the first
        if key not in self._timestamps:
            if len(self._timestamps) >= _MAX_REMEMBERED:
                self._timestamps.clear()
            found = _last_timestamp(path.removesuffix(".log") + ".timeindex")
            self._timestamps[key] = stat.mtime_ms if found is None else found
        return self._timestamps[key]


def sample(segment: LocalSegment) -> tuple[int, int] | None:
    """(inode, size) of the segment's file now, None if it is gone: compared around a copy (H13)."""
    try:
        status = os.stat(segment.path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size


def partitions_in(path: str) -> dict[tuple[str, int], str]:
    """Directory by (topic, partition) of one log dir; -delete, -future, -stray and foreign names
    are passed. Unavailable: it cannot be read.
    """
    try:
        with os.scandir(path) as entries:
            matches = [
                (found, entry.path)
                for entry in entries
                if (found := _DIRECTORY.fullmatch(entry.name)) is not None and entry.is_dir()
            ]
    except OSError as error:
        raise Unavailable(f"log dir {path} cannot be read: {error}") from error
    return {(found[1], int(found[2])): directory for found, directory in matches}


def _segment_files(directory: str) -> tuple[list[_Stat], frozenset[int]]:
    """Segments by base offset, and the bases of producer snapshots; deleted files do not match."""
    segments: list[_Stat] = []
    snapshots: set[int] = set()
    with os.scandir(directory) as entries:
        for entry in entries:
            found = _SEGMENT.fullmatch(entry.name)
            if found is None:
                continue
            if found[2] == "snapshot":
                snapshots.add(int(found[1]))
                continue
            status = entry.stat()
            segments.append(
                _Stat(
                    base_offset=int(found[1]),
                    size_bytes=status.st_size,
                    inode=status.st_ino,
                    mtime_ms=status.st_mtime_ns // 1_000_000,
                )
            )
    return sorted(segments, key=lambda segment: segment.base_offset), frozenset(snapshots)


def _log_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, f"{base_offset:020d}.log")


def _closed(next_offset: int | None, snapshots: frozenset[int]) -> Closed:
    if next_offset is None:
        return Closed.ACTIVE
    return Closed.CLOSED if next_offset in snapshots else Closed.SNAPSHOT_MISSING


def _last_timestamp(path: str) -> int | None:
    """Timestamp of the last whole entry of a time index, None where there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            entries = size // _TIME_ENTRY.size
            if not entries:
                return None
            file.seek((entries - 1) * _TIME_ENTRY.size)
            entry = file.read(_TIME_ENTRY.size)
    except FileNotFoundError:
        return None
    timestamp: int = _TIME_ENTRY.unpack(entry)[0]
    return timestamp if timestamp > 0 else None


def _indexes_size(path: str) -> int | None:
    """Bytes of all indexes of a segment; None where one that must be there is not."""
    stem = path.removesuffix(".log")
    try:
        required = os.path.getsize(stem + ".index") + os.path.getsize(stem + ".timeindex")
    except FileNotFoundError:
        return None
    return required + len(_read(stem + ".txnindex") or b"")


def _read(path: str) -> bytes | None:
    """The whole file; None where it is gone. Four system calls, which is what a scan consists of:
    a file object of Python would take three times as long.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.read(descriptor, _READ_BYTES)
        while more := os.read(descriptor, _READ_BYTES):
            data += more
        return data
    finally:
        os.close(descriptor)
