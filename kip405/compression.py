"""Decompresses the records of one batch, with a limit on the size of the output.

The codecs are Kafka's: gzip, snappy (xerial framing or raw), LZ4 frames, zstd frames. Only the
service installs cramjam, so it is imported when a batch needs it. This module must not know what
the bytes mean.
"""

import struct
import zlib
from types import ModuleType

from kip405.batches import Compression
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid

# Ten thousand times a usual batch; a batch that grows beyond it counts as an attack on memory.
MAX_RECORDS_BYTES = 256 * 1024 * 1024
_FIRST_GUESS_BYTES = 64 * 1024
_GROWTH = 4
# A usual batch never needs more; what a huge batch took is freed with the next one.
_KEPT_BYTES = 16 * 1024 * 1024
# Rust's own text of std::io::ErrorKind::WriteZero, the only sign that the output did not fit.
_NO_ROOM = "failed to write whole buffer"
_GZIP_WINDOW = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_INT32 = struct.Struct(">i")


def decompress(
    compression: Compression, data: ByteBuffer, max_bytes: int = MAX_RECORDS_BYTES
) -> bytes:
    """The records' bytes; Corrupt where they cannot be decompressed or exceed `max_bytes`."""
    return bytes(Scratch().decompress(compression, data, max_bytes))


class Scratch:
    """Memory for the records of one batch after another; it is reused."""

    def __init__(self) -> None:
        self._room = bytearray()

    def decompress(
        self, compression: Compression, data: ByteBuffer, max_bytes: int = MAX_RECORDS_BYTES
    ) -> ByteBuffer:
        """The records' bytes, valid until the next call; Corrupt where they cannot be decompressed
        or exceed `max_bytes`.
        """
        if compression is Compression.NONE:
            return data
        if compression is Compression.GZIP:
            return _gunzip(data, max_bytes)
        if compression is Compression.SNAPPY:
            return _snappy(data, max_bytes)
        return self._frame(compression, data, max_bytes)

    def _frame(self, compression: Compression, data: ByteBuffer, max_bytes: int) -> ByteBuffer:
        """LZ4 or zstd into memory of ours that grows up to the limit: the frame's own claim is not
        trusted.
        """
        cramjam = _cramjam()
        codec = cramjam.lz4 if compression is Compression.LZ4 else cramjam.zstd
        room = self._take(max(_FIRST_GUESS_BYTES, _GROWTH * len(data)), max_bytes)
        while True:
            try:
                size = codec.decompress_into(data, room)
            except cramjam.DecompressionError as error:
                if len(room) >= max_bytes or _NO_ROOM not in str(error):
                    name = compression.name.lower()
                    raise Corrupt(f"{name} records: {error} (limit {max_bytes} bytes)") from error
                room = self._take(len(room) * _GROWTH, max_bytes)
            else:
                return room[:size]

    def _take(self, size_bytes: int, max_bytes: int) -> memoryview:
        """Memory of at least that size where the limit allows it; much of it is not kept."""
        size_bytes = min(size_bytes, max_bytes)
        if len(self._room) < size_bytes or len(self._room) > max(size_bytes, _KEPT_BYTES):
            self._room = bytearray(size_bytes)
        return memoryview(self._room)[:max_bytes]


def _gunzip(data: ByteBuffer, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = stream.decompress(data, max_bytes)
    except zlib.error as error:
        raise Corrupt(f"gzip records: {error}") from error
    if not stream.eof:
        problem = "are cut short" if not stream.unconsumed_tail else f"exceed {max_bytes} bytes"
        raise Corrupt(f"gzip records {problem}")
    if stream.unused_data:
        raise Corrupt(f"gzip records: {len(stream.unused_data)} bytes left over")
    return plain


def _snappy(data: ByteBuffer, max_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    blocks: list[bytes] = []
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise Corrupt(f"snappy records: block size is cut short at byte {position}")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= len(data) - position:
            raise Corrupt(
                f"snappy records: block of {size} bytes at byte {position} of {len(data)}"
            )
        blocks.append(_snappy_block(data[position : position + size], max_bytes))
        max_bytes -= len(blocks[-1])
        position += size
    return b"".join(blocks)


def _snappy_block(data: ByteBuffer, max_bytes: int) -> bytes:
    cramjam = _cramjam()
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise Corrupt(f"snappy records exceed {max_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise Corrupt(f"snappy records: {error}") from error


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise Invalid(
            "compressed records need cramjam: pip install 'kafka-rlm[service]'"
        ) from error
    return cramjam
