"""Receives the stream of one fetch: a header, then exactly the declared bytes or a file slice."""

from dataclasses import dataclass, field

from kip405.errors import Corrupt
from kip405.segments import FileSlice
from rsm_plugins.contract.messages import slice_value
from rsm_plugins.v1 import storage_pb2 as pb


@dataclass(slots=True, kw_only=True)
class Received:
    """What has arrived; raises Corrupt as soon as the stream breaks its own declaration or is
    larger than requested.

    `may_be_slice`: the plugin knows that this client sees its files. Without that, a path could
    lead to any file of this machine.
    """

    place: str
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
            raise Corrupt(f"{self.place}: a message came that has no place after the header")
        self._chunks.append(response.chunk)
        self._size_bytes += len(response.chunk)
        if self._size_bytes > self._header.size_bytes:
            raise Corrupt(
                f"{self.place}: more than the declared {self._header.size_bytes} bytes came"
            )

    def _begin(self, response: pb.FetchResponse) -> None:
        if response.WhichOneof("part") != "header":
            raise Corrupt(f"{self.place}: the stream does not begin with its header")
        if not 0 <= response.header.size_bytes <= self.max_bytes:
            raise Corrupt(
                f"{self.place}: {response.header.size_bytes} bytes, "
                f"where at most {self.max_bytes} can be"
            )
        if response.header.HasField("file_slice") and not self.may_be_slice:
            raise Corrupt(f"{self.place}: a file was answered to a call that asked for bytes")
        self._header = response.header

    def scratch_bytes(self) -> int | None:
        """How many bytes the plugin has put into the scratch file named, None where it did not."""
        header = self._complete_header()
        return header.size_bytes if header.in_scratch else None

    def _complete_header(self) -> pb.FetchHeader:
        if self._header is None:
            raise Corrupt(f"{self.place}: the stream ended without a header")
        return self._header

    def result(self) -> bytes | FileSlice:
        """All of it, once the stream has ended well, where it is not in a scratch file."""
        header = self._complete_header()
        if header.HasField("file_slice"):
            file_slice = slice_value(header.file_slice)
            if file_slice.size_bytes != header.size_bytes:
                raise Corrupt(
                    f"{self.place}: a slice of {file_slice.size_bytes} bytes, "
                    f"{header.size_bytes} declared"
                )
            return file_slice
        if header.in_scratch:
            raise Corrupt(
                f"{self.place}: the bytes are said to be in a scratch file, and none was named"
            )
        if self._size_bytes != header.size_bytes:
            raise Corrupt(
                f"{self.place}: {self._size_bytes} of the declared {header.size_bytes} bytes came"
            )
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
