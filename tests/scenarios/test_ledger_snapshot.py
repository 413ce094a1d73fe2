"""A service that was stopped, or killed, begins with its snapshot of the ledger."""

import pytest

from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.service_log import events_of

pytestmark = pytest.mark.integration


def _events(cluster: Cluster, position: int) -> list[str]:
    """What the service has logged since, of its snapshot."""
    events = [one["event"] for one in events_of(cluster.sandbox.layout.log("rlm:1"), position)]
    return [event for event in events if event.startswith("ledger_snapshot")]


def test_a_service_that_begins_again_reads_the_ledger_on_from_its_snapshot(one: Cluster) -> None:
    topic = fresh("resumed")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=5)
    one.wait_trimmed(topic)
    one.wait_copied(topic)
    log = one.sandbox.layout.log("rlm:1")
    for end in (one.sandbox.stop, one.sandbox.kill):
        segments = one.rlm_json("segments", topic)["segments"]
        end("rlm:1")
        position = log.stat().st_size
        one.sandbox.start("rlm:1")
        assert _events(one, position)[0] == "ledger_snapshot_loaded"
        assert one.rlm_json("segments", topic)["segments"] == segments
        assert_same(one.read_all(topic), rows)
    one.rlm("verify", topic)
