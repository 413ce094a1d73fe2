"""Receives the streams of the contract: a copy on the plugin's side, a fetch on the client's side.

A copy is a header, the indexes, and then the log's bytes unless the header names a file. A fetch is
a header, then exactly the declared bytes, a file slice, or bytes in a scratch file. Every stream is
checked against its own header.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from kip405.contracts import SegmentWriter
from kip405.crc import crc32c
from kip405.errors import Corrupt, Invalid
from kip405.segments import FileSlice, LogSegmentData
from rsm_plugins.contract.messages import (
    INDEXES_MAX_BYTES,
    LOG_MAX_BYTES,
    locator_value,
    slice_value,
)
from rsm_plugins.files.segment_files import Spool, SpoolFile
from rsm_plugins.files.shared_volume import CallersFolders
from rsm_plugins.v1 import storage_pb2 as pb


@dataclass(slots=True, kw_only=True)
class _Incoming:
    """Progress of the stream; raises Invalid as soon as the stream breaks its own declaration."""

    header: pb.CopyHeader
    indexes: bytearray = field(default_factory=bytearray)
    log_size_bytes: int = 0
    log_crc32c: int = 0

    def add_indexes(self, chunk: bytes) -> None:
        self.indexes += chunk
        if len(self.indexes) > self.header.indexes_size_bytes:
            raise Invalid(
                f"more than the declared {self.header.indexes_size_bytes} bytes of indexes arrived"
            )

    def add_log(self, chunk: bytes) -> None:
        if len(self.indexes) != self.header.indexes_size_bytes:
            raise Invalid("bytes of the log arrived before the indexes were complete")
        if self.header.HasField("log_file"):
            raise Invalid("bytes of the log arrived although the header names a file")
        self.log_size_bytes += len(chunk)
        self.log_crc32c = crc32c(chunk, self.log_crc32c)
        if self.log_size_bytes > self.header.log_size_bytes:
            raise Invalid(
                f"more than the declared {self.header.log_size_bytes} bytes of the log arrived"
            )

    def check_complete(self) -> None:
        if len(self.indexes) != self.header.indexes_size_bytes:
            raise Invalid(
                f"{len(self.indexes)} of {self.header.indexes_size_bytes} bytes of indexes arrived"
            )
        if self.header.HasField("log_file"):
            return
        if self.log_size_bytes != self.header.log_size_bytes:
            raise Invalid(
                f"{self.log_size_bytes} of {self.header.log_size_bytes} bytes of the log arrived"
            )
        if self.log_crc32c != self.header.log_crc32c:
            raise Corrupt("the bytes of the log that arrived do not have the CRC-32C of the header")


async def receive_copy(
    requests: AsyncIterator[pb.CopyLogSegmentDataRequest],
    manager: SegmentWriter,
    spool: Spool,
    folders: CallersFolders,
) -> bytes:
    """Receive one copy and pass it to the manager; returns the manager's own metadata."""
    incoming = _Incoming(header=await _header(requests))
    locator = locator_value(incoming.header.locator)
    if incoming.header.HasField("log_file"):
        await _receive(requests, incoming, None)
        source = _named_file(incoming.header, folders)
        return await manager.copy_log_segment_data(locator, _segment_data(incoming, source))
    async with spool.file() as spooled:
        await _receive(requests, incoming, spooled)
        source = FileSlice(path=str(spooled.path), position=0, size_bytes=spooled.size_bytes)
        return await manager.copy_log_segment_data(locator, _segment_data(incoming, source))


async def _header(requests: AsyncIterator[pb.CopyLogSegmentDataRequest]) -> pb.CopyHeader:
    async for request in requests:
        if request.WhichOneof("part") != "header":
            break
        header = request.header
        if not 0 <= header.log_size_bytes <= LOG_MAX_BYTES:
            raise Invalid(
                f"a log of {header.log_size_bytes} bytes is not within 0..{LOG_MAX_BYTES}"
            )
        if not 0 <= header.indexes_size_bytes <= INDEXES_MAX_BYTES:
            raise Invalid(
                f"indexes of {header.indexes_size_bytes} bytes are not within "
                f"0..{INDEXES_MAX_BYTES}"
            )
        return header
    raise Invalid("a copy begins with its header")


