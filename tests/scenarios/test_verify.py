"""`rlm verify` against a real broker: what is whole, lost, damaged, and what cannot be asked."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.eventually import comes_to, words_of
from tests.scenarios.objects import RECORDS, names_of, objects_of

pytestmark = pytest.mark.integration
_UNCHECKED = 2
"""The exit status where something could not be asked."""


def _verify(cluster: Cluster, *arguments: str, status: int) -> dict[str, Any]:
    """Once all could be asked, if that is expected."""
    command = ("verify", *arguments, "--json")
    done = comes_to(
        cluster, command, lambda done: status == _UNCHECKED or done.returncode != _UNCHECKED
    )
    assert done.returncode == status, words_of(done)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _problems(cluster: Cluster, topic: str) -> list[str]:
    """Their kinds."""
    return [problem["kind"] for problem in cluster.rlm_json("status", topic)["problems"]]


def _file(cluster: Cluster, topic: str) -> Path:
    """The topic's first object with records, in the sandbox's local store."""
    names = sorted(name for name in names_of(objects_of(cluster), topic) if name.endswith(RECORDS))
    root = Path(unquote(urlsplit(str(cluster.sandbox.json["store"]["uri"])).path))
    return root / names[0]


def test_h11_verify_finds_what_is_lost_or_damaged_and_nothing_else(one: Cluster) -> None:
    topic = fresh("verified")
    one.create_topic(topic)
    one.enable(topic)
    rows = one.fill(topic, mib=3)
    one.wait_settled(topic)  # a copy that the kill cut off would be a second one of its segment
    one.sandbox.kill("rlm:1")
    one.sandbox.start("rlm:1")
    start = one.wait_settled(topic)
    assert start > 0

    clean = _verify(one, topic, "--deep", status=0)
    (partition,) = clean["partitions"]
    offsets = partition["offsets"]
    assert offsets["remote_log_start_offset"] == 0
    assert offsets["remote_log_end_offset"] >= offsets["local_log_start_offset"] == start
    assert offsets["local_log_end_offset"] == offsets["last_stable_offset"] == len(rows)
    assert partition["segments"] > 1

    file = _file(one, topic)
    whole = file.read_bytes()
    file.unlink()
    (issue,) = _verify(one, topic, status=1)["issues"]
    assert (issue["kind"], issue["start_offset"]) == ("objects", 0)
    assert str(file.with_suffix("")).endswith(issue["object_name"])
    one.wait_for(lambda: "segment-lost" in _problems(one, topic), "the problem in the status")
    file.write_bytes(whole)
    _verify(one, topic, status=0)
    one.wait_for(lambda: one.status(topic)["alarms"] == [], "the next trim task finds it too")

    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    _verify(one, topic, status=0)  # the size is right
    found = _verify(one, topic, "--deep", status=1)["issues"]
    assert {one["kind"] for one in found} == {"damaged"}
    assert str(file).endswith(found[0]["object_name"])
    file.write_bytes(whole)
    _verify(one, topic, "--deep", status=0)

    one.sandbox.kill("store")
    try:
        away = _verify(one, topic, status=2)
        assert away["findings"] == 0
        (unchecked,) = [row["unchecked"] for row in away["partitions"]]
        assert any("segments in store" in why for why in unchecked)
    finally:
        one.sandbox.start("store")
    comes_to(one, ("verify", topic, "--json"))  # the store is back
    assert_same(one.read_all(topic), rows)


def test_h11_a_lost_object_is_an_alarm_without_a_reader(tmp_path: Path) -> None:
    """The log has its records no longer, and nobody asks for them."""
    often = Override(scope="rlm", key="verify.interval.ms", value="2000")
    sandbox = Sandbox.up(tmp_path, with_workers(SandboxSpec(jvm="quick", overrides=(often,))))
    try:
        with Cluster(sandbox) as cluster:
            topic = fresh("unread")
            cluster.create_topic(topic)
            cluster.enable(topic)
            cluster.fill(topic, mib=3)
            assert cluster.wait_settled(topic) > 0
            file = _file(cluster, topic)
            whole = file.read_bytes()
            file.unlink()

            lost = "segment-lost"
            cluster.wait_for(lambda: lost in _problems(cluster, topic), "the alarm")
            file.write_bytes(whole)
            cluster.wait_for(lambda: lost not in _problems(cluster, topic), "the end of the alarm")
    finally:
        sandbox.down(delete=True)
