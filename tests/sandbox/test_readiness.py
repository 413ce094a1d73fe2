"""A service counts as ready by what its /healthz says, and by the kinds of its problems."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rlm.plans.problems import ProblemKind
from rlm_sandbox.readiness import service_is_ready


class Health(HTTPServer):
    """A server whose every page is `body`."""

    body: object = None

    def say(self, *kinds: ProblemKind, ready: bool = True) -> None:
        self.body = {"ready": ready, "problems": [{"kind": kind.value} for kind in kinds]}


class Answer(BaseHTTPRequestHandler):
    server: Health

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.body).encode())

    def log_message(self, *_arguments: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def health() -> Iterator[Health]:
    with Health(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_service_is_ready_once_its_metadata_and_stores_are(health: Health) -> None:
    port = health.server_port
    health.say(ready=False)
    assert not service_is_ready(port)
    for kind in (ProblemKind.STARTING, ProblemKind.METADATA, ProblemKind.STORE_UNAVAILABLE):
        health.say(kind, ProblemKind.NO_STORE)
        assert not service_is_ready(port)
    health.say(ProblemKind.NO_STORE)
    assert service_is_ready(port)
