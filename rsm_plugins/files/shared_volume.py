"""Proves that plugin and service see the same files, before a range is passed as (path, range).

For fetches, the plugin writes a nonce beside its objects and the client reads it. For copies, the
client must not write into the folder (the service only reads log.dirs), so it asks the plugin what
it sees under a path and compares. Synchronous: the callers run in threads.
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kip405.crc import crc32c
from kip405.segments import FileSlice
from rsm_plugins.files.durable import error_of_os, read_at
from rsm_plugins.files.store_tree import TEMPORARY_SUFFIX
from rsm_plugins.layout.keys import IDENTITY_NAME

HEAD_BYTES = 64 * 1024
NONCE_MAX_BYTES = 256
_READ = os.O_RDONLY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """A file as one side sees it: its whole size, and the CRC-32C of the slice's first 64 KiB."""

    file_size_bytes: int
    head_crc32c: int


class ProbeFile:
    """The plugin's file with the nonce; written at the first request, and again if it has
    vanished.
    """

    def __init__(self, folder: Path, nonce: str) -> None:
        self._path = folder / f".probe-{nonce}{TEMPORARY_SUFFIX}"
        self._identity = folder / IDENTITY_NAME
        self.nonce = nonce

    def ensure(self) -> str | None:
        """The file's path, None if it cannot be written now: then ranges are sent as bytes."""
        try:
            self._identity.stat()  # a mount point without its volume must stay empty
            if read_nonce(str(self._path)) != self.nonce:
                self._path.write_text(self.nonce, encoding="ascii")
            else:
                os.utime(self._path)
        except OSError:
            return None
        return str(self._path)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def read_nonce(path: str) -> str | None:
    """The nonce in the probe file, None if this side cannot read it."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        return read_at(descriptor, 0, NONCE_MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_head(file_slice: FileSlice) -> FileHead:
    """The file as this side sees it; OSError as the system raises it, also for a file that is not
    regular.
    """
    descriptor = os.open(file_slice.path, _READ | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{file_slice.path} is not a regular file")
        head = read_at(descriptor, file_slice.position, min(HEAD_BYTES, file_slice.size_bytes))
    finally:
        os.close(descriptor)
    return FileHead(file_size_bytes=status.st_size, head_crc32c=crc32c(head))


class CallersFolders:
    """The folders whose files a plugin may read or write at a caller's request; None = every
    folder.
    """

    def __init__(self, folders: tuple[Path, ...] | None) -> None:
        self._folders = (
            None if folders is None else tuple(os.path.realpath(folder) for folder in folders)
        )

    def allows(self, path: str) -> bool:
        """Whether the file is below one of the folders, with symbolic links resolved."""
        if self._folders is None:
            return True
        real = os.path.realpath(path)
        return any(real.startswith(folder.rstrip("/") + "/") for folder in self._folders)


def read_chunk(path: str, position: int, size_bytes: int) -> bytes:
    """The bytes of a range, fewer if the file ends. FileNotFoundError is not translated, because
    only the store knows its meaning; other errors are.
    """
    try:
        descriptor = os.open(path, _READ)
        try:
            return read_at(descriptor, position, size_bytes)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise error_of_os(error, "read", path) from error
