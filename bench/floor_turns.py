"""The process in the middle of `bench.floors`: passes bytes, and counts its own processor time.

It prints the port that it listens on and, when it is done, what it used: JSON. The first client to
connect is the sink, the second one the source. It knows no protocol, and does nothing but one thing
in a loop, so nothing that passes bytes by the same means in Python takes less.
"""

import asyncio
import fcntl
import json
import mmap
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.plan import MIB
from kip405.crc import crc32c

_HOST = "127.0.0.1"
RELAY, SPLICE, READ_CHECK_SEND, SENDFILE = "relay", "splice", "read-check-send", "sendfile"
FILES = (READ_CHECK_SEND, SENDFILE)
BULK = (RELAY, SPLICE, *FILES)
ASYNCIO = "asyncio"
_PIPE_BYTES = 262_144
"""As rlm/proxy/splicing.py has it."""
_SLOTS = 64
"""Of 1 MiB, all of which were used before, and together more than a processor's caches hold."""
_READ_BYTES = 262_144


class Used:
    """Counts since it was made."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._before = resource.getrusage(resource.RUSAGE_SELF)

    def line(self) -> str:
        """As JSON, what was used until now."""
        now = resource.getrusage(resource.RUSAGE_SELF)
        found = {
            "user_s": now.ru_utime - self._before.ru_utime,
            "system_s": now.ru_stime - self._before.ru_stime,
            "faults": now.ru_minflt - self._before.ru_minflt,
            "wall_s": time.monotonic() - self._began_s,
        }
        return json.dumps(found)


def relay(source: socket.socket, sink: socket.socket, _: Path) -> None:
    """Through one buffer."""
    room = memoryview(bytearray(MIB))
    while count := source.recv_into(room):
        sink.sendall(room[:count])


def splice(source: socket.socket, sink: socket.socket, _: Path) -> None:
    """Within the kernel, through a pipe."""
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    while held := os.splice(source.fileno(), into, _PIPE_BYTES):
        while held:
            held -= os.splice(out, sink.fileno(), held)


def read_check_send(size_mib: int, sink: socket.socket, file: Path) -> None:
    """Chunks of 1 MiB, each into a slot that was used before."""
    memory = mmap.mmap(-1, _SLOTS * MIB)
    slots = [memoryview(memory)[n * MIB : (n + 1) * MIB] for n in range(_SLOTS)]
    for slot in slots:
        slot[:] = bytes(MIB)
    used = Used()
    with file.open("rb") as opened:
        chunks = os.fstat(opened.fileno()).st_size // MIB
        for number in range(size_mib):
            slot = slots[number % _SLOTS]
            if os.preadv(opened.fileno(), [slot], number % chunks * MIB) != MIB:
                raise RuntimeError(f"chunk {number} of {file} is short")
            crc32c(slot)
            sink.sendall(slot)
    print(used.line(), flush=True)


def send_file(size_mib: int, sink: socket.socket, file: Path) -> None:
    """Within the kernel, nothing of it looked at."""
    used = Used()
    with file.open("rb") as opened:
        chunks = os.fstat(opened.fileno()).st_size // MIB
        for number in range(size_mib):
            position, left = number % chunks * MIB, MIB
            while left:
                sent = os.sendfile(sink.fileno(), opened.fileno(), position, left)
                position, left = position + sent, left - sent
    print(used.line(), flush=True)


_RELAYS: dict[str, Callable[[socket.socket, socket.socket, Path], None]] = {
    RELAY: relay,
    SPLICE: splice,
}
_SENDERS: dict[str, Callable[[int, socket.socket, Path], None]] = {
    READ_CHECK_SEND: read_check_send,
    SENDFILE: send_file,
}


class _Through(asyncio.BufferedProtocol):
    """What comes goes to the other side, once that is connected; one buffer for all."""

    _room = memoryview(bytearray(_READ_BYTES))

    def __init__(self, other: "_Through | None" = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # a stream, as asked for
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        assert self.other is not None and self.other.transport is not None
        # A copy, as a transport may keep what the socket does not take.
        self.other.transport.write(bytes(self._room[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Accepted(_Through):
    """Reads nothing before it is connected to the broker."""

    def __init__(self, broker_port: int) -> None:
        super().__init__()
        self._broker_port = broker_port
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, other = await loop.create_connection(lambda: _Through(self), _HOST, self._broker_port)
        self.other = other
        assert self.transport is not None
        self.transport.resume_reading()


async def _serve(broker_port: int) -> None:
    """Counts between two lines of its standard input."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Accepted(broker_port), _HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    used = Used()
    await asyncio.to_thread(sys.stdin.readline)
    print(used.line(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    """`FLOOR SIZE_MIB FILE`, or `asyncio PORT_OF_THE_BROKER`."""
    kind, *rest = sys.argv[1:]
    if kind == ASYNCIO:
        asyncio.run(_serve(int(rest[0])))
        return
    size_mib, file = int(rest[0]), Path(rest[1])
    with socket.create_server((_HOST, 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        sink, _ = listening.accept()
        source, _ = listening.accept()
    with sink, source:
        if kind in _SENDERS:
            _SENDERS[kind](size_mib, sink, file)
            return
        used = Used()
        _RELAYS[kind](source, sink, file)
        print(used.line(), flush=True)


if __name__ == "__main__":
    main()
