"""Unix sockets below folders whose path is too long for a socket address (about 100 bytes)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_BYTES = 100


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address of the socket at `path`, for as long as the block runs: the path itself, or one by
    a descriptor of its folder (Linux). OSError: the folder is not there.
    """
    if len(os.fsencode(path)) <= _MOST_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
