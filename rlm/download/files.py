"""What a store answers with, as bytes: a slice of a shared file is read."""

import os

from kip405.errors import NotFound, Unavailable
from kip405.segments import FileSlice
from rsm_plugins.threads import Threads


async def slice_bytes(found: bytes | FileSlice, threads: Threads) -> bytes:
    """NotFound where the file is gone, Unavailable where it cannot be read."""
    return await threads.run(_read, found) if isinstance(found, FileSlice) else bytes(found)


def _read(found: FileSlice) -> bytes:
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, found.size_bytes, found.position)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise NotFound(f"{found.path} is gone") from error
    except OSError as error:
        raise Unavailable(f"cannot read {found.path}: {error.strerror}") from error
