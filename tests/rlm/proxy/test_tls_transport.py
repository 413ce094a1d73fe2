"""The transport under TLS gives and takes every byte once and in order, and keeps almost none."""

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from rlm.proxy.handshakes import accept
from rlm.proxy.tls_transport import RECORD_BYTES, TlsTransport
from rlm.proxy.writer import PacedWriter
from tests.builders.certificates import Authority
from tests.rlm.proxy.secured import serving, trusting

NAME = "here.test"
SIZES = (1, 50, 16_383, 16_384, 16_385, 70_000, 300_000, 2_500_000)


class Side(asyncio.BufferedProtocol):
    """Receives into a buffer of `room_bytes` that is used again, as the proxy does."""

    writer: PacedWriter
    transport: asyncio.Transport

    def __init__(self, room_bytes: int = 65_536) -> None:
        self._room = memoryview(bytearray(room_bytes))
        self.got = bytearray()
        self.changed = asyncio.Event()
        self.is_over, self.goes_on = False, False
        self.lost: list[Exception | None] = []
        self.most_at_once = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writer = PacedWriter(transport, self.changed.set)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self._room[:nbytes]
        self.most_at_once = max(self.most_at_once, nbytes)
        self.changed.set()

    def eof_received(self) -> bool:
        self.is_over = True
        self.changed.set()
        return self.goes_on

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        self.writer.drop()
        self.changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not reached():
                self.changed.clear()
                await self.changed.wait()


class Peer:
    """The other side: a socket under TLS whose calls wait, used in threads."""

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self.secured = secured

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.secured.sendall, data)

    async def receive(self, size_bytes: int) -> bytes:
        def all_of_it() -> bytes:
            data = bytearray()
            while len(data) < size_bytes and (part := self.secured.recv(size_bytes - len(data))):
                data += part
            return bytes(data)

        async with asyncio.timeout(60):
            return await asyncio.to_thread(all_of_it)


