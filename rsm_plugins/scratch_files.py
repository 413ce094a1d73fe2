"""Scratch files: how fetched ranges of stores whose objects are no files get to a client on the
same machine.

The client makes the file, begins it with a nonce and names both; a plugin that finds the nonce
there sees the client's file and puts the range behind it. So every hand-over proves itself, and a
plugin writes only into files made for that. Synchronous: the callers run in threads.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from kip405.errors import Corrupt
from rsm_plugins.durable_files import read_at, write_at

SUFFIX = ".rlm-scratch"
NONCE_BYTES = 16
DATA_POSITION = 4096
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFile:
    """Where a range may be put, as the client names it."""

    path: str
    nonce: bytes = field(repr=False)
    position: int
    size_bytes: int


def put(scratch: ScratchFile, data: bytes) -> bool:
    """Write the bytes; False where they do not fit, or the file is not what it is said to be, or
    cannot be written now: then they travel as bytes.
    """
    if (
        len(data) > scratch.size_bytes
        or len(scratch.nonce) != NONCE_BYTES
        or scratch.position < NONCE_BYTES
        or not scratch.path.endswith(SUFFIX)
        or not scratch.path.startswith("/")
    ):
        return False
    try:
        descriptor = os.open(scratch.path, _OPEN)
        try:
            if not _is_the_callers(descriptor, scratch.nonce):
                return False
            write_at(descriptor, data, scratch.position)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return False
    return True


def _is_the_callers(descriptor: int, nonce: bytes) -> bool:
    found = os.fstat(descriptor)
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_nlink == 1
        and os.pread(descriptor, NONCE_BYTES, 0) == nonce
    )


class Slot:
    """One scratch file of a client's, used for one fetch after the other."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        """OSError where the file cannot be made."""
        nonce = os.urandom(NONCE_BYTES)
        path = folder / f"{nonce.hex()}{SUFFIX}"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.was_read = False
        self.file = ScratchFile(
            path=str(path), nonce=nonce, position=DATA_POSITION, size_bytes=size_bytes
        )
        try:
            write_at(self._descriptor, nonce, 0)
        except OSError:
            self.remove()
            raise

    def read(self, size_bytes: int) -> bytes:
        """What a plugin has put there; Corrupt where it is less than it says."""
        data = read_at(self._descriptor, self.file.position, size_bytes)
        if len(data) != size_bytes:
            raise Corrupt(f"{self.file.path} holds {len(data)} of {size_bytes} bytes")
        self.was_read = True
        return data

    def remove(self) -> None:
        """Whoever still has it open writes to nothing that anybody reads."""
        os.close(self._descriptor)
        Path(self.file.path).unlink(missing_ok=True)
