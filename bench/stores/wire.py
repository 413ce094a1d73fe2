"""A wire to an S3 server that is as long as one says, and counts the requests that pass.

`python -m bench.stores.wire UPSTREAM_PORT` prints its port and then obeys lines on standard input:
`delay MS` from now on, `counts` answers with a JSON line and starts again. The delay is one round
trip for every request of a connection, held back before the request goes on; bytes move inside the
kernel (splice) where there is such a thing, so that the wire itself takes little of the machine.
Must not know our plugin.
"""

import contextlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 8 << 10
_BACKLOG = 256
_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.1\r\n")
_F_SETPIPE_SZ = 1031
_KINDS = {".log": "log", ".indexes": "indexes", ".rsm-manifest": "manifest"}
_WRITES = ("PutObject", "CreateMultipartUpload")
_OF_UPLOADS = {"POST": "CompleteMultipartUpload", "PUT": "UploadPart", "DELETE": "AbortUpload"}


def operation(method: str, target: str) -> str:
    """S3's name of a request, with the kind of object where it is one of ours."""
    address = urlsplit(target)
    query = parse_qs(address.query, keep_blank_values=True)
    if "uploadId" in query:
        return _OF_UPLOADS.get(method, f"{method} upload")
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if "delete" in query:
        return "DeleteObjects"
    if "list-type" in query:
        return "ListObjectsV2"
    kind = _KINDS.get(os.path.splitext(address.path)[1], "other")
    return f"{method.capitalize()}Object {kind}"


class Counts:
    """Requests by kind and bytes both ways since they were last asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._first_put_s: float | None = None

    def request(self, name: str) -> None:
        with self._lock:
            self._requests[name] += 1
            if self._first_put_s is None and name.startswith(_WRITES):
                self._first_put_s = time.monotonic()

    def moved(self, way: str, size_bytes: int) -> None:
        with self._lock:
            self._bytes[way] += size_bytes

    def take(self) -> dict[str, Any]:
        """`first_put_s`: when the first object came, by the machine's monotonic clock."""
        with self._lock:
            taken = {
                "requests": dict(self._requests),
                "bytes": dict(self._bytes),
                "first_put_s": self._first_put_s,
            }
            self._requests.clear()
            self._bytes.clear()
            self._first_put_s = None
        return taken


class Wire:
    """Accepts connections without end; there is a thread for each direction."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream = ("127.0.0.1", upstream_port)
        self.counts = Counts()
        self.delay_s = 0.0

    def serve(self, listening: socket.socket) -> None:
        while True:
            client, _ = listening.accept()
            _Connection(self, client, socket.create_connection(self._upstream)).start()


class _Connection:
    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._server = server
        self._is_next_request = True
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for work in (self._up, self._down):
            threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            work()
        for one in (self._client, self._server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _up(self) -> None:
        with _mover(self._client, self._server) as mover:
            while head := self._client.recv(_HEAD_BYTES, socket.MSG_PEEK):
                if self._is_next_request:  # known only now that the client has spoken
                    self._is_next_request = False
                    self._count(head)
                    if self._wire.delay_s:
                        time.sleep(self._wire.delay_s)
                mover.move(self._going_up)

    def _count(self, head: bytes) -> None:
        if found := _REQUEST.match(head):
            self._wire.counts.request(operation(found[1].decode(), found[2].decode()))

    def _down(self) -> None:
        with _mover(self._server, self._client) as mover:
            while mover.move(self._going_down):
                pass

    def _going_up(self, size_bytes: int) -> None:
        self._wire.counts.moved("up", size_bytes)

    def _going_down(self, size_bytes: int) -> None:
        """What the client sends after this is its next request."""
        self._is_next_request = True
        self._wire.counts.moved("down", size_bytes)


class _Splice:
    """Moves bytes from socket to socket without taking them out of the kernel."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        import fcntl

        self._source = source
        self._target = target
        self._read, self._write = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._write, _F_SETPIPE_SZ, _PIECE_BYTES)

    def __enter__(self) -> "_Splice":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._read)
        os.close(self._write)

    def move(self, before: Callable[[int], None]) -> int:
        """What is there, at least one byte; 0 at the end.

        `before` is called with the size and returns before any of it arrives, so a receiver finds
        what it has received counted.
        """
        taken = os.splice(self._source.fileno(), self._write, _PIECE_BYTES)
        if taken:
            before(taken)
        left = taken
        while left:
            left -= os.splice(self._read, self._target.fileno(), left)
        return taken


class _Copy:
    """The same through our memory, where there is no splice."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source = source
        self._target = target

    def __enter__(self) -> "_Copy":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def move(self, before: Callable[[int], None]) -> int:
        data = self._source.recv(_PIECE_BYTES)
        if data:
            before(len(data))
        self._target.sendall(data)
        return len(data)


def _mover(source: socket.socket, target: socket.socket) -> "_Splice | _Copy":
    return _Splice(source, target) if hasattr(os, "splice") else _Copy(source, target)


def main() -> None:
    """Ends with its standard input."""
    wire = Wire(int(sys.argv[1]))
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listening:
        print(listening.getsockname()[1], flush=True)
        threading.Thread(target=wire.serve, args=(listening,), daemon=True).start()
        for line in sys.stdin:
            word, _, value = line.strip().partition(" ")
            if word == "delay":
                wire.delay_s = float(value) / 1000
            print(json.dumps(wire.counts.take() if word == "counts" else {}), flush=True)


if __name__ == "__main__":
    main()
