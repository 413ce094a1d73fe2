"""CRC-32C over any buffer, whole and per chunk.

The checksum of a whole is computed from those of its parts, so that no byte is read twice: that of
`a + b` is the one of `a` as a polynomial, multiplied by x to the number of bits of `b`, plus that
of `b`. This module must not know what the bytes mean.
"""

from functools import lru_cache

import crc32c as _library

ByteBuffer = bytes | bytearray | memoryview

# A thread that holds the GIL from call to call makes an event loop wait for the interpreter's
# switch interval, 5 ms, each time it wakes up; below this size a call is too short to matter.
_RELEASE_FROM_BYTES = 4096


def crc32c(data: ByteBuffer, crc: int = 0) -> int:
    """CRC-32C of `data`, continuing from `crc`: crc32c(a + b) == crc32c(b, crc32c(a)).

    Other threads run meanwhile, unless the data is very short: nobody may change it.
    """
    return _library.crc32c(data, crc, len(data) >= _RELEASE_FROM_BYTES)


def joined_crc32c(first: int, second: int, second_bytes: int) -> int:
    """CRC-32C of `a + b` from the CRC-32C of `a`, that of `b`, and how many bytes `b` has."""
    return _product(_power_of_bytes(second_bytes), first) ^ second


# Polynomials are the bits of an integer, the highest bit is x to the power of 0: CRC-32C is
# reflected.
_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31
_OF_ONE_BYTE = _ONE >> 8


def _product(left: int, right: int) -> int:
    """Of two polynomials, modulo that of CRC-32C."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ _POLYNOMIAL if right & 1 else right >> 1
    return product


@lru_cache(maxsize=256)
def _power_of_bytes(size_bytes: int) -> int:
    """x to the number of bits in so many bytes; chunks and parts have few different sizes."""
    power, square = _ONE, _OF_ONE_BYTE
    while size_bytes:
        if size_bytes & 1:
            power = _product(power, square)
        square = _product(square, square)
        size_bytes >>= 1
    return power


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
        while len(view):
            piece = view[: self._left_bytes]
            self._add(piece)
            view = view[len(piece) :]

    def _add(self, piece: memoryview) -> None:
        self._chunk = crc32c(piece, self._chunk)
        self.size_bytes += len(piece)
        self._left_bytes -= len(piece)
        if self._left_bytes == 0:
            self._closed.append(self._chunk)
            self._whole = joined_crc32c(self._whole, self._chunk, self._chunk_size_bytes)
            self._chunk = 0
            self._left_bytes = self._chunk_size_bytes

    @property
    def whole(self) -> int:
        open_bytes = self._chunk_size_bytes - self._left_bytes
        return joined_crc32c(self._whole, self._chunk, open_bytes)

    @property
    def chunks(self) -> tuple[int, ...]:
        """One per chunk so far; the last may be short. None for an empty stream."""
        if self._left_bytes == self._chunk_size_bytes:
            return tuple(self._closed)
        return (*self._closed, self._chunk)
