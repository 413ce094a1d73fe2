"""Splits a fetched range into chunks that passed their CRC-32C, each in its own memory (G9).

This runs in a thread, once for a whole range. From a slice of a file, each chunk is read
separately. Bytes are split by copying, so that an evicted chunk frees its memory whatever happens
to its neighbours. Damage in one chunk does not affect the others.
"""

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.indexes import ChunkChecksums
from kip405.segments import ByteRange, FileSlice

E = TypeVar("E", bound=Exception)

Landed = Mapping[int, bytes | RemoteStorageError]
"""Chunk number -> verified bytes, or what is wrong with it."""


def byte_range(numbers: range, chunk_bytes: int, log_size_bytes: int) -> ByteRange:
    """The positions of consecutive chunks; the last chunk of a log may be short."""
    end = min(numbers.stop * chunk_bytes, log_size_bytes)
    return ByteRange(start=numbers.start * chunk_bytes, end=end)


def verified(
    found: ByteBuffer | FileSlice,
    numbers: range,
    checksums: ChunkChecksums,
    log_size_bytes: int,
    what: str,
) -> Landed:
    """Split what the store gave for these chunks of the segment `what` and check each."""
    whole = byte_range(numbers, checksums.chunk_size_bytes, log_size_bytes)
    if isinstance(found, FileSlice):
        return _of_file(found, whole, numbers, checksums, what)
    if len(found) > whole.size_bytes:
        text = f"a range of {what} has {len(found)} bytes, {whole.size_bytes} expected"
        return dict.fromkeys(numbers, Corrupt(text))
    with memoryview(found) as view:
        return _split(lambda at, size: bytes(view[at : at + size]), whole, numbers, checksums, what)


def _of_file(
    found: FileSlice, whole: ByteRange, numbers: range, checksums: ChunkChecksums, what: str
) -> Landed:
    try:
        descriptor = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        return dict.fromkeys(numbers, _caused(NotFound(f"{what}: {found.path} is gone"), error))
    except OSError as error:
        text = f"{what}: cannot open {found.path}: {error.strerror}"
        return dict.fromkeys(numbers, _caused(Unavailable(text), error))

    def read(at: int, size_bytes: int) -> bytes:
        size_bytes = min(size_bytes, found.size_bytes - at)
        return os.pread(descriptor, max(size_bytes, 0), found.position + at)

    try:
        return _split(read, whole, numbers, checksums, what)
    except OSError as error:
        text = f"{what}: cannot read {found.path}: {error.strerror}"
        return dict.fromkeys(numbers, _caused(Unavailable(text), error))
    finally:
        os.close(descriptor)


def _split(
    read: Callable[[int, int], bytes],
    whole: ByteRange,
    numbers: range,
    checksums: ChunkChecksums,
    what: str,
) -> Landed:
    size, landed = checksums.chunk_size_bytes, dict[int, bytes | RemoteStorageError]()
    for number in numbers:
        start = number * size
        expected = min(size, whole.end - start)
        landed[number] = checked(
            read(start - whole.start, expected), number, expected, checksums, what
        )
    return landed


def checked(
    data: bytes, number: int, size_bytes: int, checksums: ChunkChecksums, what: str
) -> bytes | Corrupt:
    """The chunk if it is whole and right."""
    place = f"chunk {number} of {what}"
    if len(data) != size_bytes:
        return Corrupt(f"{place} has {len(data)} bytes, {size_bytes} expected")
    try:
        checksums.check(number, data)
    except Corrupt as error:
        return _caused(Corrupt(f"{place}: {error}"), error)
    return data


def _caused(error: E, cause: BaseException) -> E:
    error.__cause__ = cause
    return error
