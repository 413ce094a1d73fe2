"""`rlm topics enable PATTERN`: what matches, what is left out, and what needs --yes."""

import pytest

from rlm.cli.topic_patterns import is_pattern
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import api_node
from tests.rlm.cli.invoking import as_json, asked
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.test_shortening import stored

PATTERN = "or(d|x)ers.*"


@pytest.mark.parametrize(
    ("text", "is_one"), [("orders.v1_a-b", False), ("logs-.*", True), ("a|b", True), ("^a$", True)]
)
def test_what_cannot_be_a_name_is_a_pattern(text: str, is_one: bool) -> None:
    assert is_pattern(text) == is_one


async def test_one_match_is_enabled_as_if_it_was_named() -> None:
    async with api_node(Cluster()) as node:
        found = await as_json(node, "topics", "enable", PATTERN, "--copy-lag", "1h")
        assert found["applied"] is True
        (row,) = found["topics"]
        assert (row["topic"], row["left_out"], row["error"]) == (TOPIC, "", "")
        assert row["enabled"]["offload"]["copy_lag_ms"] == 3_600_000
        shown = await asked(node, "topics", "enable", PATTERN)
        rows = [line.split() for line in shown.stdout.splitlines()]
        assert rows[1] == [TOPIC, "enabled", "copy", "enabled,", "mode", "copy"]


async def test_what_does_not_match_as_a_whole_is_not_meant() -> None:
    async with api_node(Cluster()) as node:
        done = await asked(node, "topics", "enable", "(o)rder")
        assert done.exit_code == 1
        assert "no topic matches (o)rder" in done.stderr
        done = await asked(node, "topics", "enable", "(")
        assert done.exit_code == 2
        assert "is no regular expression" in done.stderr


async def test_internal_topics_never_match() -> None:
    async with api_node(Cluster(internal=True)) as node:
        done = await asked(node, "topics", "enable", ".*")
        assert done.exit_code == 1
        assert "no topic matches" in done.stderr


async def test_a_topic_that_must_not_be_enabled_is_left_out() -> None:
    async with api_node(Cluster(configs={TOPIC: {"cleanup.policy": "compact"}})) as node:
        done = await asked(node, "topics", "enable", ".*")
        assert done.exit_code == 0
        assert "left out: topic orders has cleanup.policy=compact" in done.stdout


async def test_what_cannot_be_enabled_ends_with_status_1() -> None:
    async with api_node(Cluster()) as node:
        done = await asked(node, "topics", "enable", ".*", "--copy-lag", "30d")
        assert done.exit_code == 1
        assert "NOT ENABLED: remote.copy.lag.ms=" in done.stdout


async def test_what_becomes_deletable_is_shown_and_needs_yes() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        now_ms = node.service.clock.now_ms()
        node.service.ledger.copied(stored(1, 0, 100, at_ms=now_ms - 200_000))
        shorter = ("topics", "enable", ".*", "--retention", "100s")
        done = await asked(node, *shorter)
        assert done.exit_code == 1
        assert f"{TOPIC}-0" in done.stdout
        assert "makes what is shown deletable" in done.stderr
        found = await as_json(node, *shorter, "--yes")
        assert found["applied"] is True
        assert found["topics"][0]["enabled"]["retention_ms"] == 100_000
