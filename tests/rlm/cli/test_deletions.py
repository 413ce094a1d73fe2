"""`rlm deletions` and what other commands show of a shorter retention that is not in force yet."""

import pytest

from rlm.cli.output import human_wait
from rlm.v1 import admin_pb2 as pb
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import api_node
from tests.rlm.api.test_admin_service import call
from tests.rlm.cli.test_commands import as_json, asked, assert_one_line
from tests.rlm.topics.world import DELAY_MS, Cluster

WEEK_MS = 604_800_000


async def test_a_shorter_retention_is_shown_and_undone() -> None:
    async with api_node(Cluster()) as node:
        assert (await asked(node, "deletions", "list")).stdout == "no deletion is pending\n"
        made = await as_json(node, "topics", "enable", TOPIC, "--retention", "1d")
        pending = made["pending_deletion"]
        assert (pending["kind"], pending["topic"], pending["by"]) == ("retention", TOPIC, "ann")
        assert (pending["retention_ms"], pending["retention_in_force_ms"]) == (86_400_000, WEEK_MS)
        assert pending["due_in_ms"] == DELAY_MS
        node.service.clock.advance(1_000)
        (listed,) = (await as_json(node, "deletions", "list"))["deletions"]
        assert listed == pending | {"due_in_ms": DELAY_MS - 1_000}
        (shown,) = (await as_json(node, "status"))["deletions"]
        assert shown == listed
        table = await asked(node, "deletions", "list")
        assert table.stdout.splitlines()[1].split()[:5] == [TOPIC, "retention", "1d", "7d", "59s"]
        assert "7d" in (await asked(node, "status")).stdout
        described = await asked(node, "topics", "describe", TOPIC)
        assert "due in 59s; `rlm deletions undo orders` keeps it" in described.stdout
        undone = await as_json(node, "deletions", "undo", TOPIC)
        assert undone["retention_ms"] == WEEK_MS
        assert "pending_deletion" not in undone
        assert_one_line(
            await asked(node, "deletions", "undo", TOPIC), "no deletion of topic", status=1
        )
        assert (await as_json(node, "status"))["deletions"] == []


async def test_a_deletion_is_undone_by_the_partition_0_leaders_service() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1), api_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        await as_json(two, "topics", "enable", TOPIC, "--retention", "1d")
        assert (await as_json(two, "deletions", "undo", TOPIC))["retention_ms"] == WEEK_MS


async def test_the_status_of_a_topic_has_its_deletion_only() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC, "--retention", "1d")
        answer = await as_json(node, "status", TOPIC)
        assert [row["topic"] for row in answer["deletions"]] == [TOPIC]
        other = pb.StatusRequest(topic="others", local_only=True)
        assert not (await call(node, "Status", other)).deletions


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [(0, "0s"), (999, "0s"), (65_000, "1m 5s"), (86_399_999, "23h 59m"), (90_000_000, "1d 1h")],
)
def test_a_time_to_wait_in_words(duration_ms: int, words: str) -> None:
    assert human_wait(duration_ms) == words
