"""The file a copy reads from: a closed segment in the broker's log directory, which may vanish at
any time.

Its errors mean something else than those of the store: gone is Fenced, because the evidence behind
the plan changed. Synchronous: the callers run in threads.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kip405.errors import Fenced, Invalid
from kip405.segments import FileSlice
from rsm_plugins.durable_files import read_at
from rsm_plugins.os_errors import error_of_os
from rsm_plugins.shared_volume import FileHead, read_head

_READ = os.O_RDONLY | os.O_CLOEXEC


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
