"""A folder for temporary files of one process: locked while the process runs, removed afterwards.

A folder that a killed process left is removed when the next folder is created beside it: its lock
is free. Synchronous: the callers run in threads.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from kip405.errors import Invalid, RemoteStorageError, Unavailable
from rsm_plugins.files.durable import error_of_os

_PREFIX = "rlm-own-"
_ATTEMPTS = 20


class OwnedFolder:
    """Created by `create` or `create_private`; the caller of these closes it."""

    def __init__(self, path: Path, lock: int, private: Path | None = None) -> None:
        self.path = path
        self._lock = lock
        self._private = private

    @classmethod
    def create(cls, base: Path) -> "OwnedFolder":
        """A fresh folder (mode 0700) below an existing one, after removing those of dead processes.

        Unavailable where that cannot be done now.
        """
        try:
            return cls(*_made(base))
        except OSError as error:
            raise _failed(error, base) from error

    @classmethod
    def create_private(cls, parent: Path | None = None) -> "OwnedFolder":
        """The same below `private_base`, which goes with the last folder in it."""
        for _ in range(_ATTEMPTS):
            base = private_base(parent)
            try:
                return cls(*_made(base), private=base)
            except FileNotFoundError:
                continue  # the last of the other processes removed the base too
            except OSError as error:
                raise _failed(error, base) from error
        raise Unavailable("no folder for temporary files: others keep removing it")

    def close(self) -> None:
        """Remove it with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)
        if self._private is not None:
            with suppress(OSError):  # other processes still use it
                self._private.rmdir()


def _made(base: Path) -> tuple[Path, int]:
    _sweep(base)
    for _ in range(_ATTEMPTS):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        lock = _lock(path)
        if lock is not None:
            return path, lock
    raise OSError(errno.EAGAIN, "others keep removing it")


def _failed(error: OSError, base: Path) -> RemoteStorageError:
    return error_of_os(error, "make a folder for temporary files in", str(base))


def private_base(parent: Path | None = None) -> Path:
    """A folder of this user alone, below the system's folder for temporary files by default.

    Invalid if the name belongs to another user.
    """
    path = (parent or Path(tempfile.gettempdir())) / f"rsm-plugin-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    except OSError as error:
        raise error_of_os(error, "make", str(path)) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Invalid(f"{path} is not a folder that only this user may use: remove it")
    return path


def _lock(path: Path) -> int | None:
    """Descriptor that holds the lock; None where another process has it, or has removed the folder
    just now.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.lstat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _sweep(base: Path) -> None:
    for path in base.glob(f"{_PREFIX}*"):
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
