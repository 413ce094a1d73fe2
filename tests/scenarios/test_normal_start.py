"""A service that begins beside a healthy broker warns of nothing that passes by itself."""

import json

import pytest

from rlm_sandbox.readiness import service_is_ready
from tests.scenarios.cluster import Cluster, fresh

pytestmark = pytest.mark.integration


def log_lines(one: Cluster) -> list[str]:
    return one.sandbox.layout.log("rlm:1").read_text(encoding="utf-8").splitlines()


def test_a_normal_start_warns_of_nothing(one: Cluster) -> None:
    topic = fresh("started")
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=3)
    one.wait_trimmed(topic)
    one.wait_settled(topic)
    one.sandbox.stop("rlm:1")
    before = len(log_lines(one))
    one.sandbox.start("rlm:1")
    one.wait_for(lambda: service_is_ready(one.sandbox.state.ports[1].http), "the service is ready")
    one.wait_settled(topic)
    started = [json.loads(line) for line in log_lines(one)[before:] if line.startswith("{")]
    assert [line["event"] for line in started].count("starting") == 1
    # A slow machine may report a problem for as long as it needs to start, and no other problem.
    grave = [
        line
        for line in started
        if line["level"] != "info" and line["event"] != "problem" and "partition" not in line
    ]
    assert grave == []
