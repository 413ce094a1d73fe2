"""AdminService: verbs forwarded to the partition-0 leader, the whole cluster's status, adoption."""

from dataclasses import replace
from typing import Any

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2

from kip405.acls import topic_acl
from kip405.errors import Elsewhere, Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.api.call_metadata import FORWARDED_KEY, call_metadata
from rlm.api.server import ApiServer
from rlm.plans.problems import Problem, ProblemKind
from rlm.tasks.verify_runs import Progress, RunningVerify
from rlm.v1 import admin_pb2 as pb
from rlm.v1.admin_pb2_grpc import AdminServiceStub
from rlmm.settings_records import TrimRecord
from rsm_plugins.contract.status import error_of_call
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.store import STORE_ID
from tests.rlm.api.harness import Log, Node, api_node, channel_to
from tests.rlm.topics.cluster import Cluster

WHO = call_metadata("tests", None)


async def call(node: Node, name: str, request: object, metadata: Any = WHO) -> Any:
    async with channel_to(node.address) as channel:
        try:
            return await getattr(AdminServiceStub(channel), name)(request, metadata=metadata)
        except aio.AioRpcError as error:
            raise error_of_call(error, f"service at {node.address}") from error


async def test_h14_verbs_are_done_by_the_partition_0_leaders_service() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        enable = pb.EnableTopicRequest(topic=TOPIC, trim=True, local_retention_ms=5)
        answer = await call(two, "EnableTopic", enable)
        assert (answer.mode, answer.trim, answer.partitions) == ("tier", True, 2)
        assert [node_id for node_id, *_ in cluster.alters] == [1]
        off = await call(two, "SetTrim", pb.SetTrimRequest(topic=TOPIC, on=False))
        assert "grows from now on" in off.warnings[0]
        listed = await call(two, "ListTopics", pb.ListTopicsRequest())
        assert [(row.topic, row.trim) for row in listed.topics] == [(TOPIC, False)]
        forwarded = (*WHO, (FORWARDED_KEY, "rlm-9"))
        with pytest.raises(Elsewhere) as caught:
            await call(two, "DisableTopic", pb.DisableTopicRequest(topic=TOPIC), forwarded)
        assert caught.value.leader_address == one.address
        kept = await call(two, "DisableTopic", pb.DisableTopicRequest(topic=TOPIC))
        assert kept.state == "kept"
        assert {node_id for node_id, *_ in cluster.alters} == {1}


async def test_h40_every_leaders_service_proves_its_own_rights() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        cluster.denied = {(2, topic_acl("Delete", TOPIC))}
        enable = pb.EnableTopicRequest(topic=TOPIC, trim=True)
        with pytest.raises(
            Invalid, match=r"nothing was altered: .*operation Delete, .*Topic:orders"
        ):
            await call(one, "EnableTopic", enable)
        proof = pb.ProveAccessRequest(topic=TOPIC, tier=True)
        (missing,) = (await call(two, "ProveAccess", proof)).missing
        assert (missing.principal, missing.operation) == ("the service's principal", "Delete")
        assert (missing.resource_type, missing.resource_name) == ("Topic", TOPIC)
        assert cluster.alters == []
        cluster.denied = set()
        assert (await call(one, "EnableTopic", enable)).trim


async def test_a_leader_whose_service_is_silent_is_unavailable() -> None:
    cluster = Cluster(leader=3)
    async with api_node(cluster, node_id=1) as one:
        with pytest.raises(Unavailable, match="broker 3 has never said"):
            await call(one, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))


async def test_bad_values_name_what_is_allowed() -> None:
    async with api_node(Cluster()) as node:
        with pytest.raises(Invalid, match="giveback goes with trim off"):
            await call(node, "SetTrim", pb.SetTrimRequest(topic=TOPIC, on=True, giveback=True))
        with pytest.raises(Invalid, match="must not be more than"):
            request = pb.EnableTopicRequest(topic=TOPIC, retention_ms=1, local_retention_ms=2)
            await call(node, "EnableTopic", request)
        with pytest.raises(NotFound, match="not enabled"):
            await call(node, "DescribeTopic", pb.DescribeTopicRequest(topic=TOPIC))
        with pytest.raises(NotFound, match="nope"):
            await call(node, "Status", pb.StatusRequest(topic="nope"))


async def test_h35_a_topic_is_described_with_what_its_brokers_may_lose() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        describe = pb.DescribeTopicRequest(topic=TOPIC)
        unknown = await call(node, "DescribeTopic", describe)
        assert not unknown.HasField("min_insync_replicas")
        assert not unknown.HasField("unclean_leader_election")
        assert list(unknown.warnings) == []
        cluster.configs[TOPIC] |= {
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "true",
        }
        found = await call(node, "DescribeTopic", describe)
        assert (found.min_insync_replicas, found.unclean_leader_election) == (1, True)
        assert [text.split(" ")[0] for text in found.warnings] == [
            "min.insync.replicas",
            "unclean.leader.election.enable",
        ]
        listed = await call(node, "ListTopics", pb.ListTopicsRequest())
        assert not listed.topics[0].HasField("min_insync_replicas")
        cluster.is_down = True
        assert not (await call(node, "DescribeTopic", describe)).HasField("min_insync_replicas")