@asynccontextmanager
async def connected(
    folder: Path, room_bytes: int = 65_536, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[tuple[Side, Peer]]:
    """A transport of the proxy, and its peer; the buffers of the kernel are small."""
    authority = Authority(folder)
    context, trusted = serving(authority.issue(NAME)), trusting(authority)
    trusted.maximum_version = version
    listening = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listening.getsockname())
    ours, _ = listening.accept()
    listening.close()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    ours.setblocking(False)
    theirs.settimeout(60)
    made = asyncio.to_thread(trusted.wrap_socket, theirs, server_hostname=NAME)
    secured, peer = await asyncio.gather(accept(ours, context, 60_000), made)
    side = Side(room_bytes)
    transport = TlsTransport(secured, side)
    transport.begin()
    try:
        yield side, Peer(peer)
    finally:
        transport.abort()
        peer.close()
        await side.until(lambda: bool(side.lost))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_slow_reader_gets_every_byte_once_and_in_order(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    rng = random.Random(5)
    pieces = [rng.randbytes(rng.choice(SIZES)) for _ in range(40)]
    async with connected(tmp_path, version=version) as (side, peer):
        for at in range(0, len(pieces), 5):
            side.writer.write_all(pieces[at : at + 5])
            whole = b"".join(pieces[at : at + 5])
            assert await peer.receive(len(whole)) == whole
        await side.until(lambda: not side.writer.untaken_bytes)
        assert side.writer.taken_bytes == sum(map(len, pieces))


async def test_bytes_of_a_buffer_that_is_used_again_are_those_that_were_given(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as (side, peer):
        buffer, sent = bytearray(65_536), bytearray()
        for number in range(200):
            buffer[:] = bytes([number]) * len(buffer)
            side.writer.pass_on(memoryview(buffer))
            sent += buffer
        assert await peer.receive(len(sent)) == bytes(sent)


async def test_of_what_the_socket_does_not_take_at_most_a_record_is_kept(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, peer):
        piece = bytes(8_000_000)
        side.writer.write(piece)
        assert 0 < side.transport.get_write_buffer_size() <= RECORD_BYTES
        assert side.writer.untaken_bytes + side.writer.taken_bytes == len(piece)
        assert side.writer.untaken_bytes > 1_000_000
        assert await peer.receive(len(piece)) == piece
        await side.until(lambda: not side.writer.untaken_bytes)


@pytest.mark.parametrize("room_bytes", [1_000, 16_384, 65_536])
async def test_all_that_a_peer_sends_arrives_whatever_room_there_is(
    tmp_path: Path, room_bytes: int
) -> None:
    rng = random.Random(room_bytes)
    async with connected(tmp_path, room_bytes) as (side, peer):
        sent = rng.randbytes(1_000_000)
        sending = asyncio.ensure_future(peer.send(sent))
        await side.until(lambda: len(side.got) == len(sent))
        await sending
        assert side.got == sent
        assert side.most_at_once <= room_bytes


async def test_a_peer_that_sends_no_more_is_written_to_and_read_no_more(tmp_path: Path) -> None:
    """Its socket can be read for ever: who reads on does nothing else."""
    async with connected(tmp_path) as (side, peer):
        side.goes_on = True
        leaving = asyncio.create_task(asyncio.to_thread(peer.secured.unwrap))
        await side.until(lambda: side.is_over)
        side.transport.resume_reading()
        assert not side.transport.is_reading() and not side.transport.is_closing()
        side.writer.finish()
        await leaving
        await side.until(lambda: bool(side.lost))


def holds(side: Side, size_bytes: int) -> bool:
    return len(side.got) == size_bytes


async def test_what_openssl_holds_is_read_when_reading_resumes(tmp_path: Path) -> None:
    """A selector does not know of decrypted bytes."""
    async with connected(tmp_path, 100) as (side, peer):
        received = side.buffer_updated

        def pause(nbytes: int) -> None:
            received(nbytes)
            side.transport.pause_reading()

        side.buffer_updated = pause  # type: ignore[method-assign]  # pauses after each call
        await peer.send(b"x" * 1_000)
        for count in range(1, 11):
            await side.until(partial(holds, side, count * 100))
            side.transport.resume_reading()


async def test_several_records_fill_one_buffer(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, peer):
        side.transport.pause_reading()
        await peer.send(b"x" * 65_536)
        side.transport.resume_reading()
        await side.until(lambda: len(side.got) == 65_536)
        assert side.most_at_once > RECORD_BYTES


async def test_a_close_lets_the_peer_have_what_was_given_and_says_goodbye(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, peer):
        piece = bytes(3_000_000)
        side.writer.write(piece)
        side.writer.finish()
        assert not side.lost
        assert await peer.receive(len(piece)) == piece
        # An end without close_notify is an error then.
        peer.secured.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # not in the stubs
        assert await peer.receive(1) == b""
        await side.until(lambda: bool(side.lost))
        assert side.lost == [None]


async def test_a_close_lets_the_peer_have_the_record_that_waits(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, peer):
        side.writer.write(bytes(8_000_000))
        given_bytes = side.writer.accepted_bytes - side.writer.queued_bytes
        assert side.transport.get_write_buffer_size()
        side.transport.close()
        assert len(await peer.receive(8_000_000)) == given_bytes
        await side.until(lambda: bool(side.lost))
        assert side.lost == [None]


async def test_the_end_of_the_peer_follows_its_last_bytes(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, peer):
        await peer.send(b"last words")
        peer.secured.close()
        await side.until(lambda: bool(side.lost))
        assert (bytes(side.got), side.is_over, side.lost) == (b"last words", True, [None])


async def test_bytes_that_are_no_tls_record_end_the_connection_behind_the_good_ones(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as (side, peer):
        side.transport.pause_reading()
        await peer.send(b"g" * RECORD_BYTES)
        os_socket = socket.socket(fileno=peer.secured.detach())
        os_socket.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))  # a record that was tampered with
        side.transport.resume_reading()
        await side.until(lambda: bool(side.lost))
        os_socket.close()
        assert bytes(side.got) == b"g" * RECORD_BYTES
        assert isinstance(side.lost[0], ssl.SSLError)


async def test_an_aborted_transport_drops_what_is_queued_and_is_lost_once(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, _):
        side.writer.write(bytes(3_000_000))
        side.transport.abort()
        side.transport.abort()
        side.transport.close()
        side.writer.write(b"too late")
        await side.until(lambda: bool(side.lost))
        assert side.lost == [None] and side.transport.get_write_buffer_size() == 0


async def test_a_peer_that_has_gone_ends_a_writer(tmp_path: Path) -> None:
    async with connected(tmp_path) as (side, peer):
        side.transport.pause_reading()
        linger = b"\1\0\0\0\0\0\0\0"  # a reset, not an end
        peer.secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.secured.close()
        await asyncio.sleep(0.05)
        side.writer.write(bytes(100_000))
        side.writer.write(bytes(100_000))
        await side.until(lambda: bool(side.lost))
        assert isinstance(side.lost[0], OSError)
