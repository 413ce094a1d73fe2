"""CRC-32C over any buffer, whole and per chunk.

google_crc32c accepts only `bytes`, so views are copied piece by piece (a piece stays in the
processor's cache: measured 11 GB/s against 16-23 GB/s without the copy). This module must not know
what the bytes mean.
"""

from collections.abc import Iterator

import google_crc32c

ByteBuffer = bytes | bytearray | memoryview

# Large enough to make the cost of a call negligible, small enough to stay in the second level cache
# and to let other threads run in between: google_crc32c holds the GIL (13 us a piece).
_PIECE_BYTES = 256 * 1024


def crc32c(data: ByteBuffer, crc: int = 0) -> int:
    """CRC-32C of `data`, continuing from `crc`: crc32c(a + b) == crc32c(b, crc32c(a))."""
    if len(data) <= _PIECE_BYTES:
        return int(google_crc32c.extend(crc, bytes(data)))
    for piece in _pieces(data):
        crc = google_crc32c.extend(crc, piece)
    return crc


def _pieces(data: ByteBuffer) -> Iterator[bytes]:
    view = memoryview(data)
    for position in range(0, len(view), _PIECE_BYTES):
        yield bytes(view[position : position + _PIECE_BYTES])


class ChunkedCrc32c:
    """CRC-32C of a stream as a whole and of each chunk of `chunk_size_bytes`, for feeds of any
    size.
    """

    def __init__(self, chunk_size_bytes: int) -> None:
        if chunk_size_bytes <= 0:
            raise ValueError(f"chunk size {chunk_size_bytes} is not positive")
        self._chunk_size_bytes = chunk_size_bytes
        self._whole = 0
        self._chunk = 0
        self._left_bytes = chunk_size_bytes
        self._closed: list[int] = []
        self.size_bytes = 0

    def update(self, data: ByteBuffer) -> None:
        """Add the next bytes of the stream."""
        view = memoryview(data)
        position = 0
        while position < len(view):
            piece = bytes(view[position : position + min(self._left_bytes, _PIECE_BYTES)])
            self._add(piece)
            position += len(piece)

    def _add(self, piece: bytes) -> None:
        self._whole = google_crc32c.extend(self._whole, piece)
        self._chunk = google_crc32c.extend(self._chunk, piece)
        self.size_bytes += len(piece)
        self._left_bytes -= len(piece)
        if self._left_bytes == 0:
            self._closed.append(self._chunk)
            self._chunk = 0
            self._left_bytes = self._chunk_size_bytes

    @property
    def whole(self) -> int:
        return self._whole

    @property
    def chunks(self) -> tuple[int, ...]:
        """One per chunk so far; the last may be short. None for an empty stream."""
        if self._left_bytes == self._chunk_size_bytes:
            return tuple(self._closed)
        return (*self._closed, self._chunk)
