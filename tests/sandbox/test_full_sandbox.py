"""One broker with plugin and service: what sandbox.json promises is there."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from rlm_sandbox.readiness import cluster_view, http_status, plugin_answers
from rlm_sandbox.sandbox import Sandbox

pytestmark = pytest.mark.integration


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
    assert plugin_answers(port(broker["plugin"]))
    assert http_status(port(broker["http"]), "/healthz") == 200
    assert http_status(port(broker["http"]), "/metrics") == 200
    assert {row.state for row in sandbox.status()} == {"running"}


def test_the_broker_hands_out_the_proxys_address(sandbox: Sandbox) -> None:
    (broker,) = sandbox.json["brokers"]
    through_proxy = cluster_view(port(broker["proxy"]))
    assert through_proxy is not None
    assert through_proxy == cluster_view(port(broker["direct"]))
