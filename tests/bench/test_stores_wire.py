"""The wire: every turn waits once, requests are counted by kind, and bytes come as they were."""

import http.client
import http.server
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.stores.lab import WireProcess
from bench.stores.wire import operation

BODY = os.urandom(3 << 20)


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/b/p/c/t-id/0/00-x.log", "GetObject log"),
        ("GET", "/b/t/0/00-x.indexes?x-id=GetObject", "GetObject indexes"),
        ("PUT", "/b/t/0/00-x.rsm-manifest", "PutObject manifest"),
        ("PUT", "/b/t/0/00-x.log?partNumber=1&uploadId=u", "UploadPart"),
        ("POST", "/b/t/0/00-x.log?uploads", "CreateMultipartUpload"),
        ("POST", "/b/t/0/00-x.log?uploadId=u", "CompleteMultipartUpload"),
        ("GET", "/b?list-type=2&prefix=x", "ListObjectsV2"),
        ("POST", "/b?delete", "DeleteObjects"),
        ("GET", "/b/rlm-store.json", "GetObject other"),
        ("HEAD", "/b/t/0/00-x.log", "HeadObject log"),
    ],
)
def test_requests_have_s3s_names(method: str, target: str, expected: str) -> None:
    assert operation(method, target) == expected


class _Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(BODY)

    def do_PUT(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return None


@pytest.fixture
def wire() -> Iterator[WireProcess]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        made = WireProcess(server.server_address[1])
        try:
            yield made
        finally:
            made.close()
            server.shutdown()
            serving.join()


def asked(connection: http.client.HTTPConnection, method: str, path: str) -> bytes:
    connection.request(method, path, body=BODY if method == "PUT" else None)
    return connection.getresponse().read()


def test_bytes_pass_and_are_counted(wire: WireProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", wire.port, timeout=60)
    for _ in range(3):
        assert asked(connection, "GET", "/b/x.log") == BODY
    assert asked(connection, "PUT", "/b/x.indexes") == BODY
    taken = wire.take()
    assert taken["requests"] == {"GetObject log": 3, "PutObject indexes": 1}
    assert taken["bytes"]["down"] > 4 * len(BODY)
    assert len(BODY) < taken["bytes"]["up"] < len(BODY) + 10_000
    assert taken["first_put_s"] <= time.monotonic()
    assert wire.take()["requests"] == {}
    connection.close()


def test_every_turn_of_a_connection_waits_once(wire: WireProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", wire.port, timeout=60)
    asked(connection, "GET", "/b/x.log")
    wire.delay(300)
    began = time.monotonic()
    for _ in range(4):
        asked(connection, "GET", "/b/x.log")
    assert time.monotonic() - began >= 4 * 0.3
    assert wire.take()["requests"] == {"GetObject log": 5}
    connection.close()
