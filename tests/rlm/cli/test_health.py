"""`rlm status --health`: one verdict, its reasons and its exit status."""

import json

from rlm.plans.problems import Problem, ProblemKind
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node
from tests.rlm.api.node_fakes import say_alive
from tests.rlm.cli.invoking import as_json, asked, assert_one_line, rlm
from tests.rlm.topics.cluster import Cluster


async def health(node: Node, *arguments: str) -> tuple[int, list[str]]:
    """Exit status, and lines."""
    done = await asked(node, "status", "--health", *arguments)
    return done.exit_code, done.stdout.splitlines()


def problem(kind: ProblemKind, topic: str = "") -> Problem:
    return Problem(kind=kind, subject=kind.value, text="so it is", topic=topic, since_ms=0)


async def test_h38_problems_make_the_verdict(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    assert await health(node) == (0, ["SAFE"])
    node.statuses.problems[:] = [problem(ProblemKind.CERTIFICATE_ENDS_SOON)]
    assert await health(node) == (0, ["SAFE"])
    node.statuses.problems += [problem(ProblemKind.STORE_REFUSES_WRITES)]
    refuses = "  at-risk: store-refuses-writes: so it is [store-refuses-writes]"
    assert await health(node) == (1, ["AT RISK", refuses])
    node.statuses.problems += [problem(ProblemKind.SEGMENT_LOST, TOPIC)]
    lost = "  lost: segment-lost: so it is [segment-lost]"
    assert await health(node) == (2, ["LOST", lost, refuses])
    assert await health(node, TOPIC) == (2, ["LOST", lost, refuses])


async def test_the_verdict_as_json(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    node.statuses.problems[:] = [problem(ProblemKind.STARTING)]
    done = await asked(node, "status", "--health", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "verdict": "AT RISK",
        "reasons": [{"risk": "at-risk", "text": "starting: so it is [starting]"}],
        "on_record": [],
    }


async def test_h38_a_lag_that_is_not_known_is_not_safe(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    node.statuses.lag_bytes = None
    status, lines = await health(node)
    assert (status, lines[0]) == (1, "AT RISK")
    assert f"  at-risk: unknown: {TOPIC}-0: what is left to copy is not known" in lines


async def test_h38_a_partition_that_nobody_reports_is_not_safe() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as node:
        await as_json(node, "topics", "enable", TOPIC)
        cluster.leader = 2
        status, lines = await health(node)
    assert (status, lines[0]) == (1, "AT RISK")
    assert any(f"unknown: {TOPIC}-0: its leader's service has not" in one for one in lines), lines


async def test_h38_a_service_that_does_not_answer_is_not_safe(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    await say_alive(node.service, 2, "127.0.0.1:1")
    status, lines = await health(node)
    assert (status, lines[0]) == (1, "AT RISK")
    assert any("unknown: the service of broker 2 does not answer" in one for one in lines), lines


async def test_h38_no_answer_at_all_is_not_safe() -> None:
    done = await rlm("status", "--health", env={"RLM_ADDRESS": "127.0.0.1:1"})
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == "AT RISK"
    assert "  at-risk: unknown: " in done.stdout


async def test_a_topic_that_is_not_enabled_is_not_safe(node: Node) -> None:
    status, lines = await health(node, TOPIC)
    assert (status, lines[0]) == (1, "AT RISK")
    assert "not enabled" in lines[1]
    assert_one_line(await asked(node, "status", "--health", "a b"), "a b", status=2)


async def test_losses_on_record_are_shown_and_change_no_verdict(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    node.statuses.holes = 2
    status, lines = await health(node)
    assert (status, lines[0]) == (0, "SAFE")
    assert f"  on record: {TOPIC}-0: 0 offsets are lost, in 2 holes" in lines


async def test_h38_partitions_that_the_broker_does_not_describe_are_a_problem() -> None:
    cluster = Cluster()
    async with api_node(cluster) as node:
        await as_json(node, "topics", "enable", TOPIC)
        cluster.is_down = True
        status, lines = await health(node)
        cluster.is_down = False
    assert (status, lines[0]) == (1, "AT RISK")
    assert any("partitions may be missing: no answer" in one for one in lines), lines
