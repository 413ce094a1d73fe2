"""The call PlanExpiry and `rlm topics retention --dry-run`: every partition, by its leader."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kip405.errors import Unavailable
from rlm.cli.main import main
from rlm.plans.expiry import ExpiryPlan, Held, NoExpiry, PartitionExpiry
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node
from tests.rlm.topics.cluster import Cluster

SEGMENTS = tuple(
    replace(metadata(number, at, at + 10, {0: at}), max_timestamp_ms=number * 1_000)
    for number, at in ((1, 0), (2, 10))
)
PLAN = ExpiryPlan(
    remote_log_start_offset=0,
    new_start=20,
    segments=SEGMENTS,
    held=Held(reason=NoExpiry.WITHIN_RETENTION),
)
NOTHING = ExpiryPlan(
    remote_log_start_offset=5,
    new_start=5,
    segments=(),
    held=Held(reason=NoExpiry.FREEZE_RECORD, detail="by ann"),
)


async def asked(node: Node, *arguments: str) -> Result:
    runner = CliRunner(env={"RLM_ADDRESS": node.address, "RLM_PRINCIPAL": "ann"})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


async def planned(node: Node) -> dict[int, dict[str, Any]]:
    result = await asked(node, "topics", "retention", TOPIC, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    return {row["partition"]: row for row in json.loads(result.stdout)["partitions"]}


async def test_each_partition_is_planned_by_its_leader() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await asked(one, "topics", "enable", TOPIC)
        one.planner.plans = [PartitionExpiry(partition=0, plan=PLAN)]
        two.planner.plans = [PartitionExpiry(partition=1, plan=NOTHING)]
        rows = await planned(one)
    assert rows[0] == {
        "topic": TOPIC,
        "partition": 0,
        "remote_log_start_offset": 0,
        "new_remote_log_start_offset": 20,
        "segments": 2,
        "size_bytes": 2,
        "oldest_timestamp_ms": 1_000,
        "newest_timestamp_ms": 2_000,
        "reason": "all is within total retention",
        "problem": "",
    }
    assert (rows[1]["segments"], rows[1]["oldest_timestamp_ms"]) == (0, None)
    assert rows[1]["reason"] == "frozen by command: by ann"


async def test_h38_a_partition_that_nobody_planned_is_not_shown_as_nothing() -> None:
    cluster = Cluster(leaders={1: 2})
    async with api_node(cluster, node_id=1) as one:
        await asked(one, "topics", "enable", TOPIC)
        failed = PartitionExpiry(partition=0, plan=Unavailable("the broker is away"))
        one.planner.plans = [failed]
        rows = await planned(one)
        shown = await asked(one, "topics", "retention", TOPIC, "--dry-run")
    assert (rows[0]["problem"], rows[0]["reason"]) == ("the broker is away", "")
    assert "its leader is 2" in rows[1]["problem"]
    assert "not planned: the broker is away" in shown.stdout


async def test_a_topic_that_is_not_enabled_is_refused_and_so_is_a_call_without_dry_run() -> None:
    async with api_node(Cluster()) as one:
        unknown = await asked(one, "topics", "retention", TOPIC, "--dry-run")
        assert unknown.exit_code != 0
        assert "not enabled" in unknown.stderr
        bare = await asked(one, "topics", "retention", TOPIC)
        assert bare.exit_code != 0
        assert "--dry-run" in bare.stderr


@pytest.mark.parametrize("plan", [PLAN, NOTHING])
async def test_the_table_names_offsets_and_the_reason(plan: ExpiryPlan) -> None:
    async with api_node(Cluster()) as one:
        await asked(one, "topics", "enable", TOPIC)
        one.planner.plans = [
            PartitionExpiry(partition=0, plan=plan),
            PartitionExpiry(partition=1, plan=plan),
        ]
        result = await asked(one, "topics", "retention", TOPIC, "--dry-run")
    headers, first, _ = result.stdout.splitlines()
    assert first.index(plan.held.words) == headers.index("remark")
    assert first.split()[:3] == [
        f"{TOPIC}-0",
        str(plan.remote_log_start_offset),
        str(plan.new_start),
    ]
