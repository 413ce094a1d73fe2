"""The call ExplainPartition and `rlm explain`: by the leader's service, in fields and sentences."""

import pytest

from kip405.errors import Invalid, NotFound
from rlm.v1 import admin_pb2 as pb
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import api_node
from tests.rlm.api.test_admin_service import call
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.plans.views import explain_view, remote_copy
from tests.rlm.topics.cluster import Cluster

COPY = remote_copy(start=50, next_offset=150)


async def test_a_partition_is_explained_by_its_leaders_service() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await as_json(one, "topics", "enable", TOPIC)
        await two.service.settings.barrier(1)
        for partition in (0, 1):
            request = pb.ExplainPartitionRequest(topic=TOPIC, partition=partition, offset=210)
            answer = await call(one, "ExplainPartition", request)
            assert (answer.location, answer.readable) == ("local", True)
    assert one.explanations.asked == [(0, 210)]
    assert two.explanations.asked == [(1, 210)]


async def test_each_answer_has_a_field() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        node.explanations.view = explain_view(copy_of_offset=COPY, frozen="orphans")
        shown = await as_json(node, "explain", TOPIC, "-p", "0", "60")
    segment, sentences = shown.pop("segment"), shown.pop("sentences")
    assert (segment["start_offset"], segment["next_offset"]) == (50, 150)
    assert (segment["objects_stem"], segment["state"]) == ("c/orders/0", "COPY_SEGMENT_FINISHED")
    why = "the partition is frozen: orphans"
    assert f"It is not readable through the proxy now: {why}." in sentences
    assert shown == {
        "topic": TOPIC,
        "partition": 0,
        "leader": 1,
        "leader_epoch": 5,
        "offsets": {
            "local_log_start_offset": 100,
            "last_stable_offset": 320,
            "local_log_end_offset": 350,
            "remote_log_start_offset": 50,
            "remote_log_end_offset": 200,
        },
        "high_watermark": 340,
        "offset": 60,
        "location": "remote",
        "readable": False,
        "unreadable_reason": why,
        "store": "hot",
        "remote_since_ms": 60_000,
        "remote_log_start_cause": "retention",
        "lag_segments": 1,
        "lag_bytes": 1_000,
        "copy_reason": "closed segments are to be copied",
        "trim_reason": "all is within local retention",
        "frozen": "orphans",
    }


async def test_h38_without_an_offset_location_and_readable_are_not_set() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        node.explanations.view = explain_view(remote_log_start_offset=None, remote_next_offset=None)
        shown = await as_json(node, "explain", TOPIC, "-p", "0")
        lines = (await asked(node, "explain", TOPIC, "-p", "0")).stdout.splitlines()
    assert (shown["offset"], shown["readable"], shown["location"]) == (None, None, "")
    assert shown["remote_since_ms"] is None and "segment" not in shown
    assert shown["offsets"]["remote_log_start_offset"] == -1
    assert shown["offsets"]["remote_log_end_offset"] == -1
    assert lines == shown["sentences"]
    assert lines[0] == "orders-0 is led by broker 1 under leader epoch 5."


async def test_a_local_segment_has_its_offsets() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        closed = await as_json(node, "explain", TOPIC, "-p", "0", "210")
        active = await as_json(node, "explain", TOPIC, "-p", "0", "310")
    assert closed["local_segment"] == {"base_offset": 200, "next_offset": 300, "size_bytes": 1_000}
    assert active["local_segment"] == {"base_offset": 300, "next_offset": None, "size_bytes": 1_000}


async def test_what_cannot_be_explained_is_one_line() -> None:
    async with api_node(Cluster()) as node:
        unknown = await asked(node, "explain", TOPIC, "-p", "0")
        assert_one_line(unknown, "not enabled", status=1)
        await as_json(node, "topics", "enable", TOPIC)
        assert_one_line(await asked(node, "explain", TOPIC, "-p", "9"), "partition 9", status=1)
        assert_one_line(await asked(node, "explain", TOPIC, "-p", "0", "x"), "OFFSET", status=2)
        request = pb.ExplainPartitionRequest(topic=TOPIC, partition=0, offset=-1)
        with pytest.raises(Invalid, match="-1 is no offset"):
            await call(node, "ExplainPartition", request)
        with pytest.raises(NotFound):
            await call(node, "ExplainPartition", pb.ExplainPartitionRequest(topic="absent"))
    assert node.explanations.asked == []
