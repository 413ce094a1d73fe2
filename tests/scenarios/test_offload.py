"""Thresholds, copies by command and topics by pattern on a real broker (KIP-1241, PIP-17)."""

import pytest

from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.eventually import copied_now

pytestmark = pytest.mark.integration


def test_a_topic_waits_for_its_threshold_and_is_copied_and_trimmed_by_command(
    one: Cluster,
) -> None:
    topic = fresh("thresholds")
    one.create_topic(topic)
    refused = one.rlm("topics", "enable", topic, "--copy-lag", "8d", check=False)
    assert refused.returncode == 2
    assert "must not be more than local.retention.ms=604800000" in refused.stderr
    one.rlm("topics", "enable", topic, "--trim", "--retention", "-1", "--copy-lag", "1h")
    described = one.rlm("topics", "describe", topic).stdout
    assert "1h old or at local retention by size (by the topic)" in described
    rows = one.fill(topic, mib=3)
    one.wait_for(
        lambda: "waiting for the copy lag" in one.rlm("status", topic).stdout, "segments that wait"
    )
    assert one.rlm_json("segments", topic)["segments"] == []
    assert one.status(topic)["alarms"] == []

    copied_now(one, f"{topic}:0")
    assert one.log_start(topic) == 0, "local retention has no limit"
    (row,) = copied_now(one, topic, "--keep-local", "0")
    start = one.log_start(topic)
    assert row["local_log_start_offset"] == row["first_uncopied_offset"] == start > 0
    assert_same(one.read_all(topic), rows)


def test_topics_are_enabled_by_pattern(one: Cluster) -> None:
    prefix = fresh("by-pattern")
    names = [f"{prefix}-a", f"{prefix}-b", f"{prefix}-c"]
    for name in names:
        policy = "compact" if name == names[2] else "delete"
        one.create_topic(name, configs={"cleanup.policy": policy})
    pattern = f"({prefix}|__).*"
    shown = one.rlm("topics", "enable", pattern, check=False)
    assert shown.returncode == 1
    assert "matches 2 topics that can be enabled" in shown.stderr
    assert "__" not in shown.stdout.replace(prefix, ""), "internal topics never match"
    listed = {row["topic"] for row in one.rlm_json("topics", "list")["topics"]}
    assert not listed.intersection(names)
    done = one.rlm_json("topics", "enable", pattern, "--deletion-lag", "1m", "--yes")
    assert [(row["topic"], bool(row["left_out"])) for row in done["topics"]] == [
        (names[0], False),
        (names[1], False),
        (names[2], True),
    ]
    for name in names[:2]:
        found = one.rlm_json("topics", "describe", name)["offload"]
        assert (found["deletion_lag_ms"], found["deletion_lag_of"]) == (60_000, "the topic")
