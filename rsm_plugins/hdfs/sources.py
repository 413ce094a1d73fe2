"""What a new file in HDFS is written from: a log as it is, or a data object made of it.

A source gives its bytes in order, as many as are asked for at a time, so that the writer can end a
piece with a block of HDFS. A file that could not be finished is written from a new source.
"""

from collections.abc import Iterator
from typing import Protocol

from kip405.crc import crc32c
from kip405.errors import Corrupt
from kip405.segments import LogSegmentData
from rsm_plugins.blocks.plan import BlocksPlan
from rsm_plugins.blocks.source import data_pieces
from rsm_plugins.files.segment_files import source_chunk
from rsm_plugins.threads import FileThreads


class Source(Protocol):
    """Bytes in order."""

    @property
    def size_bytes(self) -> int: ...

    async def next(self, size_bytes: int) -> bytes:
        """Exactly so many of the next bytes; errors of kip405's, Fenced for a file that is gone or
        cut short.
        """
        ...

    def prove(self) -> None:
        """After the last byte: Corrupt where they are not the bytes that should be stored."""
        ...


class LogSource:
    """A log as it is."""

    def __init__(self, data: LogSegmentData, threads: FileThreads) -> None:
        self._data = data
        self._threads = threads
        self._position = 0
        self._crc = 0

    @property
    def size_bytes(self) -> int:
        return self._data.log.size_bytes

    async def next(self, size_bytes: int) -> bytes:
        """See Source."""
        piece = await self._threads.run(self._read, size_bytes)
        self._position += size_bytes
        return piece

    def _read(self, size_bytes: int) -> bytes:
        piece = source_chunk(self._data.log, self._position, size_bytes)
        self._crc = crc32c(piece, self._crc)
        return piece

    def prove(self) -> None:
        """See Source."""
        if self._crc != self._data.log_crc32c:
            raise Corrupt(
                f"the bytes copied from {self._data.log.path} have CRC-32C {self._crc:08x}, "
                f"not {self._data.log_crc32c:08x}"
            )


class BlocksSource:
    """A data object in blocks, made while it is written; each block is proved on the way."""

    def __init__(self, plan: BlocksPlan, data: LogSegmentData, threads: FileThreads) -> None:
        self._plan = plan
        self._threads = threads
        self._pieces: Iterator[bytes] = data_pieces(plan, data)
        self._rest = b""
        self._given_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._plan.data_size_bytes

    async def next(self, size_bytes: int) -> bytes:
        """See Source."""
        piece = await self._threads.run(self._make, size_bytes)
        self._given_bytes += len(piece)
        return piece

    def _make(self, size_bytes: int) -> bytes:
        runs, made = [self._rest], len(self._rest)
        while made < size_bytes:
            piece = next(self._pieces, b"")
            if not piece:
                raise Corrupt(f"the blocks end {size_bytes - made} bytes before they should")
            runs.append(piece)
            made += len(piece)
        whole = b"".join(runs)
        self._rest = whole[size_bytes:]
        return whole[:size_bytes]

    def prove(self) -> None:
        """See Source."""
        if self._given_bytes != self.size_bytes or self._rest or next(self._pieces, b""):
            raise Corrupt(f"the blocks do not end after {self.size_bytes} bytes")
