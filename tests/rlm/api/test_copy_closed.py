"""The call CopyClosed: each partition by its leader's service, and what nobody reports (H38)."""

import pytest
from grpc import aio

from kip405.errors import Busy, Invalid, NotFound
from kip405.ids import TopicPartition
from rlm.api.call_metadata import call_metadata
from rlm.tasks.copy_runs import CopyProgress, CopyReport, CopyTarget, Doing
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rsm_plugins.contract.status import error_of_call
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node, channel_to
from tests.rlm.topics.cluster import Cluster

WHO = call_metadata("tests", None)
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def report(partition: TopicPartition, why: str = "") -> CopyReport:
    return CopyReport(
        partition=partition,
        segments=2,
        size_bytes=3,
        first_uncopied_offset=4,
        local_log_start_offset=5,
        is_complete=not why,
        why=why,
    )


async def copy(
    node: Node, *partitions: int, topic: str = TOPIC, **more: object
) -> list[pb.CopyClosedResponse]:
    """Of these partitions, all without any."""
    targets = [pb.CopyTarget(topic=topic, partition=one) for one in partitions]
    request = pb.CopyClosedRequest(
        targets=targets or [pb.CopyTarget(topic=topic)],
        **more,  # type: ignore[arg-type]
    )
    async with channel_to(node.address) as channel:
        try:
            call = AdminServiceStub(channel).CopyClosed(request, metadata=WHO)
            return [row async for row in call]
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {node.address}") from error


def whys(rows: list[pb.CopyClosedResponse]) -> dict[int, str]:
    found = [row.partition for row in rows if row.HasField("partition")]
    assert all(row.complete == (not row.why) for row in found)
    return {row.partition: row.why for row in found}


async def enable(node: Node) -> None:
    async with channel_to(node.address) as channel:
        await AdminServiceStub(channel).EnableTopic(
            pb.EnableTopicRequest(topic=TOPIC), metadata=WHO
        )


async def test_one_call_copies_what_all_services_lead() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await two.service.settings.barrier(1)
        await enable(one)
        one.copies.events = [report(FIRST)]
        progress = CopyProgress(
            partition=SECOND,
            doing=Doing.COPYING,
            segments=1,
            segments_total=2,
            size_bytes=3,
            size_total_bytes=4,
            error="away",
        )
        two.copies.events = [progress, report(SECOND)]
        rows = await copy(one, keep_local_bytes=0)
        assert whys(rows) == {0: "", 1: ""}
        wanted = CopyTarget(partitions=frozenset({FIRST, SECOND}), keep_local_bytes=0)
        assert one.copies.asked == two.copies.asked == [wanted]
        (shown,) = [row.progress for row in rows if row.HasField("progress")]
        assert (shown.node_id, shown.doing, shown.error) == (2, "copying", "away")
        assert (shown.segments, shown.segments_total) == (1, 2)
        assert (shown.size_bytes, shown.size_total_bytes) == (3, 4)
        last = next(row.partition for row in rows if row.partition.partition == 1)
        assert (last.node_id, last.segments, last.size_bytes) == (2, 2, 3)
        assert (last.first_uncopied_offset, last.local_log_start_offset) == (4, 5)
        assert whys(await copy(one, 0, up_to_offset=7)) == {0: ""}
        assert len(two.copies.asked) == 1, "it leads none of what was asked for"
        assert one.copies.asked[-1] == CopyTarget(partitions=frozenset({FIRST}), up_to_offset=7)


async def test_h38_what_no_service_reports_is_not_done() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one:
        await enable(one)
        one.copies.events = [report(FIRST, "not trimmed: trim is off")]
        assert whys(await copy(one)) == {
            0: "not trimmed: trim is off",
            1: "the service of broker 2 has not reported it; ask again",
        }
        one.copies.events, one.copies.error = [], Busy("a copy with other options runs")
        assert whys(await copy(one, 0)) == {0: "a copy with other options runs; ask again"}


async def test_a_partition_is_asked_for_again_until_its_leader_knows_of_it() -> None:
    """A broker whose machine is busy leads nothing for a moment, and its service polls."""
    cluster = Cluster(leaders={1: -1})
    async with api_node(cluster, node_id=1) as one:
        await enable(one)
        one.copies.events = [report(FIRST)]

        def change(number: int) -> None:
            if number == 1:
                one.service.clock.advance(3_600_000)  # so long the others are copied
            elif number == 2:
                cluster.leaders[1] = 1
            elif number == 3:
                one.copies.events = [report(SECOND)]

        one.copies.before = change
        assert whys(await copy(one)) == {0: "", 1: ""}
        assert [len(target.partitions) for target in one.copies.asked] == [2, 1, 1]
        one.copies.events, one.copies.before = [], lambda _: None
        cluster.leaders[1], one.copies.asked = -1, []
        found = whys(await copy(one, 1))
        assert found == {1: "no leader; ask again"}
        assert len(one.copies.asked) > 20


async def test_wrong_targets_are_refused_before_anything_is_copied() -> None:
    async with api_node(Cluster()) as node:
        with pytest.raises(NotFound, match="is not enabled"):
            await copy(node)
        await enable(node)
        with pytest.raises(NotFound, match="no partition 7"):
            await copy(node, 0, 7)
        with pytest.raises(Invalid, match="one partition"):
            await copy(node, up_to_offset=7)
        async with channel_to(node.address) as channel:
            await AdminServiceStub(channel).DisableTopic(
                pb.DisableTopicRequest(topic=TOPIC), metadata=WHO
            )
        with pytest.raises(NotFound, match="its remote data: kept"):
            await copy(node)
        assert node.copies.asked == []
