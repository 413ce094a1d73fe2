"""`rlm freeze` on a real broker: trims and sweeps stop within 5 s, copies and reads go on."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from rlm.clock import new_uuid
from tests.rlmm.builders import FINISHED, STARTED, segment
from tests.rlmm.running import running
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.ledger_reader import LedgerReader
from tests.scenarios.replicas import disk

pytestmark = pytest.mark.integration

_STOPS_WITHIN_S = 5.0
_TRIM_RUNS_S = 4.0
_GRACE_S = 10.0


def _status(cluster: Cluster, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.rlm_json("status", topic)
    return found


@pytest.mark.parametrize(
    "store_is_down",
    [
        pytest.param(False, id="store-up", marks=pytest.mark.long),
        pytest.param(True, id="store-down"),
    ],
)
def test_freeze_stops_trimming_within_5_s(one: Cluster, store_is_down: bool) -> None:
    topic, other = fresh("frozen"), fresh("moving")
    for name in (topic, other):
        one.create_topic(name)
        one.enable(name)
        one.fill(name, mib=3)
        one.wait_trimmed(name)
    if store_is_down:
        one.sandbox.kill("store")
    one.rlm("freeze", topic, "--why", "an audit")
    time.sleep(_STOPS_WITHIN_S)
    if store_is_down:
        one.sandbox.start("store")
    start, moving = one.log_start(topic), one.log_start(other)
    for name in (topic, other):
        one.fill(name, mib=3, first=3 * 1024)
    one.wait_trimmed(other, beyond=moving)
    time.sleep(_TRIM_RUNS_S)
    assert one.log_start(topic) == start
    status = _status(one, topic)
    [freeze] = status["freezes"]
    assert (freeze["topic"], freeze["why"]) == (topic, "an audit")
    assert "frozen" in status["partitions"][0]["trim_reason"]
    assert "an audit" in one.rlm("status", topic).stdout
    one.rlm("unfreeze", topic)
    one.wait_trimmed(topic, beyond=start)
    assert not _status(one, topic).get("freezes")


@pytest.mark.long
async def test_freeze_stops_sweeps(one: Cluster) -> None:
    """A dead attempt of another node stays as long as the freeze, and no longer."""
    topic = fresh("unswept")
    await asyncio.to_thread(one.create_topic, topic)
    await asyncio.to_thread(one.enable, topic)
    await asyncio.to_thread(one.fill, topic, mib=2)
    ledger = LedgerReader(one)

    await asyncio.to_thread(one.rlm, "freeze", topic)
    topic_id = disk(one, topic, 1).topic_id
    assert topic_id is not None

    def states(of: Uuid = topic_id) -> list[str]:
        ledger.read()
        return [one.state.name for one in ledger.of(of) if one.state is not None]

    topic_id_partition = TopicIdPartition(topic_id=topic_id, topic=topic, partition=0)
    async with running(one.direct) as zombie:
        dead = replace(
            segment(0, STARTED),
            segment_id=RemoteLogSegmentId(topic_id_partition=topic_id_partition, id=new_uuid()),
        )
        await zombie.manager.publish(dead, 0, -1)
    await asyncio.sleep(_GRACE_S + 2 * _TRIM_RUNS_S)
    assert STARTED.name in await asyncio.to_thread(states)
    await asyncio.to_thread(one.rlm, "unfreeze", topic)
    await asyncio.to_thread(
        one.wait_for, lambda: set(states()) == {FINISHED.name}, "the attempt is swept"
    )
    ledger.close()


def test_a_freeze_of_everything_outlives_the_service(one: Cluster) -> None:
    topic = fresh("everything")
    one.create_topic(topic)
    one.enable(topic)
    one.rlm("freeze", "--why", "all of it")
    try:
        one.sandbox.kill("rlm:1")
        one.sandbox.start("rlm:1")
        rows = one.fill(topic, mib=3)
        one.wait_for(lambda: bool(one.rlm_json("segments", topic)["segments"]), "copies go on")
        time.sleep(_TRIM_RUNS_S)
        assert one.log_start(topic) == 0
    finally:
        one.rlm("unfreeze")
    one.wait_trimmed(topic)
    assert_same(one.read_all(topic), rows)
