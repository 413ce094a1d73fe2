"""The folder of the disk cache: locked by one service, scanned at start, read and written by file.

Blocking: runs in threads. A file appears whole under its name or not at all; nothing is synced, the
checksum tells after a crash. OSError is for the caller to judge.
"""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlm.cache.chunk_file import HEADER_BYTES, chunk_of, file_name, header_of, key_of
from rlm.cache.chunks import ChunkKey

_LOCK = "lock"
_TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A chunk found at start."""

    key: ChunkKey
    size_bytes: int
    modified_ns: int


class ChunkFolder:
    """Files of chunks below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: int | None = None

    def open(self) -> tuple[KeptFile, ...]:
        """Lock the folder and list its chunks, oldest first; what is no chunk's file and ours to
        make is removed. BlockingIOError: another service has it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = tuple(self._scan())
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        return tuple(sorted(found, key=lambda one: one.modified_ns))

    def _scan(self) -> Iterator[KeptFile]:
        for part in self._folder.glob("[0-9a-f][0-9a-f]"):
            with os.scandir(part) as entries:
                for entry in entries:
                    key = key_of(entry.name)
                    if key is not None:
                        known = entry.stat(follow_symlinks=False)
                        yield KeptFile(
                            key=key, size_bytes=known.st_size, modified_ns=known.st_mtime_ns
                        )
                    elif entry.name.endswith(_TEMPORARY):
                        os.unlink(entry.path)

    def close(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self, key: ChunkKey) -> bytes | None:
        """The chunk as it was written; None where the file is gone, or damaged (then removed)."""
        path = self._folder / file_name(key)
        try:
            with path.open("rb", buffering=0) as file:
                header = file.read(HEADER_BYTES)
                data = file.read()
        except FileNotFoundError:
            return None
        found = chunk_of(key, header, data)
        if found is None:
            path.unlink(missing_ok=True)
        return found

    def write(self, key: ChunkKey, data: bytes) -> None:
        """Write the chunk's file, whole or not at all."""
        path = self._folder / file_name(key)
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(path.name + _TEMPORARY)
        try:
            with temporary.open("wb", buffering=0) as file:
                for piece in (header_of(key, data), data):
                    _write_all(file.fileno(), piece)
            temporary.replace(path)
        except OSError:
            _unlink_if_possible(temporary)
            raise

    def remove(self, key: ChunkKey) -> None:
        """Remove the chunk's file; one that is gone already is fine."""
        (self._folder / file_name(key)).unlink(missing_ok=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _unlink_if_possible(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # the disk is as broken as the caller is about to learn
