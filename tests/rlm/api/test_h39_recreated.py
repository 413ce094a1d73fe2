"""H39 at the API: a topic that is gone is shown as gone, what has its name as not tiered."""

from typing import Any

from grpc import aio

from kip405.ids import Uuid
from rlm.api.call_metadata import call_metadata
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.harness import Node, api_node, channel_to
from tests.rlm.topics.cluster import Cluster

NEW_ID = Uuid(bytes(range(100, 116)))
WHO = call_metadata("tests", None)


async def call(node: Node, name: str, request: object) -> Any:
    async with channel_to(node.address) as channel:
        stub: aio.UnaryUnaryMultiCallable[Any, Any] = getattr(AdminServiceStub(channel), name)
        return await stub(request, metadata=WHO)


async def test_h39_list_and_describe_show_the_one_that_is_gone_by_its_id() -> None:
    cluster = Cluster()
    async with api_node(cluster) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC, trim=True))
        (here,) = (await call(node, "ListTopics", pb.ListTopicsRequest())).topics
        assert (here.gone, here.partitions, list(here.warnings)) == (False, 2, [])
        cluster.recreate(NEW_ID)
        (gone,) = (await call(node, "ListTopics", pb.ListTopicsRequest())).topics
        assert (gone.gone, gone.partitions) == (True, 0)
        assert (gone.topic_id, gone.present_topic_id) == (TOPIC_ID.raw, NEW_ID.raw)
        (warning,) = gone.warnings
        assert f"id {NEW_ID}) is not tiered" in warning
        assert f"rlm topics enable {TOPIC}" in warning
        described = await call(node, "DescribeTopic", pb.DescribeTopicRequest(topic=TOPIC))
        assert described == gone


async def test_h39_the_present_one_is_described_once_it_is_enabled() -> None:
    cluster = Cluster()
    async with api_node(cluster) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC, trim=True))
        cluster.recreate(NEW_ID)
        enabled = await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        assert (enabled.topic_id, enabled.gone, enabled.mode) == (NEW_ID.raw, False, "copy")
        assert str(TOPIC_ID) in enabled.warnings[0]
        rows = (await call(node, "ListTopics", pb.ListTopicsRequest())).topics
        assert {row.topic_id: row.gone for row in rows} == {TOPIC_ID.raw: True, NEW_ID.raw: False}
        (text,) = next(row.warnings for row in rows if row.gone)
        assert "not tiered" not in text
        described = await call(node, "DescribeTopic", pb.DescribeTopicRequest(topic=TOPIC))
        assert (described.topic_id, described.gone) == (NEW_ID.raw, False)


async def test_h39_a_deleted_topic_is_gone_and_may_be_disabled() -> None:
    cluster = Cluster()
    async with api_node(cluster) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC, trim=True))
        cluster.delete()
        described = await call(node, "DescribeTopic", pb.DescribeTopicRequest(topic=TOPIC))
        assert (described.gone, described.present_topic_id) == (True, b"")
        assert str(TOPIC_ID) in described.warnings[0]
        kept = await call(node, "DisableTopic", pb.DisableTopicRequest(topic=TOPIC))
        assert (kept.state, kept.gone, kept.topic_id) == ("kept", True, TOPIC_ID.raw)


async def test_h39_a_silent_broker_makes_no_topic_gone() -> None:
    cluster = Cluster()
    async with api_node(cluster) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        cluster.is_down = True
        (row,) = (await call(node, "ListTopics", pb.ListTopicsRequest())).topics
        assert (row.gone, list(row.warnings)) == (False, [])
