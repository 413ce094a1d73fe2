"""The sockets that Kafka clients connect to: made by the process that serves them, or by the
supervisor and inherited by its workers.

Every worker accepts on all of them, one connection at a time, so that the workers share the
connections. A worker that has no room for a client does not accept: another one does, and while
none has room, clients wait in the queue of the socket.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import structlog

from kip405.errors import Invalid
from rlm.clock import Clock

log = structlog.get_logger(__name__)
_BACKLOG = 1_024
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_ACCEPT_AGAIN_MS = 100


@contextmanager
def listen(host: str, port: int) -> Iterator[tuple[socket.socket, ...]]:
    """Listens on all addresses of the host, at one port, for as long as the block runs. An address
    that this machine has not is left out, unless it is the only one. Invalid: it cannot listen.
    """
    with ExitStack() as stack:
        try:
            found = _listen_on_all(host, port, stack)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Invalid(f"proxy.listen: cannot listen on {host}:{port}: {reason}") from error
        yield tuple(found)


def _listen_on_all(host: str, port: int, stack: ExitStack) -> list[socket.socket]:
    flags = socket.AI_PASSIVE
    rows = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    found: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, number, _, address in dict.fromkeys(rows):
        # Port 0 is any that is free, the same at each address.
        at = (address[0], found[0].getsockname()[1], *address[2:]) if found else address
        try:
            listening = stack.enter_context(socket.socket(family, kind, number))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(at)
            listening.listen(_BACKLOG)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            failure = error
        else:
            found.append(listening)
    if failure is not None and not found:
        raise failure
    return found


class Acceptor:
    """Accepts connections for one process. `has_room` waits until there is room for a client, and
    `serve` begins to serve one.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        has_room: Callable[[], Awaitable[None]],
        serve: Callable[[socket.socket], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._sockets = deque(sockets)
        self._has_room = has_room
        self._serve = serve
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        for one in self._sockets:
            one.setblocking(False)
        while True:
            await self._has_room()
            try:
                client = await self._next_client()
                client.setblocking(False)
            except OSError as error:  # as without a free descriptor
                log.warning("accept_failed", error=str(error))
                await self._clock.sleep_ms(_ACCEPT_AGAIN_MS)
                continue
            with suppress(OSError):
                await self._serve(client)

    async def _next_client(self) -> socket.socket:
        """Of the sockets in turn; another worker may be faster."""
        while True:
            for _ in range(len(self._sockets)):
                self._sockets.rotate(-1)
                try:
                    return self._sockets[0].accept()[0]
                except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                    continue
            await self._any_readable()

    async def _any_readable(self) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        for one in self._sockets:
            loop.add_reader(one, readable.set)
        try:
            await readable.wait()
        finally:
            for one in self._sockets:
                loop.remove_reader(one)

    def close(self) -> None:
        """This process listens no longer."""
        for one in self._sockets:
            one.close()
