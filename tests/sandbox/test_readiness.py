"""A service counts as ready by what its /healthz says, and by the kinds of its problems."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rlm.plans.problems import ProblemKind
from rlm.service.metrics import TABLE
from rlm_sandbox.readiness import HEARD, has_heard, service_is_ready


class Health(HTTPServer):
    """A server whose every page is `body`, or `text`."""

    body: object = None
    text = ""
    status = 200

    def say(self, *kinds: ProblemKind, ready: bool = True) -> None:
        self.body = {"ready": ready, "problems": [{"kind": kind.value} for kind in kinds]}


class Answer(BaseHTTPRequestHandler):
    server: Health

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write((self.server.text or json.dumps(self.server.body)).encode())

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


def sooner_or_later(probe: Callable[[], bool]) -> bool:
    """A probe waits some seconds at most: on a busy machine an answer may take longer."""
    return any(probe() for _ in range(60))


def test_a_service_is_ready_once_its_metadata_and_stores_are(health: Health) -> None:
    port = health.server_port
    health.say(ready=False)
    assert not service_is_ready(port)
    for kind in (ProblemKind.STARTING, ProblemKind.METADATA, ProblemKind.STORE_UNAVAILABLE):
        health.say(kind, ProblemKind.NO_STORE)
        assert not service_is_ready(port)
    health.say(ProblemKind.NO_STORE)
    assert sooner_or_later(lambda: service_is_ready(port))


def test_a_service_has_heard_whom_its_metrics_name(health: Health) -> None:
    port = health.server_port
    health.text = f"# TYPE {HEARD} gauge\n"
    assert not has_heard(port, {1})
    health.text += f'{HEARD}{{node="1"}} 0.5\n{HEARD}{{node="12"}} 1.0\n'
    assert sooner_or_later(lambda: has_heard(port, {1, 12}))
    assert not has_heard(port, {1, 2})
    assert [row.labels for row in TABLE if row.name == HEARD] == [("node",)]


def test_metrics_behind_a_token_are_not_waited_for(health: Health) -> None:
    health.status = 401
    assert sooner_or_later(lambda: has_heard(health.server_port, {1}))


def test_a_version_without_that_metric_is_not_waited_for(health: Health) -> None:
    health.text = "# TYPE rlm_uptime_seconds gauge\n"
    assert sooner_or_later(lambda: has_heard(health.server_port, {1}))


def test_who_does_not_answer_has_heard_nobody(health: Health) -> None:
    health.shutdown()
    health.server_close()
    assert not has_heard(health.server_port, {1})
