"""What `ranges` and `bodies` share: heads of requests and answers, and connections that wait for
their next request.

Only plain answers are understood: those that say their length and are not encoded. An overloaded
server is not asked twice: its answer counts without its text, if that is not plain.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import SplitResult

NEXT_ADDRESS_SECONDS = 0.25
"""From RFC 8305, as aiohttp does it: an address that does not answer delays no more than this."""
END_OF_HEAD = b"\r\n\r\n"
HEAD_MAX_BYTES = 16 << 10
TEXT_MAX_BYTES = 64 << 10
_IDLE_SECONDS = 12.0
"""Servers and what is before them drop idle connections, some without a word."""
_TOO_MANY = 429
_FIRST_OF_SERVER = 500
_FRAMING = {"connection", "content-encoding", "content-length", "content-range"}
"""Headers that say what the body is; an answer with two of one kind is not understood here."""
_PORTS = {"http": 80, "https": 443}

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of an answer; names of headers are in lower case.

    `size_bytes` is None where the body does not say its length or is encoded. `may_stay`: the
    connection can be used again.
    """

    status: int
    headers: Mapping[str, str]
    size_bytes: int | None
    may_stay: bool

    def text_bytes(self) -> int | None:
        """How much is received of a body that is a text, such as an error's; None if the answer is
        left to aiohttp.
        """
        if self.size_bytes is not None and self.size_bytes <= TEXT_MAX_BYTES:
            return self.size_bytes
        return 0 if self.status >= _FIRST_OF_SERVER or self.status == _TOO_MANY else None


def parsed_head(head: bytes) -> Head | None:
    """The head of an answer; None for one that is not understood."""
    line, *lines = head.split(b"\r\n")
    version, _, rest = line.partition(b" ")
    if version != b"HTTP/1.1" or not rest[:3].isdigit() or rest[3:4] not in (b" ", b""):
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if not colon or not name or name != name.strip() or key in _FRAMING & headers.keys():
            return None
        headers[key] = value.strip().decode("latin-1")
    return Head(
        status=int(rest[:3]),
        headers=headers,
        size_bytes=_plain_size(headers),
        may_stay="close" not in headers.get("connection", "").lower(),
    )


def _plain_size(headers: Mapping[str, str]) -> int | None:
    length = headers.get("content-length", "")
    is_encoded = headers.get("content-encoding", "identity").lower() != "identity"
    if is_encoded or "transfer-encoding" in headers:
        return None
    return int(length) if length.isascii() and length.isdecimal() else None


def request_head(parts: SplitResult, headers: Mapping[str, str], *, method: str = "GET") -> bytes:
    """The head of a request for a URL whose parts are encoded already; ConnectionError for a header
    that would not stay one line.
    """
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    host = parts.netloc.removesuffix(f":{_PORTS[parts.scheme]}")  # as it is signed
    given = {"Host": host, "Accept-Encoding": "identity", **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ConnectionAbortedError("a header has more than one line")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def origin_of(parts: SplitResult) -> Origin | None:
    """Where the server of a URL is; None if the URL names none."""
    host = parts.hostname
    return None if host is None else (parts.scheme, host, parts.port or _PORTS[parts.scheme])


class OneConnection(Protocol):
    """One connection; `idle_since` is kept by IdleConnections."""

    idle_since: float

    def abort(self) -> None:
        """End it now."""
        ...


C = TypeVar("C", bound=OneConnection)


class IdleConnections(defaultdict[Origin, list[C]]):
    """Connections that wait for their next request, by server; the last one was used last."""

    def __init__(self) -> None:
        super().__init__(list)
        self._connecting: set[asyncio.Task[C]] = set()
        self.is_closed = False

    async def made(self, connecting: Coroutine[Any, Any, C]) -> C:
        """A new connection. One that was made although its caller was cancelled is ended: asyncio
        leaves the socket of one that is cancelled in that moment to the garbage collector.
        """
        task = asyncio.get_running_loop().create_task(connecting)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_abort_unwanted)
            raise

    def take(self, origin: Origin) -> C | None:
        """The connection that was used last, if it is not too old; a server, or something between,
        may have dropped an older one without a word.
        """
        idle = self[origin]
        oldest = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def keep(self, origin: Origin, connection: C) -> None:
        """It waits for its next request; it is ended where all are closed."""
        if self.is_closed:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self[origin].append(connection)

    def close(self) -> None:
        """End what is idle, and what becomes idle from now on."""
        self.is_closed = True
        for idle in self.values():
            while idle:
                idle.pop().abort()


def _abort_unwanted(connecting: "asyncio.Task[C]") -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()
