"""Mode copy: nothing in the cluster is altered, and what the broker's retention removed is read."""

import pytest

from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.traffic import SteadyProducer

pytestmark = pytest.mark.integration

_KIB_PER_S = 700


def test_h19_enabling_and_disabling_leave_the_topics_configuration_alone(one: Cluster) -> None:
    topic = fresh("untouched")
    one.create_topic(topic, configs={"retention.ms": "86400000", "max.message.bytes": "2000000"})
    before = one.topic_config(topic)
    one.rlm("topics", "enable", topic)
    one.fill(topic, mib=2)
    one.wait_for(lambda: bool(one.rlm_json("segments", topic)["segments"]), "a copy")
    [listed] = [row for row in one.rlm_json("topics", "list")["topics"] if row["topic"] == topic]
    assert (listed["mode"], listed.get("trim", False)) == ("copy", False)
    assert one.topic_config(topic) == before
    assert one.log_start(topic) == 0
    one.rlm("topics", "disable", topic)
    assert one.topic_config(topic) == before


@pytest.mark.parametrize(
    "retention_s", [15, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(400)])]
)
def test_h19_what_the_brokers_own_retention_removed_is_read_through_the_proxy(
    one: Cluster, retention_s: int
) -> None:
    """Records keep coming, or the broker would remove its active segment as well."""
    topic = fresh("copied")
    one.create_topic(topic, configs={"retention.ms": str(retention_s * 1000)})
    one.rlm("topics", "enable", topic, "--retention", "-1")
    before = one.topic_config(topic)
    with SteadyProducer(one, topic, [0], kib_per_s=_KIB_PER_S) as load:
        removed = one.wait_trimmed(topic, beyond=2_048, timeout_s=3 * retention_s + 120)
        rows = sorted(load.rows, key=lambda row: row.offset)
        read = one.read_all(topic, end={0: rows[-1].offset + 1})
    assert_same(read, rows)
    assert removed > 2_048
    assert not load.failures
    assert one.topic_config(topic) == before
    [status] = one.rlm_json("status", topic)["partitions"]
    moved = [text for text in status.get("alarms", ()) if "log start was moved" in text]
    assert not moved, "an expected move of the log start is not an alarm"