async def _receive(
    requests: AsyncIterator[pb.CopyLogSegmentDataRequest],
    incoming: _Incoming,
    spooled: SpoolFile | None,
) -> None:
    if spooled is not None:
        await spooled.append(b"")  # an empty log also needs its file
    async for request in requests:
        part = request.WhichOneof("part")
        if part == "indexes_chunk":
            incoming.add_indexes(request.indexes_chunk)
        elif part == "log_chunk":
            incoming.add_log(request.log_chunk)
            if spooled is not None:
                await spooled.append(request.log_chunk)
        else:
            raise Invalid(f"a copy's stream has {part or 'an empty message'} after its header")
    incoming.check_complete()


def _named_file(header: pb.CopyHeader, folders: CallersFolders) -> FileSlice:
    source = slice_value(header.log_file)
    if source.size_bytes != header.log_size_bytes:
        raise Invalid(f"the slice has {source.size_bytes} bytes, the log {header.log_size_bytes}")
    if not folders.allows(source.path):
        raise Invalid(
            f"this plugin may not read {source.path}: "
            "name its folder in shared.source.dirs, or send bytes"
        )
    return source


def _segment_data(incoming: _Incoming, source: FileSlice) -> LogSegmentData:
    header = incoming.header
    return LogSegmentData(
        log=source,
        log_crc32c=header.log_crc32c,
        indexes=bytes(incoming.indexes),
        indexes_crc32c=header.indexes_crc32c,
        end_offset=header.end_offset if header.HasField("end_offset") else None,
    )


@dataclass(slots=True, kw_only=True)
class Received:
    """What has arrived; raises Corrupt as soon as the stream breaks its own declaration or is
    larger than requested.

    `may_be_slice`: the plugin knows that this client sees its files. Without that, a path could
    lead to any file of this machine.
    """

    operation: str
    max_bytes: int
    may_be_slice: bool
    _header: pb.FetchHeader | None = None
    _chunks: list[bytes] = field(default_factory=list)
    _size_bytes: int = 0

    @property
    def instance(self) -> str:
        return "" if self._header is None else self._header.instance

    def add(self, response: pb.FetchResponse) -> None:
        """Take the next message of the stream."""
        if self._header is None:
            self._begin(response)
            return
        if (
            response.WhichOneof("part") != "chunk"
            or self._header.HasField("file_slice")
            or self._header.in_scratch
        ):
            raise Corrupt(f"{self.operation}: a message came that may not follow the header")
        self._chunks.append(response.chunk)
        self._size_bytes += len(response.chunk)
        if self._size_bytes > self._header.size_bytes:
            raise Corrupt(
                f"{self.operation}: more than the declared {self._header.size_bytes} bytes came"
            )

    def _begin(self, response: pb.FetchResponse) -> None:
        if response.WhichOneof("part") != "header":
            raise Corrupt(f"{self.operation}: the stream does not begin with its header")
        if not 0 <= response.header.size_bytes <= self.max_bytes:
            raise Corrupt(
                f"{self.operation}: {response.header.size_bytes} bytes, "
                f"where at most {self.max_bytes} can be"
            )
        if response.header.HasField("file_slice") and not self.may_be_slice:
            raise Corrupt(f"{self.operation}: a file was answered to a call that asked for bytes")
        self._header = response.header

    def scratch_bytes(self) -> int | None:
        """How many bytes the plugin has written to the scratch file; None if it sent them
        instead.
        """
        header = self._complete_header()
        return header.size_bytes if header.in_scratch else None

    def _complete_header(self) -> pb.FetchHeader:
        if self._header is None:
            raise Corrupt(f"{self.operation}: the stream ended without a header")
        return self._header

    def result(self) -> bytes | FileSlice:
        """All of the fetched range, after the stream ended well; not for a range in a scratch
        file.
        """
        header = self._complete_header()
        if header.HasField("file_slice"):
            file_slice = slice_value(header.file_slice)
            if file_slice.size_bytes != header.size_bytes:
                raise Corrupt(
                    f"{self.operation}: a slice of {file_slice.size_bytes} bytes, "
                    f"{header.size_bytes} declared"
                )
            return file_slice
        if header.in_scratch:
            raise Corrupt(
                f"{self.operation}: the bytes are said to be in a scratch file, and none was named"
            )
        if self._size_bytes != header.size_bytes:
            raise Corrupt(
                f"{self.operation}: {self._size_bytes} of the declared "
                f"{header.size_bytes} bytes came"
            )
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
