"""Somebody else bounds a taken-over retention on a real broker (H14).

A tool that insists is one alarm and two reverts, and nothing is trimmed; an operator may accept
what it sets. What the broker deletes
before it is copied is copied from files that the service has opened.
"""

import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.objects import finished_segments
from tests.scenarios.test_h38_problems import Operator

pytestmark = pytest.mark.integration
_BOUND = "3600000"
_EVERY_S = 5.0
_LEFT = "after each of two reverts"
"""So the alarm says when the service reverts no more."""


class GitOps:
    """Sets its own retention.ms every 5 s, wherever it finds another; `sets` counts."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sets = 0

    def __enter__(self) -> "GitOps":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            if retention_ms(self._cluster, self._topic) != _BOUND:
                self.sets += 1
                bound(self._cluster, self._topic, _BOUND)
            if self._end.wait(_EVERY_S):
                return


def bound(cluster: Cluster, topic: str, value: str, name: str = "retention.ms") -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result(120)


def retention_ms(cluster: Cluster, topic: str) -> str:
    return str(cluster.topic_config(topic)["retention.ms"][0])


def held(cluster: Cluster) -> list[Path]:
    """The names of open segment files."""
    return list(Path(cluster.sandbox.json["dir"]).glob("rlm-1*/**/held/*/*.log"))


def alarms(operator: Operator, topic: str) -> list[str]:
    rows = operator.health()["problems"]
    return [
        row["text"]
        for row in rows
        if (row["kind"], row["subject"]) == ("retention-reverted", f"topic {topic}")
    ]


def test_h14_gitops_that_insists_is_not_fought_and_nothing_is_trimmed(one: Cluster) -> None:
    topic, operator = fresh("gitops"), Operator(one)
    one.create_topic(topic)
    one.enable(topic)
    with GitOps(one, topic) as gitops:
        one.wait_for(lambda: len(alarms(operator, topic)) == 1, "the alarm")
        one.fill(topic, mib=4)
        one.wait_copied(topic)
        one.wait_for(lambda: _LEFT in "".join(alarms(operator, topic)), "it is left as it is")
        assert retention_ms(one, topic) == _BOUND
        assert gitops.sets == 3
    assert len(alarms(operator, topic)) == 1
    bounded = "a broker's own retention is bounded"
    one.wait_for(lambda: bounded in one.status(topic)["trim_reason"], bounded)
    assert one.log_start(topic) == 0
    one.rlm("topics", "accept-retention", topic, "--yes")
    one.wait_for(lambda: retention_ms(one, topic) == "-1", "the broker's own is off")
    one.wait_for(lambda: alarms(operator, topic) == [], "the alarm ends")
    assert one.rlm_json("topics", "describe", topic)["retention_ms"] == int(_BOUND)
    one.wait_for(lambda: "somebody bounded it" in one.status(topic)["trim_reason"], "trims wait on")
    assert one.log_start(topic) == 0


def test_h14_what_the_broker_deletes_while_the_store_is_away_is_copied_later(one: Cluster) -> None:
    topic, operator = fresh("bounded"), Operator(one)
    one.create_topic(topic)
    one.enable(topic, "--trim")
    one.sandbox.kill("plugin:1")
    try:
        rows = one.fill(topic, mib=3)
        logs = [log for path in one.sandbox.log_dirs() for log in path.glob(f"{topic}-0/*.log")]

        def opens() -> bool:
            """Whether all that is closed is open, and stays so: the service has set the retention
            back as often as it does. With each time it lets the files go.
            """
            if one.topic_config(topic)["retention.ms"][0] != _BOUND:
                bound(one, topic, _BOUND)
            is_left = _LEFT in "".join(alarms(operator, topic))
            return is_left and len(held(one)) >= len(logs) - 1

        one.wait_for(opens, "the files are open")

        def deletes() -> bool:
            """Whether the broker has deleted; the service may set it back before it does."""
            if one.topic_config(topic)["retention.bytes"][0] != "1":
                bound(one, topic, "1", name="retention.bytes")  # deletes all that is closed
            return one.log_start(topic) > 0

        one.wait_for(deletes, "the broker deletes what is not copied")
        bound(one, topic, "-1", name="retention.bytes")
    finally:
        one.sandbox.start("plugin:1")
    one.wait_copied(topic)
    assert finished_segments(one, topic)[0].start_offset == 0
    assert_same(one.read_all(topic), rows)
