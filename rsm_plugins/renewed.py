"""A value made of files that others replace during operation: certificates, tokens.

The files are checked when the value is requested, and read only if one of them has changed. If they
cannot be used, the former value stays in force, so that an incomplete renewal ends nothing.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from kip405.errors import Invalid
from rsm_plugins.event_log import EventLog

T = TypeVar("T")
_Stamp = tuple[tuple[int, int, int] | None, ...]
log = EventLog(__name__)


class Renewed(Generic[T]):
    """`make` reads the files, and raises Invalid if it cannot. At first the caller gets this error;
    later it is logged, once for each change.
    """

    def __init__(self, files: Sequence[Path], make: Callable[[], T]) -> None:
        self._files = tuple(files)
        self._make = make
        self._stamp = _stamp_of(self._files)
        self._value = make()

    def current(self) -> T:
        """The value of the files as they are now; the same object until they change."""
        stamp = _stamp_of(self._files)
        if stamp == self._stamp:
            return self._value
        self._stamp = stamp  # taken before reading: what changes meanwhile is read again
        names = [str(path) for path in self._files]
        try:
            self._value = self._make()
        except Invalid as error:
            log.warning("renewal_failed", files=names, error=str(error))
        else:
            log.info("renewed", files=names)
        return self._value


def _stamp_of(files: Sequence[Path]) -> _Stamp:
    return tuple(_one(path) for path in files)


def _one(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
