"""`python -m bench.tls_transport`: the proxy's TLS on a socket beside asyncio's, by turns.

One process sends to another over loopback. Processor time is that of the sender. Memory is what so
many idle connections take more, with their contexts and sockets, after a message each way.
"""

import argparse
import asyncio
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from bench.plan import MIB, order_of
from rlm.proxy.handshakes import accept
from rlm.proxy.tls_transport import TlsTransport
from rlm.proxy.writer import PacedWriter, PieceTransport, plain_socket
from rlm_sandbox.security.certificates import Authority, write_issued

OURS, ASYNCIO, PLAIN = "proxy", "asyncio", "plain"
VARIANTS = (OURS, ASYNCIO, PLAIN)
_OPTIONS = ("rounds", "size_mib", "connections")
_PIECE = bytes(MIB)
_POLL_S = 0.001
_ROOM = memoryview(bytearray(65_536))
_CLIENT = """
import socket, ssl, sys
host, port, ca, count = "127.0.0.1", int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
context = ssl.create_default_context(cafile=ca) if ca else None
held, room = [], bytearray(1 << 18)
for _ in range(count):
    one = socket.create_connection((host, port))
    if context: one = context.wrap_socket(one, server_hostname="localhost")
    one.sendall(b"go")
    held.append(one)
while held[0].recv_into(room): pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRun:
    """One turn."""

    variant: str
    round_number: int
    cpu_s_gb: float
    kib_a_connection: float
    load: str


def _nothing() -> None:
    """The sender looks by itself, as not each transport says so."""


class _Side(asyncio.BufferedProtocol):
    writer: PacedWriter | None = None

    def __init__(self, arrived: "asyncio.Queue[_Side]") -> None:
        self._arrived = arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if isinstance(transport, PieceTransport) or plain_socket(transport) is not None:
            self.writer = PacedWriter(transport, _nothing)

    async def send(self, piece: bytes) -> None:
        """Past the transport where that can be, as the proxy does."""
        if self.writer is None:
            self.transport.write(piece)
        else:
            self.writer.write(piece)
        while self.untaken_bytes:  # noqa: ASYNC110 - asyncio's TLS does not say when it is empty
            await asyncio.sleep(_POLL_S)

    @property
    def untaken_bytes(self) -> int:
        if self.writer is None:
            return self.transport.get_write_buffer_size()
        return self.writer.untaken_bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        return _ROOM

    def buffer_updated(self, nbytes: int) -> None:
        self._arrived.put_nowait(self)

    def pause_writing(self) -> None:
        if self.writer is not None:
            self.writer.pause()

    def resume_writing(self) -> None:
        if self.writer is not None:
            self.writer.resume()


async def _turn(variant: str, folder: Path, size_mib: int, connections: int) -> tuple[float, float]:
    """Seconds per GB, KiB a connection."""
    context = None if variant == PLAIN else _context(folder)
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[_Side]()
    with socket.create_server(("127.0.0.1", 0), backlog=1_024) as listening:
        listening.setblocking(False)
        found = []
        memory = psutil.Process().memory_info().rss
        child = _client(listening.getsockname()[1], context, folder, connections)
        try:
            for _ in range(connections):
                client, _ = await loop.sock_accept(listening)
                client.setblocking(False)
                if variant == OURS and context is not None:
                    TlsTransport(await accept(client, context, 60_000), _Side(arrived)).begin()
                else:
                    await loop.connect_accepted_socket(lambda: _Side(arrived), client, ssl=context)
                found.append(await arrived.get())
            grown = psutil.Process().memory_info().rss - memory
            began = time.process_time()
            for _ in range(size_mib):
                await found[0].send(_PIECE)
            took_s = time.process_time() - began
        finally:
            child.kill()
            child.wait()
            for one in found:
                one.transport.abort()
            await asyncio.sleep(0.1)
    return took_s / (size_mib * MIB / 1e9), grown / connections / 1024


def _client(
    port: int, context: ssl.SSLContext | None, folder: Path, connections: int
) -> "subprocess.Popen[bytes]":
    ca = "" if context is None else str(folder / "ca.pem")
    argv = [sys.executable, "-c", _CLIENT, str(port), ca, str(connections)]
    return subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": ""})


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured. Each turn is a process of its own."""
    given = _parser().parse_args(arguments)
    if given.turn:
        variant, folder = given.turn.split(",", 1)
        cpu, memory = asyncio.run(_turn(variant, Path(folder), given.size_mib, given.connections))
        say(f"{cpu} {memory}")
        return 0

    def run() -> tuple[list[str], dict[str, Any]]:
        runs = _runs(given)
        lines = [
            f"{variant}: {median(one.cpu_s_gb for one in of):.2f} CPU s/GB, "
            f"{median(one.kib_a_connection for one in of):.0f} KiB a connection"
            for variant in VARIANTS
            if (of := [one for one in runs if one.variant == variant])
        ]
        return lines, document(given, "tls-transport", _OPTIONS, runs, cpu="of the sender alone")

    return measure(given, "tls-transport", run)


def _runs(given: argparse.Namespace) -> list[TransportRun]:
    rounds, sizes = (1, (16, 20)) if given.quick else (given.rounds, (given.size_mib, 200))
    connections = sizes[1] if given.quick else given.connections
    runs = []
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), datetime.now(UTC)
        authority, day = Authority.make(now=now), timedelta(days=1)
        issued = authority.issue("s", begin=now - day, end=now + day, server_names=("localhost",))
        write_issued(issued, folder / "cert.pem", folder / "key.pem")
        (folder / "ca.pem").write_text(authority.pem, encoding="ascii")
        for number in range(rounds):
            for variant in order_of(VARIANTS, number):
                argv = [sys.executable, "-P", "-m", "bench.tls_transport", "--turn"]
                argv += [f"{variant},{name}", "--size-mib", str(sizes[0])]
                argv += ["--connections", str(connections)]
                said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
                cpu, memory = map(float, said.split())
                runs.append(
                    TransportRun(
                        variant=variant,
                        round_number=number,
                        cpu_s_gb=round(cpu, 3),
                        kib_a_connection=round(memory, 1),
                        load=load_in_words(),
                    )
                )
                say(str(runs[-1]))
    return runs


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.tls_transport", __doc__)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--size-mib", type=int, default=512)
    made.add_argument("--connections", type=int, default=200)
    made.add_argument("--turn", help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
