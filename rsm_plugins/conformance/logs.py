"""Logs of whole record batches, of any size that batches can have.

A store that keeps a log as it is stores any bytes. In other layouts it stores batches, which it
finds by their lengths, so the logs of such cases are batches of random records.
"""

import os
import struct
import zlib

from kip405.batches import HEADER_BYTES
from kip405.crc import crc32c

LEAST_BYTES = 26
"""The smallest batch of any format."""
_LARGEST_BYTES = 16_000


def random_batches(size_bytes: int, start_offset: int) -> bytes:
    """Batches with ascending offsets that have so many bytes together. ValueError for 1 to 25."""
    if 0 < size_bytes < LEAST_BYTES:
        raise ValueError(f"no batch has {size_bytes} bytes")
    batches: list[bytes] = []
    while size_bytes:
        wanted = min(size_bytes, _between(HEADER_BYTES, _LARGEST_BYTES))
        if 0 < size_bytes - wanted < HEADER_BYTES:
            wanted = size_bytes
        batches.append(_batch(start_offset, wanted))
        start_offset += _between(1, 50)
        size_bytes -= wanted
    return b"".join(batches)


def _between(least: int, most: int) -> int:
    return least + int.from_bytes(os.urandom(4)) % (most - least + 1)


def _batch(offset: int, size_bytes: int) -> bytes:
    if size_bytes < HEADER_BYTES:
        return _old_message(offset, size_bytes)
    tail = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
    tail += os.urandom(size_bytes - HEADER_BYTES)
    return struct.pack(">qiibI", offset, size_bytes - 12, 0, 2, crc32c(tail)) + tail


def _old_message(offset: int, size_bytes: int) -> bytes:
    """Magic 0: magic, attributes, key of no size, value."""
    value = os.urandom(size_bytes - LEAST_BYTES)
    tail = struct.pack(">bbii", 0, 0, -1, len(value)) + value
    return struct.pack(">qiI", offset, size_bytes - 12, zlib.crc32(tail)) + tail
