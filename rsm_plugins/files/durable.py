"""File operations that differ between platforms: copies in the kernel, durable writes and
replacements, and errors.

Linux copies inside the kernel (and, on file systems with shared extents, without copying). On other
platforms, and where a file system refuses, the bytes pass through this process. Synchronous: the
callers run in threads.

An OSError of file work becomes one of kip405's errors, with what the operator can do. Almost every
answer of a file system is Unavailable: wait, repair the disk, and the same call succeeds. This
module must not know stores.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Busy, Internal, Invalid, RemoteStorageError, Unavailable

PIECE_BYTES = 1024 * 1024
_COPY_REFUSED = frozenset(
    {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
)

CopyPiece = Callable[[int, int, int, int, int], tuple[int, bytes]]


class SourceCut(Exception):
    """The source ended before the requested bytes; `copied_bytes` is what it had."""

    def __init__(self, copied_bytes: int) -> None:
        super().__init__(f"the source ended after {copied_bytes} bytes")
        self.copied_bytes = copied_bytes


def copy_bytes(
    source: int,
    position: int,
    size_bytes: int,
    destination: int,
    go_on: Callable[[], None] | None = None,
    *,
    way: CopyPiece | None = None,
) -> int:
    """Copy a range of one descriptor to the start of another; returns the CRC-32C of the stored
    bytes.

    Kernel-side copies are read back piece by piece while they are in the page cache. `go_on` is
    called between pieces and may raise. SourceCut if the source is too short, OSError as the system
    raises it.
    """
    copy_piece = platform_copy() if way is None else way
    crc = 0
    copied = 0
    while copied < size_bytes:
        if go_on is not None:
            go_on()
        piece = min(PIECE_BYTES, size_bytes - copied)
        try:
            count, stored = copy_piece(source, position + copied, destination, copied, piece)
        except OSError as error:
            if copy_piece is plain_copy or error.errno not in _COPY_REFUSED:
                raise
            count, stored = 0, b""
        if count == 0:
            if copy_piece is plain_copy:
                raise SourceCut(copied)
            copy_piece = plain_copy  # refused, or at an end of file that must be confirmed
            continue
        crc = crc32c(stored, crc)
        copied += count
    return crc


def platform_copy() -> CopyPiece:
    """The cheapest copy function of this platform."""
    return kernel_copy if hasattr(os, "copy_file_range") else plain_copy


def kernel_copy(
    source: int, source_position: int, destination: int, position: int, size_bytes: int
) -> tuple[int, bytes]:
    """Copy one piece by copy_file_range, then read it back from the destination."""
    count = os.copy_file_range(source, destination, size_bytes, source_position, position)
    return count, os.pread(destination, count, position) if count else b""


def plain_copy(
    source: int, source_position: int, destination: int, position: int, size_bytes: int
) -> tuple[int, bytes]:
    """Copy one piece through memory."""
    data = os.pread(source, size_bytes, source_position)
    write_at(destination, data, position)
    return len(data), data


def write_at(descriptor: int, data: ByteBuffer, position: int) -> None:
    """Write all of the bytes at a position, however many calls it takes."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written


def read_at(descriptor: int, position: int, size_bytes: int) -> bytes:
    """The bytes of a range, fewer only where the file ends."""
    pieces: list[bytes] = []
    while size_bytes > 0:
        data = os.pread(descriptor, size_bytes, position)
        if not data:
            break
        pieces.append(data)
        position += len(data)
        size_bytes -= len(data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_if_there(file: str, folder: int, most_bytes: int) -> bytes | None:
    """The beginning of a file of an open folder, links not followed; None: there is none."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return read_at(descriptor, 0, most_bytes)
    finally:
        os.close(descriptor)


def make_durable(descriptor: int) -> None:
    """fsync of a file or a directory, all the way to the medium (macOS needs its own call for
    that).
    """
    try:
        import fcntl

        full_sync = getattr(fcntl, "F_FULLFSYNC", None)
        if full_sync is not None:
            fcntl.fcntl(descriptor, full_sync)
            return
    except OSError:
        pass  # not every file system of macOS supports it
    os.fsync(descriptor)


def sync_path(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        make_durable(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file by one with this content: after a crash the old or the new one is there,
    whole. `sync_path` of the directory makes sure that it is the new one.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        make_durable(file.fileno())
    temporary.replace(path)


_GONE = "it is away: bring it back or mount it again; nothing is created in its stead"
_DENIED = "give the plugin's user the right to read and write there"

_HINTS: dict[int, str] = {
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.ENODEV: _GONE,
    errno.ENXIO: _GONE,
    errno.ENOTCONN: _GONE,
    errno.ESTALE: _GONE,
    errno.ENOSPC: "free space or enlarge the volume",
    errno.EDQUOT: "free space or raise the quota",
    errno.EROFS: "the volume is mounted read-only: mount it for writing",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EIO: "the medium fails: look at the system's log",
}
_BUSY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_INVALID = frozenset({errno.ENAMETOOLONG, errno.EOPNOTSUPP, errno.EFBIG, errno.ELOOP})
_OURS = frozenset({errno.EBADF, errno.EINVAL, errno.EISDIR, errno.EFAULT})


def error_of_os(error: OSError, operation: str, target: str) -> RemoteStorageError:
    """The error to raise from `error`; `operation` is a verb phrase, `target` its object."""
    reason = error.strerror or str(error)
    message = f"cannot {operation} {target}: {reason}"
    if error.errno in _BUSY:
        return Busy(message)
    if error.errno in _INVALID:
        return Invalid(message)
    if error.errno in _OURS:
        return Internal(message)
    hint = _HINTS.get(error.errno or 0)
    return Unavailable(f"{message}; {hint}" if hint else message)
