"""`rlm freeze` on a real broker: trims and sweeps stop within 5 s, copies and reads go on."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import CustomMetadata
from rlm.clock import new_uuid
from tests.rlmm.builders import FINISHED, STARTED, segment
from tests.rlmm.running import running
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.ledger_reader import LedgerReader
from tests.scenarios.replicas import disk
from tests.scenarios.slowness import Slowness

pytestmark = pytest.mark.integration

_STOPS_WITHIN_S = 5.0


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
def test_freeze_stops_trimming_within_5_s(
    one: Cluster, tmp_path: Path, store_is_down: bool
) -> None:
    topic, other = fresh("frozen"), fresh("moving")
    for name in (topic, other):
        one.create_topic(name)
        one.enable(name)
        one.fill(name, mib=3)
        one.wait_trimmed(name)
    if store_is_down:
        one.sandbox.kill("store")
    one.rlm("freeze", topic, "--why", "an audit")
    with Slowness(tmp_path) as slowness:
        time.sleep(_STOPS_WITHIN_S)
    time.sleep(slowness.late_s)  # that the service has lost, too
    if store_is_down:
        one.sandbox.start("store")
    start, moving = one.log_start(topic), one.log_start(other)
    for name in (topic, other):
        one.fill(name, mib=3, first=3 * 1024)
    one.wait_trimmed(other, beyond=moving)
    one.wait_copied(topic)
    one.wait_for_expiration_tasks()
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
    """A dead attempt of another node stays as long as the freeze, and no longer; that of a topic
    which is not frozen goes.
    """
    topic, other = fresh("unswept"), fresh("swept")
    for name in (topic, other):
        await asyncio.to_thread(one.create_topic, name)
        await asyncio.to_thread(one.enable, name)
        await asyncio.to_thread(one.fill, name, mib=2)
    ledger = LedgerReader(one)

    await asyncio.to_thread(one.rlm, "freeze", topic)

    def states(of: str) -> set[str]:
        ledger.read()
        return {row.state.name for row in ledger.of(_id_of(one, of)) if row.state is not None}

    await asyncio.to_thread(one.wait_copied, topic)
    await asyncio.to_thread(ledger.read)
    [copied, *_] = ledger.of(_id_of(one, topic))
    assert copied.metadata is not None
    store_id = CustomMetadata.decode(copied.metadata.custom_metadata or b"").store_id
    async with running(one.direct) as zombie:
        for name in (topic, other):
            partition = TopicIdPartition(topic_id=_id_of(one, name), topic=name, partition=0)
            dead = replace(
                segment(0, STARTED),
                segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=new_uuid()),
                broker_id=2,
                custom_metadata=CustomMetadata(store_id=store_id).encode(),
            )
            await zombie.manager.publish(dead, 0, -1)
    for name in (other, topic):
        if name == topic:
            assert STARTED.name in await asyncio.to_thread(states, topic)
            await asyncio.to_thread(one.rlm, "unfreeze", topic)
        await asyncio.to_thread(
            one.wait_for,
            partial(_is_swept, states, name),
            f"the attempt of {name} is swept",
        )
    ledger.close()


def _is_swept(states: Callable[[str], set[str]], topic: str) -> bool:
    return states(topic) == {FINISHED.name}


def _id_of(cluster: Cluster, topic: str) -> Uuid:
    found = disk(cluster, topic, 1).topic_id
    assert found is not None
    return found


def test_a_freeze_of_everything_outlives_the_service(one: Cluster) -> None:
    topic = fresh("everything")
    one.create_topic(topic)
    one.enable(topic)
    one.rlm("freeze", "--why", "all of it")
    try:
        rows = one.fill(topic, mib=3)
        one.wait_copied(topic)
        one.sandbox.kill("rlm:1")
        one.sandbox.start("rlm:1")
        one.wait_for(
            lambda: "frozen" in one.status(topic)["trim_reason"], "an expiration task has run"
        )
        assert one.log_start(topic) == 0
        rows += one.fill(topic, mib=1, first=3 * 1024)
        one.wait_copied(topic)
        assert one.log_start(topic) == 0
    finally:
        one.rlm("unfreeze")
    one.wait_trimmed(topic)
    assert_same(one.read_all(topic), rows)
