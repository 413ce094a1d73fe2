"""Target: records of TLS, cut and damaged on their way to a `TlsTransport`."""

import asyncio
import random
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rlm.proxy.tls_transport import TlsTransport
from tests.builders.certificates import Authority
from tests.fuzz.case import READ, REFUSED, Case
from tests.fuzz.mutations import mutated, pieces
from tests.rlm.proxy.secured import PROXY_NAME, serving, trusting

_LIMIT_S = 20
_SENT_BYTES = 40_000


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the proxy and of a client that trusts it; loaded once, since keys take long to make."""
    with tempfile.TemporaryDirectory(prefix="rlm-fuzz-") as folder:
        authority = Authority(Path(folder))
        return serving(authority.issue(PROXY_NAME)), trusting(authority)


@dataclass
class Reader(asyncio.BufferedProtocol):
    """What a transport gives its protocol; the end, once."""

    room: bytearray
    got: bytearray = field(default_factory=bytearray)
    ended: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.room)

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self.room[:nbytes]

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended += 1
        self.lost.set()


def records(case: Case) -> str:
    """What arrives is a part of what was sent, from its beginning; all of it if all records came
    as they were. Damage ends the connection once, whatever follows.
    """
    return asyncio.run(_records(case))


async def _records(case: Case) -> str:
    rng = case.rng
    sent = rng.randbytes(rng.randrange(_SENT_BYTES))
    ours, theirs = socket.socketpair()
    client, read, written = _client()
    with theirs:
        secured = await asyncio.to_thread(_handshake, ours, theirs, client, read, written)
        protocol = Reader(bytearray(rng.choice((1, 100, 16_384, 65_536))))
        TlsTransport(secured, protocol).begin()
        for part in pieces(sent, rng, 20_000):
            client.write(part)
        stream = written.read()
        is_damaged = rng.random() < 0.5
        damaged = mutated(stream, rng) if is_damaged else stream
        await _send(theirs, damaged, rng)
        theirs.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LIMIT_S):
            await protocol.lost.wait()
    assert protocol.ended == 1
    assert sent[: len(protocol.got)] == protocol.got
    if damaged == stream:
        assert protocol.got == sent
        return READ
    return REFUSED


def _client() -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    read, written = ssl.MemoryBIO(), ssl.MemoryBIO()
    return _contexts()[1].wrap_bio(read, written, server_hostname=PROXY_NAME), read, written


def _handshake(
    ours: socket.socket,
    theirs: socket.socket,
    client: ssl.SSLObject,
    read: ssl.MemoryBIO,
    written: ssl.MemoryBIO,
) -> ssl.SSLSocket:
    """Both sides in turns, in one thread."""
    ours.setblocking(False)
    theirs.settimeout(_LIMIT_S)
    server = _contexts()[0]
    secured = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    done = [False, False]
    while not all(done):
        try:
            client.do_handshake()
            done[0] = True
        except ssl.SSLWantReadError:
            pass
        theirs.sendall(written.read())
        try:
            secured.do_handshake()
            done[1] = True
        except ssl.SSLWantReadError:
            pass
        if not done[0]:
            read.write(theirs.recv(1 << 16))
    return secured


async def _send(theirs: socket.socket, stream: bytes, rng: random.Random) -> None:
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        for piece in pieces(stream, rng, rng.choice((300, 5_000, 50_000))):
            await loop.sock_sendall(theirs, piece)
            await asyncio.sleep(0)
    except OSError:
        pass  # the other side has seen enough
