"""Objects of Pinterest's uploader in a directory: a bucket that is mounted, or a copy of it."""

import os
import stat as stat_modes
from collections.abc import AsyncIterator
from pathlib import Path

from kip405.contracts import StoredObject
from kip405.errors import NotFound
from kip405.segments import ByteRange
from rsm_plugins.files.durable import error_of_os, read_at
from rsm_plugins.layout.keys import check_prefix
from rsm_plugins.threads import FileThreads

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_READ_BYTES = 64 * 1024 * 1024
"""Of an object that is read whole: an index, or a watermark."""


class LocalUploadedObjects:
    """See UploadedObjects; below `root/prefix`."""

    def __init__(self, root: Path, prefix: str, threads: FileThreads) -> None:
        self._root = root
        self._base = root / check_prefix(prefix) if prefix else root
        self._threads = threads

    async def read(self, name: str) -> bytes:
        """See UploadedObjects."""
        return await self.read_range(name, ByteRange(start=0, end=_MOST_READ_BYTES))

    async def read_range(self, name: str, wanted: ByteRange) -> bytes:
        """See UploadedObjects."""
        return await self._threads.run(self._read, name, wanted)

    def _read(self, name: str, wanted: ByteRange) -> bytes:
        try:
            descriptor = os.open(self._base / name, _READ)
            try:
                return read_at(descriptor, wanted.start, wanted.size_bytes)
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise NotFound(f"{self._base / name} is not there") from error
        except OSError as error:
            raise error_of_os(error, "read", str(self._base / name)) from error

    async def size_of(self, name: str) -> int | None:
        """See UploadedObjects."""
        return await self._threads.run(self._size_of, name)

    def _size_of(self, name: str) -> int | None:
        try:
            found = os.stat(self._base / name, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise error_of_os(error, "look for", str(self._base / name)) from error
        return found.st_size if stat_modes.S_ISREG(found.st_mode) else None

    async def listed(self, folder: str) -> AsyncIterator[StoredObject]:
        """See UploadedObjects; `folder` ends with a slash."""
        for found in await self._threads.run(self._listed, folder):
            yield found

    def _listed(self, folder: str) -> list[StoredObject]:
        found: list[StoredObject] = []
        try:
            os.stat(self._root)  # a folder that is away is not empty
            if (self._base / folder).exists():
                for at, _, files in os.walk(self._base / folder, onerror=_raised):
                    found += [self._stored(Path(at) / file) for file in files]
        except OSError as error:
            raise error_of_os(error, "list", error.filename or str(self._root)) from error
        return sorted(found, key=lambda one: one.name)

    def _stored(self, path: Path) -> StoredObject:
        status = os.stat(path, follow_symlinks=False)
        return StoredObject(
            name=path.relative_to(self._base).as_posix(),
            size_bytes=status.st_size,
            modified_ms=status.st_mtime_ns // 1_000_000,
        )


def _raised(error: OSError) -> None:
    raise error
