"""OSError of file work -> our kinds of error, with what the operator can do about it.

Almost everything a file system answers is Unavailable: wait, mend the disk, and the same call
succeeds.
"""

import errno

from kip405.errors import Busy, Internal, Invalid, RemoteStorageError, Unavailable

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


def error_of_os(error: OSError, operation: str, place: str) -> RemoteStorageError:
    """The error to raise from `error`; `operation` is a verb phrase, `place` its object."""
    reason = error.strerror or str(error)
    message = f"cannot {operation} {place}: {reason}"
    if error.errno in _BUSY:
        return Busy(message)
    if error.errno in _INVALID:
        return Invalid(message)
    if error.errno in _OURS:
        return Internal(message)
    hint = _HINTS.get(error.errno or 0)
    return Unavailable(f"{message}; {hint}" if hint else message)
