"""H39 on a real broker: a topic deleted and made again under its name is not the one that was."""

import pytest
from confluent_kafka import KafkaException

from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.eventually import json_comes_to

pytestmark = pytest.mark.integration


def recreate(one: Cluster, topic: str) -> None:
    """Delete the topic and create it again, once the broker has let its name go."""
    one.admin.delete_topics([topic])[topic].result(120)

    def created() -> bool:
        try:
            one.create_topic(topic)
        except KafkaException:
            return False
        return True

    one.wait_for(created, f"{topic} recreated")


def test_h39_the_old_one_is_gone_and_the_new_one_is_reported_as_not_tiered(one: Cluster) -> None:
    topic = fresh("again")
    one.create_topic(topic)
    one.enable(topic)
    one.fill(topic, mib=4)
    one.wait_trimmed(topic)
    [old] = [row for row in one.rlm_json("topics", "list")["topics"] if row["topic"] == topic]
    recreate(one, topic)
    rows = one.fill(topic, mib=3)

    found = json_comes_to(
        one,
        ("topics", "list"),
        lambda found: any(row["topic"] == topic and row["gone"] for row in found["topics"]),
    )
    [gone] = [row for row in found["topics"] if row["topic"] == topic]
    assert (gone["gone"], gone["topic_id"]) == (True, old["topic_id"])
    new_id = gone["present_topic_id"]
    assert new_id not in ("", old["topic_id"])
    for command in (("list",), ("describe", topic)):
        said = one.rlm("topics", *command)
        assert f"id {new_id}) is not tiered" in said.stderr, said.stderr
        assert old["topic_id"] in said.stdout
        assert "gone, was enabled" in said.stdout
    one.wait_for(
        lambda: f"id {new_id}) is not tiered" in str(one.rlm_json("status")), "status reports it"
    )
    assert_same(one.read_all(topic), rows)

    said = one.rlm("topics", "enable", topic, "--trim", "--local-retention-bytes", "1048576")
    assert old["topic_id"] in said.stderr
    one.wait_trimmed(topic)
    assert_same(one.read_all(topic), rows)
    described = one.rlm_json("topics", "describe", topic)
    assert (described["topic_id"], described["gone"]) == (new_id, False)
    one.wait_for(
        lambda: "not tiered" not in str(one.rlm_json("status")), "status reports it no more"
    )


def test_h39_disable_lets_a_deleted_topic_go(one: Cluster) -> None:
    topic = fresh("deleted")
    one.create_topic(topic)
    one.enable(topic)
    one.admin.delete_topics([topic])[topic].result(120)
    one.wait_for(lambda: one.rlm_json("topics", "describe", topic)["gone"], f"{topic} is gone")
    one.rlm("topics", "disable", topic)
    described = one.rlm_json("topics", "describe", topic)
    assert (described["state"], described["gone"]) == ("kept", True)
