"""A transport that keeps what was written to it, and bytes that arrive in pieces of any size."""

import asyncio
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any

from rlm.workers.frames import FrameLink, RawBytes, RawMemory, new_memory

Frame = tuple[bytes, bytes]


class KeptTransport(asyncio.Transport):
    """The end of a connection whose other side is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.untaken_bytes = 0
        self.is_closed = False
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The test pauses by itself."""

    def get_write_buffer_size(self) -> int:
        return self.untaken_bytes

    def pause_reading(self) -> None:
        self.is_paused = True

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


class Received:
    """A link and the frames that it got."""

    def __init__(self, memory: RawMemory = new_memory) -> None:
        self.frames: list[Frame] = []
        self.raws: list[RawBytes] = []
        self.ends = 0
        self.link = FrameLink(self._received, self._ended, memory)
        self.transport = KeptTransport()
        self.link.connection_made(self.transport)

    def _received(self, message: bytes, raw: RawBytes) -> None:
        self.frames.append((message, b"".join(raw)))
        self.raws.append(raw)

    def _ended(self) -> None:
        self.ends += 1

    def feed(self, data: bytes, sizes: Iterable[int] = ()) -> None:
        """Let bytes arrive in pieces of these sizes, then as many at a time as fit."""
        left, pieces = memoryview(data), chain(sizes, repeat(len(data)))
        while left:
            room = self.link.get_buffer(-1)
            size = max(1, min(next(pieces), len(room), len(left)))
            room[:size] = left[:size]
            left = left[size:]
            self.link.buffer_updated(size)


def written(*frames: Frame) -> bytes:
    """What a link writes for these frames."""
    one = Received()
    for message, raw in frames:
        one.link.send(message, (raw,))
    return bytes(one.transport.written)
