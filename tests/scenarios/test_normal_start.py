"""A service that begins beside a healthy broker warns of nothing that passes by itself."""

from typing import Any

import pytest

from rlm_sandbox.readiness import service_is_ready
from tests.scenarios.cluster import Cluster, fresh
from tests.service_log import events_of

pytestmark = pytest.mark.integration
_MOST = 3
"""Starts, of which one is to be without a warning: a stall of the machine may bring some."""


def test_a_normal_start_warns_of_nothing(one: Cluster) -> None:
    topic = fresh("started")
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=3)
    one.wait_trimmed(topic)
    one.wait_settled(topic)
    grave = _grave_of_a_start(one, topic)
    for _ in range(_MOST - 1):
        grave = grave and _grave_of_a_start(one, topic)
    assert grave == []


def _grave_of_a_start(one: Cluster, topic: str) -> list[dict[str, Any]]:
    """The lines of a start that warn."""
    one.sandbox.stop("rlm:1")
    log = one.sandbox.layout.log("rlm:1")
    position = log.stat().st_size
    one.sandbox.start("rlm:1")
    one.wait_for(lambda: service_is_ready(one.sandbox.state.ports[1].http), "the service is ready")
    one.wait_settled(topic)
    started = events_of(log, position)
    assert [line["event"] for line in started].count("starting") == 1
    # A slow machine may report a problem for as long as it needs to start, and no other problem.
    return [
        line
        for line in started
        if line["level"] != "info" and line["event"] != "problem" and "partition" not in line
    ]
