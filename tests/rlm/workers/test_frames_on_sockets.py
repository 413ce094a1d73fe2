"""Frames over a real unix socket: who holds what of them, and until when."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from rlm.reading.chunk_memory import SLOT_BYTES, ChunkMemory, view_of
from rlm.workers.frames import FrameLink, RawBytes
from rlm.workers.records_memory import RecordsMemory
from tests.rlm.workers.wires import Frame, Received, written
from tests.waiting import until

MIB = 1 << 20


class Sending:
    """A link over one end of a pair of sockets, whose other end is the test's."""

    def __init__(self) -> None:
        self.has_ended = asyncio.Event()
        self.messages: list[bytes] = []
        self.link = FrameLink(self._received, self.has_ended.set)

    def _received(self, message: bytes, raw: RawBytes) -> None:
        self.messages.append(message)


@asynccontextmanager
async def sending(send_buffer_bytes: int = 65_536) -> AsyncIterator[tuple[Sending, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    theirs.setblocking(False)
    one = Sending()
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: one.link, sock=ours)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    try:
        yield one, theirs
    finally:
        theirs.close()
        one.link.close()
        await asyncio.wait_for(one.has_ended.wait(), 60)


async def taken(theirs: socket.socket, size_bytes: int) -> bytes:
    """So many bytes of what was sent, or all until its end."""
    loop, data = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(60):
        while len(data) < size_bytes:
            if not (part := await loop.sock_recv(theirs, size_bytes - len(data))):
                break
            data += part
    return bytes(data)


def chunks(memory: ChunkMemory, count: int, chance: random.Random) -> Iterator[memoryview]:
    for _ in range(count):
        chunk = memory.buffer(SLOT_BYTES)
        memoryview(chunk).cast("B")[:] = chance.randbytes(SLOT_BYTES)
        yield view_of(chunk)


@pytest.mark.parametrize("seed", range(4))
async def test_a_full_socket_gets_every_frame_once_and_in_order(seed: int) -> None:
    """Small messages between large answers, which are cut anywhere."""
    chance, memory = random.Random(seed), ChunkMemory()
    frames: list[Frame] = []
    async with sending() as (one, theirs):
        for number in range(12):
            cuts = sorted(chance.randrange(SLOT_BYTES) for _ in range(chance.randrange(4)))
            raw = [
                view[start:end]
                for view in chunks(memory, chance.randrange(3), chance)
                for start, end in pairwise((0, *cuts, SLOT_BYTES))
            ]
            one.link.send(b"small%d" % number)
            one.link.send(b"m" * chance.choice((9, 20_000)), raw)
            frames += [(b"small%d" % number, b""), (b"", b"".join(raw))]
            del raw
        held_bytes = memory.mapped_bytes - memory.free_bytes
        assert held_bytes > 5 * SLOT_BYTES  # what waits is not copied
        got, size_bytes = Received(RecordsMemory(64 * MIB).take), sum(len(raw) for _, raw in frames)
        got_bytes, loop = 0, asyncio.get_running_loop()
        while len(got.frames) < len(frames):
            part = await loop.sock_recv(theirs, chance.choice((10, 5_000, 300_000)))
            got_bytes += len(part)
            got.feed(part, [chance.randint(1, 100_000)] * 9)
            waiting_bytes = size_bytes - got_bytes
            held_bytes = memory.mapped_bytes - memory.free_bytes
            assert held_bytes <= max(waiting_bytes, 0) + 2 * SLOT_BYTES  # nor is it kept longer
        for (message, raw_bytes), (found, found_bytes) in zip(frames, got.frames, strict=True):
            assert raw_bytes == found_bytes
            assert not message or message == found
        assert memory.free_bytes == memory.mapped_bytes


async def test_what_was_sent_before_the_end_still_comes() -> None:
    memory, chance = ChunkMemory(), random.Random(3)
    async with sending() as (one, theirs):
        raw = tuple(chunks(memory, 3, chance))
        sent = b"".join(raw)
        one.link.send(b"last", raw)
        del raw
        one.link.close("enough")
        assert not one.link.is_open
        one.link.send(b"later")
        got = Received()
        got.feed(await taken(theirs, 9 * MIB))
        assert got.frames == [(b"last", sent)]
        await asyncio.wait_for(one.has_ended.wait(), 60)
    assert memory.free_bytes == memory.mapped_bytes


async def test_nothing_is_received_while_what_was_sent_before_the_end_still_goes_out() -> None:
    last = (b"last", bytes(3 * MIB))
    async with sending() as (one, theirs):
        one.link.send(last[0], last[1:])
        one.link.close()
        theirs.send(written((b"late", b"raw")))
        assert await taken(theirs, len(written(last))) == written(last)
        await asyncio.wait_for(one.has_ended.wait(), 60)
    assert one.messages == []


@pytest.mark.parametrize("is_ending", [False, True])
async def test_h36_chunks_are_let_go_when_the_other_side_is_gone(is_ending: bool) -> None:
    memory = ChunkMemory()
    async with sending() as (one, theirs):
        one.link.send(b"answer", tuple(chunks(memory, 3, random.Random(1))))
        if is_ending:
            one.link.close()
        await taken(theirs, 300_000)
        assert memory.free_bytes < memory.mapped_bytes
        waiting = asyncio.ensure_future(one.link.drained())
        theirs.close()
        await asyncio.wait_for(one.has_ended.wait(), 60)
        await asyncio.wait_for(waiting, 60)
        assert memory.free_bytes == memory.mapped_bytes


@asynccontextmanager
async def receiving(memory: RecordsMemory) -> AsyncIterator[tuple[FrameLink, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    has_ended = asyncio.Event()

    def drop(message: bytes, raw: RawBytes) -> None:
        """As a worker does with what nobody waits for any more."""

    link = FrameLink(drop, has_ended.set, memory.take)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: link, sock=ours)
    try:
        yield link, theirs
    finally:
        link.close()
        theirs.close()
        await asyncio.wait_for(has_ended.wait(), 60)


def _end_theirs(link: FrameLink, theirs: socket.socket) -> None:
    theirs.close()


def _end_ours(link: FrameLink, theirs: socket.socket) -> None:
    link.close()


@pytest.mark.parametrize("end", [_end_theirs, _end_ours])
async def test_h36_a_frame_that_breaks_off_leaves_nothing(
    end: Callable[[FrameLink, socket.socket], None],
) -> None:
    """As that of a process that was killed while it sent."""
    memory = RecordsMemory(64 * MIB)
    async with receiving(memory) as (link, theirs):
        theirs.send(written((b"whole", b"w" * 10_000), (b"broken", b"b" * 2 * MIB))[:100_000])
        await until(lambda: memory.held_bytes == 2 * MIB)
        end(link, theirs)
        await until(lambda: memory.held_bytes == 0)
    assert memory.slots.free_bytes == memory.slots.mapped_bytes
