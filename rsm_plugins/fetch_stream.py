"""The stream of one fetch as it arrives: a header, then exactly as many bytes as it declares, or a
slice instead.
"""

from dataclasses import dataclass, field

from kip405.errors import Corrupt
from kip405.segments import FileSlice
from rsm_plugins.messages import slice_value
from rsm_plugins.v1 import storage_pb2 as pb


@dataclass(slots=True, kw_only=True)
class Received:
    """What has arrived; Corrupt as soon as the stream breaks its own declaration or is larger than
    asked for.
    """

    place: str
    max_bytes: int
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
        if response.WhichOneof("part") != "chunk" or self._header.HasField("file_slice"):
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
        self._header = response.header

    def result(self) -> bytes | FileSlice:
        """All of it, once the stream has ended well."""
        if self._header is None:
            raise Corrupt(f"{self.place}: the stream ended without a header")
        if self._header.HasField("file_slice"):
            file_slice = slice_value(self._header.file_slice)
            if file_slice.size_bytes != self._header.size_bytes:
                raise Corrupt(
                    f"{self.place}: a slice of {file_slice.size_bytes} bytes, "
                    f"{self._header.size_bytes} declared"
                )
            return file_slice
        if self._size_bytes != self._header.size_bytes:
            raise Corrupt(
                f"{self.place}: {self._size_bytes} of the declared "
                f"{self._header.size_bytes} bytes came"
            )
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
