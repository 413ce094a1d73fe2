"""The writer gives every byte once and in order, and keeps views of what the socket does not
take.
"""

import asyncio
import gc
import itertools
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import BinaryIO

import pytest

from rlm.proxy.writer import PacedWriter
from rlm.reading.chunk_memory import SLOT_BYTES, ChunkMemory, view_of


class _Writing(asyncio.Protocol):
    """One side of a connection, as the proxy uses it."""

    writer: PacedWriter

    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writer = PacedWriter(transport, self._taken)

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def _taken(self) -> None:
        if not self.writer.untaken_bytes:
            self.drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writer.drop()
        self.is_lost.set()


@asynccontextmanager
async def connected(*, knows_socket: bool = True) -> AsyncIterator[tuple[_Writing, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, side = await loop.create_connection(_Writing, sock=ours)
    if not knows_socket:  # as under TLS, where only the transport can write
        side.writer._socket = None
    try:
        yield side, theirs
    finally:
        transport.abort()
        theirs.close()
        await side.is_lost.wait()


async def received(theirs: socket.socket, size_bytes: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    async with asyncio.timeout(60):
        while len(data) < size_bytes and (part := await loop.sock_recv(theirs, 100_000)):
            data += part
    return data


@pytest.mark.parametrize("knows_socket", [True, False])
async def test_a_slow_reader_gets_every_byte_once_and_in_order(*, knows_socket: bool) -> None:
    rng = random.Random(5)
    sizes = [rng.choice((1, 50, 16_383, 16_384, 70_000, 300_000, 2_500_000)) for _ in range(60)]
    pieces = [rng.randbytes(size) for size in sizes]
    async with connected(knows_socket=knows_socket) as (side, theirs):
        for at in range(0, len(pieces), 6):
            side.writer.write_all(pieces[at : at + 6])
            whole = b"".join(pieces[at : at + 6])
            assert await received(theirs, len(whole)) == whole
        total = sum(sizes)
        assert side.writer.accepted_bytes == total
        async with asyncio.timeout(60):
            while side.writer.taken_bytes < total:  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(0.001)
        assert side.writer.queued_bytes == side.writer.untaken_bytes == 0


async def test_g10_what_the_socket_does_not_take_is_not_copied() -> None:
    memory = ChunkMemory()
    views = [view_of(memory.buffer(SLOT_BYTES)) for _ in range(3)]
    for number, view in enumerate(views):
        memoryview(view.obj).cast("B")[:] = bytes([number]) * SLOT_BYTES
    async with connected() as (side, theirs):
        side.writer.write_all([b"head", *views])
        del views, view
        gc.collect()
        writer = side.writer
        assert side.transport.get_write_buffer_size() <= 16_384
        assert writer.queued_bytes > 2 * SLOT_BYTES
        assert writer.taken_bytes + writer.untaken_bytes == 4 + 3 * SLOT_BYTES
        assert memory.mapped_bytes - memory.free_bytes == 3 * SLOT_BYTES  # a view keeps its chunk
        side.drained.clear()
        got = await received(theirs, 4 + 3 * SLOT_BYTES)
        assert got == b"head" + b"".join(bytes([one]) * SLOT_BYTES for one in range(3))
        async with asyncio.timeout(60):
            await side.drained.wait()
        assert memory.free_bytes == memory.mapped_bytes


async def test_a_socket_that_is_gone_ends_the_connection_and_drops_what_was_queued() -> None:
    async with connected() as (side, theirs):
        side.writer.write(b"x" * 5_000_000)
        theirs.close()
        async with asyncio.timeout(60):
            await side.is_lost.wait()
        assert side.writer.queued_bytes == 0
        side.writer.write(b"more")
        assert side.writer.queued_bytes == 0


async def test_a_socket_that_is_gone_is_not_written_to_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected() as (side, theirs):
        side.transport.pause_reading()
        theirs.close()
        side.writer.write(b"x" * 50_000_000)
        await side.is_lost.wait()
    assert len(caplog.records) < 5  # asyncio warns of each write to such a transport


@pytest.mark.parametrize("is_slow", [True, False])
async def test_pieces_in_a_buffer_that_is_used_again_arrive_in_order(*, is_slow: bool) -> None:
    rng, buffer = random.Random(8), bytearray(100_000)
    sent = b""
    async with connected() as (side, theirs):
        for _ in range(40):
            ends = [0, *sorted(rng.sample(range(1, 100_000), rng.randrange(1, 5)))]
            buffer[:] = rng.randbytes(len(buffer))
            view = memoryview(buffer)
            pieces = [view[a:b] for a, b in itertools.pairwise(ends)]
            sent += b"".join(pieces)
            side.writer.pass_all([*pieces])
            buffer[:] = bytes(len(buffer))
            if not is_slow:
                assert await received(theirs, len(sent)) == sent
                sent = b""
        assert await received(theirs, len(sent)) == sent


async def test_a_connection_that_is_finished_with_bytes_queued_ends_once() -> None:
    """asyncio ends a transport twice that is closed while it says that it holds nothing."""
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    data = bytes(range(256)) * 4_096
    async with connected() as (side, theirs):
        side.writer.write(data)
        side.writer.finish()
        assert side.writer.queued_bytes > 0
        assert await received(theirs, len(data) + 1) == data
        async with asyncio.timeout(60):
            await side.is_lost.wait()
        await asyncio.sleep(0)
    assert failed == []


async def test_a_closed_transport_gets_nothing_past_it() -> None:
    """The number of its descriptor may belong to another connection by then."""
    async with connected() as (side, theirs):
        side.transport.close()
        side.writer.write(b"late")
        await side.is_lost.wait()
        assert await received(theirs, 1) == b""


class _Unwritable(asyncio.Transport):
    """Takes everything itself, but says that it writes to a descriptor to which nobody can: what
    the kernel answers there, the transport does not meet.
    """

    def __init__(self, used: object) -> None:
        super().__init__({"socket": used})
        self.aborted = asyncio.Event()

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raise AssertionError("bytes behind those that were not sent")

    def abort(self) -> None:
        self.aborted.set()


@pytest.fixture
def read_only() -> Iterator[BinaryIO]:
    with open(os.devnull, "rb") as opened:
        yield opened


async def test_h24_an_error_that_the_transport_does_not_meet_ends_the_connection(
    read_only: BinaryIO,
) -> None:
    transport = _Unwritable(read_only)
    writer = PacedWriter(transport, lambda: None)
    writer.write(b"what cannot be sent")
    await asyncio.wait_for(transport.aborted.wait(), 60)
    assert writer.queued_bytes == len(b"what cannot be sent")


class _Noting(_Unwritable):
    """Notes what it is given, and has nothing past it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.given: list[object] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.given.append(bytes(data))

    def close(self) -> None:
        self.given.append("end")


async def test_h24_a_transport_is_given_nothing_while_it_says_that_it_goes_on() -> None:
    """asyncio would end it twice if it met an error in that, or were closed."""
    taken, transport = list[int](), _Noting()
    writer = PacedWriter(transport, lambda: taken.append(writer.queued_bytes))
    writer.pause()
    writer.write(b"rest")
    writer.finish()
    writer.resume()
    assert (transport.given, taken) == ([], [])
    await asyncio.sleep(0)
    assert (transport.given, taken) == ([b"rest", "end"], [0])


async def test_a_transport_that_is_ending_gets_nothing_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """asyncio would warn of each piece."""
    async with connected() as (side, _):
        side.transport.abort()
        for _ in range(20):
            side.writer.write_all([bytes(1 << 20)] * 3)
        assert side.writer.queued_bytes == 0
        await side.is_lost.wait()
    assert caplog.records == []


async def test_a_reader_that_goes_while_much_is_sent_ends_the_connection_once() -> None:
    """Also while the transport says that it goes on: asyncio would end the connection twice."""
    loop, seen = asyncio.get_running_loop(), list[dict[str, object]]()
    loop.set_exception_handler(lambda _, context: seen.append(context))
    piece = memoryview(bytes(1 << 20))
    for turn in range(60):
        async with connected() as (side, theirs):
            reading = asyncio.create_task(asyncio.to_thread(_read_and_go, theirs, turn))
            while not side.is_lost.is_set():
                if side.writer.queued_bytes < 4 << 20:
                    side.writer.write_all([piece] * 3)
                await asyncio.sleep(0)
            await reading
    await asyncio.sleep(0)
    assert seen == []


def _read_and_go(theirs: socket.socket, turn: int) -> None:
    theirs.setblocking(True)
    left_bytes = (1 << 20) + turn * 100_000
    while left_bytes > 0:
        left_bytes -= len(theirs.recv(1 << 16))
    theirs.close()
