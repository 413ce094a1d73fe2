"""`rlm plan` and the call PlanTopic: figures of all leaders, refusals of the first."""

import asyncio
from dataclasses import replace

import pytest

from kip405.errors import Busy, Unavailable
from rlm.api.topic_plans import PLANS_MOST, WAITING_MOST
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.retention import LocalRetention
from rlm.v1 import admin_pb2 as pb
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import api_node
from tests.rlm.api.test_admin_service import call
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.topics.cluster import Cluster

ONE = PartitionMeasure(
    segments=2, size_bytes=7_200_000, local_bytes=10_000_000, freed_bytes=5_000_000, requests=8
)
TOTAL = {
    "partitions": 2,
    "segments": 4,
    "size_bytes": 14_400_000,
    "local_bytes": 40_000_000,
    "freed_bytes": 20_000_000,
    "objects": 12,
    "requests": 16,
    "ledger_bytes": 1_200,
    "hours": 2.0,
}


async def test_each_partition_is_measured_by_its_leader() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        for node in (one, two):
            await node.service.settings.barrier(1)
        one.reports.measures.found = {0: ONE}
        two.reports.measures.found = {1: ONE}
        shown = await as_json(two, "plan", TOPIC, "--trim", "--local-retention", "1h")
        assert cluster.records and cluster.record() is None, "only heartbeats"
    assert shown["total"] == shown["topics"][0]["total"] == TOTAL
    rows = shown["topics"][0]["partitions"]
    assert [(row["partition"], row["leader"], row["problem"]) for row in rows] == [
        (0, 1, ""),
        (1, 2, ""),
    ]
    assert shown["topics"][0]["local_retention_ms"] == 3_600_000
    asked_for = [LocalRetention(max_age_ms=3_600_000, max_bytes=None)]
    assert one.reports.measures.asked == two.reports.measures.asked == asked_for


async def test_h38_a_partition_that_nobody_measured_is_in_no_sum_and_no_success() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one:
        one.reports.measures.found = {0: ONE}
        done = await asked(one, "plan", TOPIC)
        assert done.exit_code == 1
        assert f"unknown, and in no sum: {TOPIC}-1: the service of broker 2" in done.stderr
        one.reports.measures.found = {0: Unavailable("the disk does not answer")}
        shown = await asked(one, "plan", TOPIC)
    assert shown.exit_code == 1 and "the disk does not answer" in shown.stderr


async def test_what_refuses_a_topic_is_shown_with_its_figures() -> None:
    async with api_node(Cluster(configs={TOPIC: {"cleanup.policy": "compact"}})) as node:
        node.reports.measures.found = {0: ONE, 1: ONE}
        done = await asked(node, "plan")
        shown = (await asked(node, "plan", "--json")).stdout
    assert done.exit_code == 1
    header, row = done.stdout.splitlines()
    assert row.index("REFUSED: topic orders has cleanup.policy=compact") == header.index("remark")
    assert row.split()[:5] == [TOPIC, "2", "4", "13.7", "MiB"]
    assert row.split()[5] == "4h" and '"refusal": "topic orders has' in shown


async def test_a_plan_that_nothing_refuses_is_a_success_with_warnings_on_the_side() -> None:
    cluster = Cluster(uncopyable="orders-0 at 7")
    async with api_node(cluster) as node:
        node.reports.measures.found = {0: ONE, 1: ONE}
        copy = await asked(node, "plan", "ord.*")
        assert (copy.exit_code, copy.stderr) == (0, "")
        trim = await asked(node, "plan", TOPIC, "--trim")
        assert (trim.exit_code, "REFUSED: orders-0 at 7" in trim.stdout) == (1, True)


async def test_what_is_no_topic_or_no_retention_is_one_line() -> None:
    async with api_node(Cluster()) as node:
        assert_one_line(await asked(node, "plan", "absent"), "absent", status=1)
        assert_one_line(await asked(node, "plan", "a+"), "no topic matches", status=1)
        wrong = await asked(node, "plan", TOPIC, "--retention", "1s", "--local-retention", "2s")
        assert_one_line(wrong, "local.retention.ms=2000", status=2)


async def test_a_service_asked_alone_measures_by_the_limits_it_is_given() -> None:
    async with api_node(Cluster()) as node:
        node.reports.measures.found = {0: ONE}
        enable = pb.EnableTopicRequest(topic=TOPIC, local_retention_bytes=5)
        answer = await call(node, "PlanTopic", pb.PlanTopicRequest(enable=enable, local_only=True))
    assert [row.copy_bytes_per_second for row in answer.partitions] == [1_000]
    assert node.reports.measures.asked == [LocalRetention(max_age_ms=None, max_bytes=5)]


async def test_g6_no_more_than_some_plans_are_made_at_once() -> None:
    async with api_node(Cluster()) as node:
        asked_for = pb.PlanTopicRequest(enable=pb.EnableTopicRequest(topic=TOPIC))
        node.reports.measures.goes_on.clear()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PLANS_MOST):
                tasks.create_task(call(node, "PlanTopic", asked_for))
                await node.reports.measures.begun.get()
            with pytest.raises(Busy, match="ask again"):
                async with asyncio.timeout(60):
                    await call(node, "PlanTopic", asked_for)
            node.reports.measures.goes_on.set()
        await call(node, "PlanTopic", asked_for)


async def test_g6_no_more_than_some_measures_are_made_and_wait_at_once() -> None:
    async with api_node(Cluster()) as node:
        measures = node.reports.measures
        asked_for = pb.PlanTopicRequest(enable=pb.EnableTopicRequest(topic=TOPIC), local_only=True)
        measures.goes_on.clear()
        calls = [
            asyncio.ensure_future(call(node, "PlanTopic", asked_for))
            for _ in range(WAITING_MOST + 1)
        ]
        async with asyncio.timeout(60):
            [refused], _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(Busy, match="ask again"):
                await refused
            assert len(measures.asked) == PLANS_MOST
            measures.goes_on.set()
            await asyncio.gather(*(one for one in calls if one is not refused))
        assert len(measures.asked) == WAITING_MOST
        await call(node, "PlanTopic", asked_for)


async def test_what_takes_no_hour_is_shown_in_smaller_units() -> None:
    async with api_node(Cluster()) as node:
        for size_bytes, takes in ((1, "1s"), (90_500, "1m 31s")):
            node.reports.measures.found = {0: replace(ONE, size_bytes=size_bytes)}
            done = await asked(node, "plan", TOPIC)
            assert f"  {takes}  " in done.stdout.splitlines()[1], done.stdout


async def test_a_service_that_is_busy_is_asked_again() -> None:
    async with api_node(Cluster()) as node:
        measures = node.reports.measures
        measures.found = {0: ONE, 1: ONE}
        measures.goes_on.clear()
        asked_for = pb.PlanTopicRequest(enable=pb.EnableTopicRequest(topic=TOPIC))
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for _ in range(PLANS_MOST):
                tasks.create_task(call(node, "PlanTopic", asked_for))
                await measures.begun.get()
            busy = await asked(node, "plan", TOPIC, "--timeout", "0.5")
            assert_one_line(busy, "ask again in a moment", status=1)
            waiting = tasks.create_task(asked(node, "plan", TOPIC))
            measures.goes_on.set()
        assert waiting.result().exit_code == 0, waiting.result().output
