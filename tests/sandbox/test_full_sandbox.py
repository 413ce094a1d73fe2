"""One broker with plugin and service: what sandbox.json promises is there."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from rlm_sandbox.readiness import cluster_view, http_status, plugin_answers
from rlm_sandbox.sandbox import Sandbox

pytestmark = pytest.mark.integration

T = TypeVar("T")
_ANSWERS_WITHIN_S = 120
_LISTENERS = ("proxy", "direct")


def answer(probe: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """Of a probe, which waits some seconds at most: a busy machine may need more for an answer."""
    deadline = time.monotonic() + _ANSWERS_WITHIN_S
    while not wanted(found := probe()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_every_address_of_the_document_answers(sandbox: Sandbox) -> None:
    document = sandbox.json
    (broker,) = document["brokers"]
    assert document["bootstrap"] == broker["proxy"]
    assert document["direct_bootstrap"] == broker["direct"]
    assert document["plugin"] == broker["plugin"]
    for name in ("broker_pid", "rlm_pid", "plugin_pid"):
        assert psutil.pid_exists(broker[name])
    assert Path(unquote(urlsplit(document["store"]["uri"]).path)).is_dir()
    assert answer(partial(plugin_answers, port(broker["plugin"])), bool)
    for path in ("/healthz", "/metrics"):
        asked = partial(http_status, port(broker["http"]), path)
        assert answer(asked, lambda status: status == 200) == 200
    assert {row.state for row in sandbox.status()} == {"running"}


def test_the_broker_hands_out_the_proxys_address(sandbox: Sandbox) -> None:
    (broker,) = sandbox.json["brokers"]
    views = [answer(partial(cluster_view, port(broker[name])), bool) for name in _LISTENERS]
    assert views[0] is not None
    assert views[0] == views[1]
