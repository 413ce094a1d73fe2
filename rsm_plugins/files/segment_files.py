"""The files of a plugin call: the segment that a copy reads, and the range that a fetch writes.

A copy reads a closed segment in the broker's log directory, which may vanish at any time. Its
errors do not mean what those of the store mean: a vanished file is Fenced, because the evidence for
the plan changed. A log that arrives as bytes is first written to a spool file, for stores that need
a file; the number of these files is bounded.

Fetched ranges of stores whose objects are not files reach a client on the same machine through
scratch files. The client creates the file, writes a nonce at its beginning and names both. A plugin
that finds the nonce there sees the client's file, and writes the range behind the nonce. So every
transfer proves itself, and a plugin writes only into files that were created for it. All functions
that touch a file are synchronous, and their callers run them in threads.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kip405.crc import ByteBuffer
from kip405.errors import Busy, Corrupt, Fenced, Invalid, NotFound, Unavailable
from kip405.segments import FileSlice
from rsm_plugins.files.durable import error_of_os, read_at, write_at
from rsm_plugins.files.shared_volume import FileHead, read_head
from rsm_plugins.files.store_tree import temporary_name
from rsm_plugins.threads import FileThreads

_READ = os.O_RDONLY | os.O_CLOEXEC
SOURCE_PIECE_BYTES = 256 * 1024


@contextmanager
def source_errors(path: str) -> Iterator[None]:
    """OSError of a source -> Fenced where it is gone, Invalid where we may not read it."""
    try:
        yield
    except FileNotFoundError as error:
        raise Fenced(f"the file to copy, {path}, is gone") from error
    except PermissionError as error:
        raise Invalid(f"the file to copy, {path}, is not readable by this process") from error
    except OSError as error:
        raise error_of_os(error, "read the file to copy,", path) from error


def open_source(path: str) -> int:
    """A descriptor for reading."""
    with source_errors(path):
        return os.open(path, _READ)


def source_head(log: FileSlice) -> FileHead:
    """What this side sees of the file."""
    with source_errors(log.path):
        return read_head(log)


def source_chunk(log: FileSlice, position: int, size_bytes: int) -> bytes:
    """The bytes at a position of the slice; Fenced where the file was cut short."""
    descriptor = open_source(log.path)
    try:
        with source_errors(log.path):
            data = read_at(descriptor, log.position + position, size_bytes)
    finally:
        os.close(descriptor)
    if len(data) != size_bytes:
        raise Fenced(f"the file to copy, {log.path}, was cut short")
    return data


def source_pieces(source: FileSlice, position: int, size_bytes: int) -> Iterator[bytes]:
    """The bytes at a position of the slice, from an open file; Fenced where it is cut short."""
    end = position + size_bytes
    descriptor = open_source(source.path)
    try:
        with source_errors(source.path):
            while position < end:
                at = source.position + position
                piece = read_at(descriptor, at, min(SOURCE_PIECE_BYTES, end - position))
                if not piece:
                    raise Fenced(
                        f"{source.path} has only {position} of {source.size_bytes} bytes left to "
                        "copy"
                    )
                position += len(piece)
                yield piece
    finally:
        os.close(descriptor)


SUFFIX = ".rlm-scratch"
NONCE_BYTES = 16
DATA_POSITION = 4096
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchFile:
    """The file for a range, as the client names it."""

    path: str
    nonce: bytes = field(repr=False)
    position: int
    size_bytes: int


def put(scratch: ScratchFile, data: ByteBuffer) -> bool:
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


class Keeper:
    """Says by its end that nobody reads a lent file any more."""

    __slots__ = ("__weakref__",)


class Slot:
    """One scratch file of a client, used for one fetch after another."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        """OSError where the file cannot be made."""
        nonce = os.urandom(NONCE_BYTES)
        path = folder / f"{nonce.hex()}{SUFFIX}"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.is_lent = False
        self.file = ScratchFile(
            path=str(path), nonce=nonce, position=DATA_POSITION, size_bytes=size_bytes
        )
        try:
            write_at(self._descriptor, nonce, 0)
        except OSError:
            self.remove()
            raise

    def filled(self, size_bytes: int, keeper: Keeper) -> FileSlice:
        """What a plugin has put there, to be read while the keeper is held; Corrupt where it is
        less than the plugin says.
        """
        held_bytes = max(os.fstat(self._descriptor).st_size - self.file.position, 0)
        if held_bytes < size_bytes:
            raise Corrupt(f"{self.file.path} holds {held_bytes} of {size_bytes} bytes")
        return FileSlice(
            path=self.file.path,
            position=self.file.position,
            size_bytes=size_bytes,
            keeper=keeper,
        )

    def remove(self) -> None:
        """A plugin that still has it open writes to a file that is never read."""
        os.close(self._descriptor)
        Path(self.file.path).unlink(missing_ok=True)


SPOOLED_COPIES_DEFAULT = 8


class SpoolFile:
    """One file that is written in order."""

    def __init__(self, path: Path, threads: FileThreads) -> None:
        self.path = path
        self.size_bytes = 0
        self._threads = threads
        self._is_removed = False

    async def append(self, chunk: bytes) -> None:
        """Unavailable where the disk is full."""
        await self._threads.run(self._write, chunk)
        self.size_bytes += len(chunk)

    def _write(self, chunk: bytes) -> None:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if self._is_removed:  # the writer was cancelled before this thread began
                    self.path.unlink(missing_ok=True)
                    return
                write_at(descriptor, chunk, self.size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise error_of_os(error, "write the spool file", str(self.path)) from error

    def remove(self) -> None:
        """For good, also where a write that was given up is still to come."""
        self._is_removed = True
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class Spool:
    """A folder of spool files; their names end like those of all temporary files, so that the sweep
    finds them.
    """

    def __init__(
        self,
        folder: Path,
        threads: FileThreads,
        max_files: int = SPOOLED_COPIES_DEFAULT,
        *,
        needed: Path | None = None,
    ) -> None:
        self._folder = folder
        self._threads = threads
        self._max_files = max_files
        self._needed = needed
        self._files = 0

    @asynccontextmanager
    async def file(self) -> AsyncIterator[SpoolFile]:
        """A fresh file, removed at the end.

        Busy where too many copies arrive as bytes already, Unavailable while the needed file is
        away: nothing is written into a mount point without its volume.
        """
        if self._needed is not None and not await self._threads.run(self._needed.exists):
            raise Unavailable(f"{self._needed} is not there: the store is away or not yet created")
        if self._files >= self._max_files:
            raise Busy(f"{self._files} copies arrive as bytes already; come back later")
        self._files += 1
        spooled = SpoolFile(self._folder / temporary_name("spool"), self._threads)
        try:
            yield spooled
        finally:
            self._files -= 1
            spooled.remove()


def read_slice(found: FileSlice) -> bytes:
    """The bytes of a fetch that was answered with a slice of a file. NotFound: the file is gone.
    Unavailable: it cannot be read, or it was only lent and is gone.
    """
    try:
        descriptor = os.open(found.path, _READ)
        try:
            return os.pread(descriptor, found.size_bytes, found.position)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        kind = NotFound if found.keeper is None else Unavailable  # one lent is no object of a store
        raise kind(f"{found.path} is gone") from error
    except OSError as error:
        raise Unavailable(f"cannot read {found.path}: {error.strerror}") from error