async def test_h40_a_topic_is_described_without_the_right_to_see_its_configuration() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        cluster.denied.add((1, topic_acl("DescribeConfigs", TOPIC)))
        found = await call(node, "DescribeTopic", pb.DescribeTopicRequest(topic=TOPIC))
        assert (found.topic, found.HasField("min_insync_replicas")) == (TOPIC, False)


async def test_status_asks_peers_and_shows_those_that_are_silent() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await call(one, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        await call(two, "Freeze", pb.FreezeRequest(topic=TOPIC, why="maintenance"))
        answer = await call(two, "Status", pb.StatusRequest())
        assert [(row.partition, row.leader) for row in answer.partitions] == [(0, 1), (1, 1)]
        assert [(row.node_id, row.reachable) for row in answer.services] == [(1, True), (2, True)]
        assert [row.HasField("copying") for row in answer.services] == [True, True]
        progress = Progress(segments=1, segments_total=2, size_bytes=0, size_total_bytes=0)
        one.runs.verifying = (RunningVerify(topic=TOPIC, deep=True, progress=progress),)
        answer = await call(two, "Status", pb.StatusRequest())
        [verification] = answer.services[0].verifications
        assert (verification.topic, verification.progress.segments_total) == (TOPIC, 2)
        (freeze,) = answer.freezes
        assert (freeze.topic, freeze.by, freeze.why) == (TOPIC, "tests", "maintenance")
        own = await call(two, "Status", pb.StatusRequest(local_only=True))
        assert not own.partitions
    async with api_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        answer = await call(two, "Status", pb.StatusRequest())
        assert [row.reachable for row in answer.services] == [False, True]
        assert [row.alive for row in answer.services] == [True, True], "it was heard just now"
        assert not answer.services[0].HasField("copying"), "what it has to copy is not known"
        assert "not reachable" in answer.services[0].problems[0]
        [alarm] = answer.problems
        assert (alarm.kind, alarm.subject) == ("peer-unreachable", "node 1")
        of_one = next(
            record for record, _ in two.service.settings.view.services() if record.node_id == 1
        )
        await two.service.settings.publish(of_one)
        two.service.clock.advance(31_000)
        dead = await call(two, "Status", pb.StatusRequest())
        assert [row.alive for row in dead.services] == [False, True]
        assert not dead.problems, "its peers report a silent one, where that is a problem"
        assert [row.last_error for row in answer.partitions] == [
            "its leader's service has not reported it (yet)"
        ] * 2


async def test_h38_a_status_shows_a_partition_as_it_is_now() -> None:
    async with api_node(Cluster(), node_id=1) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        request = pb.StatusRequest(local_only=True)
        assert (await call(node, "Status", request)).partitions[0].lag_bytes == 2048
        node.statuses.lag_bytes = None
        assert not (await call(node, "Status", request)).partitions[0].HasField("lag_bytes")


async def test_h38_the_time_until_a_loss_passes_from_one_status_to_the_next() -> None:
    async with api_node(Cluster(), node_id=1) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        node.statuses.loss_at_ms = node.service.clock.now_ms() + 60_000
        [kept, _] = node.statuses.led(())
        node.statuses.led = lambda problems: (kept,)  # type: ignore[method-assign]

        async def left_ms() -> int:
            answer = await call(node, "Status", pb.StatusRequest(local_only=True))
            return int(answer.partitions[0].loss_in_ms)

        assert await left_ms() == 60_000
        node.service.clock.advance(1_000)
        assert await left_ms() == 59_000
        node.service.clock.advance(60_000)
        assert await left_ms() == 0


async def test_h38_a_status_of_one_topic_has_its_rows_alone() -> None:
    async with api_node(Cluster(), node_id=1) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        rows = node.statuses.led(())
        other = replace(rows[0], topic=f"a-{TOPIC}", topic_id=Uuid(b"o" * 16))
        node.statuses.led = lambda problems: (rows[1], rows[0], other)  # type: ignore[method-assign]

        async def shown(topic: str, *, local_only: bool) -> list[tuple[str, int]]:
            request = pb.StatusRequest(topic=topic, local_only=local_only)
            answer = await call(node, "Status", request)
            return [(row.topic, row.partition) for row in answer.partitions]

        ours = [(TOPIC, 0), (TOPIC, 1)]
        assert await shown("", local_only=False) == [(f"a-{TOPIC}", 0), *ours]
        assert await shown(TOPIC, local_only=False) == ours
        assert sorted(await shown(TOPIC, local_only=True)) == ours


async def test_h38_a_problem_that_several_services_report_is_one_problem() -> None:
    cluster = Cluster()
    full = Problem(
        kind=ProblemKind.STORE_REFUSES_WRITES, subject="store hot", text="full", since_ms=9
    )
    other = Problem(kind=ProblemKind.METADATA, subject="ledger", text="recreated", since_ms=9)
    lag = Problem(
        kind=ProblemKind.LAG_UNKNOWN, subject="bids-0", text="EACCES", topic="bids", since_ms=9
    )
    soon = Problem(
        kind=ProblemKind.CERTIFICATE_ENDS_SOON, subject="api.pem", text="renew", since_ms=9
    )
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        await call(one, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        one.statuses.problems[:] = [replace(full, since_ms=5), lag]
        two.statuses.problems[:] = [full, other, soon]
        answer = await call(two, "Status", pb.StatusRequest())
        assert [(row.kind, sorted(row.node_ids), row.since_ms) for row in answer.problems] == [
            ("lag-unknown", [1], 9),
            ("metadata", [2], 9),
            ("store-refuses-writes", [1, 2], 5),
            ("certificate-ends-soon", [2], 9),
        ]
        assert [row.health for row in answer.services] == ["alarm", "alarm"]
        of_topic = await call(two, "Status", pb.StatusRequest(topic=TOPIC))
        assert "lag-unknown" not in {row.kind for row in of_topic.problems}


async def test_h01_adopt_log_start_applies_a_foreign_move_only() -> None:
    async with api_node(Cluster(), log=Log(local_start=24)) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        key = PartitionKey(TOPIC_ID, 0)
        await node.service.settings.publish(TrimRecord(partition=key, bound=24, planned_epoch=5), 5)
        request = pb.PartitionRequest(topic=TOPIC, partition=0)
        with pytest.raises(Invalid, match="our own trim"):
            await call(node, "AdoptLogStart", request)
        node.log.local_start = 40
        await call(node, "AdoptLogStart", request)
        assert node.service.settings.view.remote_log_start(key) == 40
        with pytest.raises(Invalid, match="nothing to adopt"):
            await call(node, "AdoptLogStart", request)


async def test_h04_adopt_ends_a_freeze_and_is_refused_without_one() -> None:
    async with api_node(Cluster()) as node:
        await call(node, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        request = pb.PartitionRequest(topic=TOPIC, partition=0)
        with pytest.raises(Invalid, match="not frozen"):
            await call(node, "AdoptPartition", request)
        node.log.frozen = True
        with pytest.raises(Invalid, match="partition adopt"):
            await call(node, "AdoptLogStart", request)
        await call(node, "AdoptPartition", request)
        record = node.service.settings.view.divergence(PartitionKey(TOPIC_ID, 0))
        assert record is not None
        assert (record.action, record.epoch, record.offset) == ("adopt", 5, 60)
        assert "tests" in record.cause


async def test_h15_losses_are_reported_and_accepted_by_the_leaders_service() -> None:
    async with api_node(Cluster()) as node:
        request = pb.AcceptLossRequest(topic=TOPIC, partition=0)
        (lost,) = (await call(node, "AcceptLoss", request)).ranges
        assert (lost.start_offset, lost.end_offset, lost.segments) == (10, 20, 1)
        assert (lost.size_bytes, lost.why) == (99, "gone")
        await call(node, "AcceptLoss", pb.AcceptLossRequest(topic=TOPIC, partition=1, apply=True))
        assert node.losses.asked == [(0, "tests", False), (1, "tests", True)]
        request.without_store_ids.append(STORE_ID.raw)
        await call(node, "AcceptLoss", request)
        assert node.losses.without == (STORE_ID,)
        request.without_store_ids.append(b"no id")
        with pytest.raises(Invalid, match="without_store_ids"):
            await call(node, "AcceptLoss", request)


async def test_health_is_served() -> None:
    async with api_node(Cluster()) as node, channel_to(node.address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = await check(health_pb2.HealthCheckRequest(service="rlm.v1.FetchService"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_taken_port_and_an_open_address_are_refused() -> None:
    async with api_node(Cluster()) as node:
        taken = server_at(node, node.address)
        with pytest.raises(Invalid, match=r"grpc\.listen: cannot listen"):
            await taken.start()
        await taken.stop()
        with pytest.raises(Invalid, match="allow_insecure"):
            server_at(node, "0.0.0.0:1")


def server_at(node: Node, listen: str) -> ApiServer:
    return ApiServer(admin=node.admin, fetch=node.fetch, listen=listen)


def test_fenced_is_what_elsewhere_is() -> None:
    assert issubclass(Elsewhere, Fenced)
