"""The call Verify: own events, those of peers, and what nobody reports (H38)."""

import asyncio
from collections.abc import Sequence

import pytest
from grpc import aio

from kip405.errors import Busy, NotFound, Unavailable
from kip405.ids import TopicPartition, Uuid
from rlm.api.call_metadata import call_metadata
from rlm.plans.verification import Issue, IssueKind, PartitionOffsets
from rlm.tasks.verification import PartitionReport
from rlm.tasks.verify_runs import Progress
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rsm_plugins.contract.status import error_of_call
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node, channel_to
from tests.rlm.topics.cluster import Cluster

WHO = call_metadata("tests", None)
OFFSETS = PartitionOffsets(
    local_log_start_offset=3,
    last_stable_offset=4,
    local_log_end_offset=5,
    remote_log_start_offset=1,
    remote_log_end_offset=2,
)


def report(
    partition: int, *, findings: int = 0, unchecked: tuple[str, ...] = ()
) -> PartitionReport:
    return PartitionReport(
        partition=TopicPartition(TOPIC, partition),
        segments=7,
        findings=findings,
        offsets=OFFSETS,
        unchecked=(),
    )


ISSUE = Issue(
    kind=IssueKind.OBJECTS,
    partition=TopicPartition(TOPIC, 1),
    start_offset=10,
    next_offset=20,
    text="it is missing",
    action="restore it",
    segment_id=Uuid(b"s" * 16),
    object_name="a/b",
)


async def verify(node: Node, **request: object) -> list[pb.VerifyResponse]:
    async with channel_to(node.address) as channel:
        try:
            call = AdminServiceStub(channel).Verify(
                pb.VerifyRequest(**request),  # type: ignore[arg-type]
                metadata=WHO,
            )
            return [row async for row in call]
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {node.address}") from error


def partitions(rows: Sequence[pb.VerifyResponse]) -> dict[int, list[str]]:
    """Reason why it was not checked, by partition."""
    return {
        row.partition.partition: list(row.partition.unchecked)
        for row in rows
        if row.HasField("partition")
    }


async def enable(node: Node) -> None:
    async with channel_to(node.address) as channel:
        await AdminServiceStub(channel).EnableTopic(
            pb.EnableTopicRequest(topic=TOPIC), metadata=WHO
        )


async def test_one_call_verifies_what_all_services_lead() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await enable(one)
        one.runs.events = [report(0)]
        progress = Progress(segments=1, segments_total=2, size_bytes=3, size_total_bytes=4)
        two.runs.events = [progress, ISSUE, report(1, findings=1)]
        rows = await verify(one, topic=TOPIC, deep=True)
        assert one.runs.asked == two.runs.asked == [(TOPIC, True)]
        assert partitions(rows) == {0: [], 1: []}
        (found,) = [row.issue for row in rows if row.HasField("issue")]
        assert (found.kind, found.is_finding, found.partition) == ("objects", True, 1)
        assert (found.start_offset, found.end_offset) == (10, 20)
        assert (found.segment_id, found.object_name) == (b"s" * 16, "a/b")
        assert (found.text, found.action) == ("it is missing", "restore it")
        (shown,) = [row.progress for row in rows if row.HasField("progress")]
        assert (shown.node_id, shown.segments, shown.size_total_bytes) == (2, 1, 4)
        last = next(row.partition for row in rows if row.partition.partition == 1)
        assert (last.node_id, last.findings, last.segments) == (2, 1, 7)
        offsets = last.offsets
        assert (offsets.remote_log_start_offset, offsets.remote_log_end_offset) == (1, 2)
        assert (offsets.local_log_start_offset, offsets.last_stable_offset) == (3, 4)
        assert offsets.local_log_end_offset == 5
        own = await verify(one, local_only=True)
        assert partitions(own) == {0: []}


async def test_h38_what_no_service_reports_is_not_clean() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one:
        await enable(one)
        one.runs.events = [report(0)]
        assert partitions(await verify(one)) == {
            0: [],
            1: ["the service of broker 2 has not reported it"],
        }
        one.runs.error = Busy("2 verifications run")
        one.runs.events = []
        assert "2 verifications run" in partitions(await verify(one))[0][0]


async def test_h38_a_peer_that_does_not_answer_is_named() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await enable(one)
        one.runs.events = [report(0)]
        two.runs.error = Unavailable("its disk is gone")
        assert "its disk is gone" in partitions(await verify(one))[1][0]


async def test_h07_a_topic_that_the_broker_does_not_describe_is_not_clean() -> None:
    cluster = Cluster()
    async with api_node(cluster) as node:
        await enable(node)
        cluster.delete()
        assert partitions(await verify(node)) == {
            -1: ["the broker does not describe the topic (H7)"]
        }
        cluster.is_down = True
        (why,) = partitions(await verify(node))[-1]
        assert "the broker does not say what there is" in why


async def test_a_topic_that_is_not_enabled_is_not_found() -> None:
    async with api_node(Cluster()) as node:
        with pytest.raises(NotFound, match="not enabled"):
            await verify(node, topic=TOPIC)
        assert node.runs.asked == []


async def test_a_call_that_is_cancelled_stops_every_service() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await enable(one)
        one.runs.events, two.runs.events = [report(0)], [report(1)]
        one.runs.hangs = two.runs.hangs = True
        async with channel_to(one.address) as channel, asyncio.timeout(60):
            call = AdminServiceStub(channel).Verify(pb.VerifyRequest(), metadata=WHO)
            async for row in call:
                if row.partition.partition == 1:
                    break
            call.cancel()
            await one.runs.ended.wait()
            await two.runs.ended.wait()
