"""The temporary folder of a Spark of our own; those of processes that were killed are removed.

A folder is locked (flock of the folder itself) for as long as the process that made it lives: the
kernel lets go of the lock however that ends, and no process id has to be guessed at. Whoever makes
the next one in the same place removes those that nobody holds. Must not know Spark.
"""

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PREFIX = "kafka-rlm-spark-session-"


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """A folder of this process's own."""

    path: Path
    _held: int
    """A descriptor of the folder, not inherited by other programs; its lock is ours."""

    @classmethod
    def made(cls, parent: Path | None = None) -> Self:
        """A new one in `parent` (default: where temporary files go); dead ones there go."""
        parent = parent or Path(tempfile.gettempdir())
        _sweep(parent)
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            held = _held(path)
            if held is not None:
                return cls(path, held)

    def remove(self) -> None:
        """Gone with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _held(path: Path) -> int | None:
    """A descriptor with the lock; None where a sweep came between making and locking."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        if _locks(held) and os.path.samestat(path.lstat(), os.fstat(held)):
            return held
    except FileNotFoundError:
        pass
    os.close(held)
    return None


def _locks(held: int) -> bool:
    """Whether nobody else has it. True also where there are no such locks: nobody sweeps there."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _sweep(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, no folder, or gone meanwhile
            continue
        try:
            if os.fstat(held).st_uid == os.getuid():
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # somebody lives in it
            continue
        finally:
            os.close(held)
