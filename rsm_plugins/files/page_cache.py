"""Keeps copies from pushing other data out of the page cache: a copy leaves it as it found it.

A backlog is read once and written once. In the page cache it would take the place of what consumers
are about to read. Where the platform has no such calls, or a file system refuses them, nothing is
done. Synchronous: callers run in threads.
"""

import os
from collections.abc import Callable
from contextlib import suppress

_SAMPLES = 16
Read = Callable[[int, int], None]
"""Reads a byte of a descriptor at a position; BlockingIOError where it is not in the page cache."""


class PageCache:
    """The page cache of this machine; the functions are replaced in tests."""

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or _read_cached

    def holds(self, path: str) -> bool:
        """Whether it holds some of the file, by samples; True where that cannot be known."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            size_bytes = os.fstat(descriptor).st_size
            return any(
                self._holds_byte(descriptor, size_bytes * sample // _SAMPLES)
                for sample in range(_SAMPLES)
            )
        finally:
            os.close(descriptor)

    def _holds_byte(self, descriptor: int, position: int) -> bool:
        try:
            self._read(descriptor, position)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def drop(self, path: str) -> None:
        """Let go of a file that is not needed soon; a file that is gone needs nothing."""
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                drop_written(descriptor)
            finally:
                os.close(descriptor)


def drop_written(descriptor: int) -> None:
    """Let go of a file whose bytes are on the medium."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _read_cached(descriptor: int, position: int) -> None:
    if not hasattr(os, "RWF_NOWAIT"):
        raise OSError("this platform has no reads that wait for no medium")
    os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
