"""A disk below the remote index files that fails, or where the process ends, after some writes."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlm.reading import remote_index_file


class Killed(BaseException):
    """The process ended here."""


class _FailingOs:
    def __init__(self, rng: random.Random, error: BaseException, changes: int) -> None:
        self._rng, self._error, self._left = rng, error, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        if self._left <= 0:
            part = self._rng.randrange(max(len(data), 1))
            os.pwrite(descriptor, data[:part], position)
        self._count()
        return os.pwrite(descriptor, data, position)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._count()
        os.ftruncate(descriptor, size)

    def truncate(self, path: str, size: int) -> None:
        self._count()
        os.truncate(path, size)

    def _count(self) -> None:
        if self._left <= 0:
            raise self._error
        self._left -= 1


@contextmanager
def killed_after(rng: random.Random, changes: int) -> Iterator[None]:
    """The process ends at the change of a file that follows so many, in the middle of a write."""
    try:
        with _failing(_FailingOs(rng, Killed(), changes)):
            yield
    except Killed:
        pass


@contextmanager
def full_after(rng: random.Random, changes: int) -> Iterator[None]:
    """So many changes of files succeed; of the next write a part does, and of those behind it."""
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with _failing(_FailingOs(rng, error, changes)):
        yield


@contextmanager
def _failing(disk: _FailingOs) -> Iterator[None]:
    module = vars(remote_index_file)
    before = module["os"]
    module["os"] = disk
    try:
        yield
    finally:
        module["os"] = before
