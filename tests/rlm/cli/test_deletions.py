"""`rlm deletions` and what other commands show of a shorter retention that is not in force yet."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc import aio

from kip405.errors import Invalid
from rlm.cli.output import human_wait
from rlm.cli.retention_plans import planned
from rlm.topics.purge import TopicEnd
from rlm.v1 import admin_pb2 as pb
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.harness import api_node
from tests.rlm.api.test_admin_service import call
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.topics.cluster import Cluster
from tests.rlm.topics.test_shortening import stored
from tests.rlm.topics.world import DELAY_MS

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


async def test_what_becomes_deletable_is_printed_and_needs_yes() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        now_ms = node.service.clock.now_ms()
        node.service.ledger.copied(stored(1, 0, 100, at_ms=now_ms - 200_000))
        shorter = ("topics", "enable", TOPIC, "--retention", "100s")
        refused = await asked(node, *shorter)
        assert refused.exit_code == 1
        row = refused.stdout.splitlines()[1].split()
        assert row[:6] == [f"{TOPIC}-0", "100", "0", "100", "100", "B"]
        assert row[6:] == ["1970-01-01", "00:13:20", "1970-01-01", "00:13:20"]
        assert "nothing was changed" in refused.stderr and "--yes" in refused.stderr
        machine = await asked(node, *shorter, "--json")
        assert machine.exit_code == 1
        document = json.loads(machine.stdout)
        assert document["applied"] is False
        assert document["retention_in_force_ms"] == WEEK_MS
        assert [one["end_offset"] for one in document["deletable"]] == [100]
        assert (await as_json(node, "deletions", "list"))["deletions"] == []
        made = await as_json(node, *shorter, "--yes")
        assert made["pending_deletion"]["retention_ms"] == 100_000
        assert [one["size_bytes"] for one in made["deletable"]] == [100]
        again = await asked(node, "topics", "enable", TOPIC, "--retention", "50s", "--yes")
        assert again.exit_code == 0
        assert again.stdout.splitlines()[0].startswith("deletable")


async def test_h01_what_is_remote_of_an_unknown_topic_is_kept_or_ended_by_an_operator() -> None:
    """Its settings were lost, or its remote log has ended: nobody else knows."""
    for option, start in (("--keep-remote", 0), ("--yes", 100)):
        cluster = Cluster()
        cluster.log_starts = {0: 100}
        async with api_node(cluster) as node:
            node.service.ledger.copied(stored(1, 0, 100, at_ms=node.service.clock.now_ms()))
            refused = await asked(node, "topics", "enable", TOPIC)
            assert refused.exit_code == 1
            assert "1 remote segments (100 bytes, offsets 0 to 99)" in refused.output
            assert "--keep-remote" in refused.output and "--yes" in refused.output
            assert node.service.start_of(0) is None
            assert (await asked(node, "topics", "enable", TOPIC, option)).exit_code == 0
            assert node.service.start_of(0) == start


async def test_a_change_that_ends_nothing_prints_nothing_deletable() -> None:
    async with api_node(Cluster()) as node:
        assert (await as_json(node, "topics", "enable", TOPIC))["deletable"] == []
        shown = await asked(node, "topics", "enable", TOPIC, "--retention", "1d")
        assert shown.stdout.startswith("topic ")


async def test_h14_a_retention_that_somebody_set_is_accepted_by_the_leaders_service() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await two.service.settings.barrier(1)
        await as_json(one, "topics", "enable", TOPIC, "--trim")
        accept = ("topics", "accept-retention", TOPIC)
        assert_one_line(await asked(two, *accept), "there is nothing to accept", status=1)
        now_ms = one.service.clock.now_ms()
        one.service.ledger.copied(stored(1, 0, 100, at_ms=now_ms - 200_000))
        cluster.configs[TOPIC] |= {"retention.ms": "100000"}
        refused = await asked(two, *accept)
        assert refused.exit_code == 1
        assert refused.stdout.splitlines()[1].split()[:4] == [f"{TOPIC}-0", "100", "0", "100"]
        assert "nothing was changed" in refused.stderr and "--yes" in refused.stderr
        made = await as_json(two, *accept, "--yes")
        assert (made["retention_ms"], made["retention_bytes"]) == (100_000, -1)
        assert [one["size_bytes"] for one in made["deletable"]] == [100]
        assert made["pending_deletion"]["by"] == "ann"
        assert cluster.own_config()["retention.ms"] == "-1"
        request = pb.AcceptRetentionRequest(topic=TOPIC, retention_ms=1)
        with pytest.raises(Invalid, match="go together"):
            await call(one, "AcceptRetention", request)


class Refusing:
    """A service whose answer to PlanRetention is an error of gRPC's own."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code
        self.admin = self

    def PlanRetention(self, request: object) -> None:
        raise aio.AioRpcError(self._code, aio.Metadata(), aio.Metadata())

    def ask(self, call: Callable[[object], None], request: object) -> None:
        call(request)


def test_a_service_of_a_version_that_plans_nothing_is_asked_to_enable() -> None:
    request = pb.EnableTopicRequest(topic=TOPIC)
    older: Any = Refusing(grpc.StatusCode.UNIMPLEMENTED)
    assert not planned(request, older).deletable
    away: Any = Refusing(grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(grpc.RpcError):
        planned(request, away)


async def test_the_end_of_a_topic_is_listed_and_undone() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        record = node.service.settings.view.topic(TOPIC_ID)
        assert record is not None
        gone = TopicEnd(
            record=replace(record, state="deleting", deletion_cause="disable"),
            segments=3,
            size_bytes=4096,
            due_in_ms=60_000,
            waits="a freeze",
            by="service/1",
            decided_ms=1_000,
        )
        kept = replace(gone, record=replace(record, state="kept", name="kept"))
        node.purge.ends = (gone, replace(gone, record=record, due_in_ms=None), kept)
        row, unknown = (await as_json(node, "deletions", "list"))["deletions"]
        assert (row["kind"], row["topic"], row["by"]) == ("topic-disable", TOPIC, "service/1")
        assert (row["segments"], row["records"], row["size_bytes"]) == (3, 300, 4096)
        assert (row["decided_ms"], row["due_in_ms"], row["waits"]) == (1_000, 60_000, "a freeze")
        assert (unknown["kind"], unknown["due_in_ms"]) == ("topic-gone", None)
        table = (await asked(node, "deletions", "list")).stdout.splitlines()
        assert table[1].split()[:5] == [TOPIC, "topic-disable", "-", "-", "1m"]
        assert table[1].endswith("a freeze") and "300" in table[1] and "4.0 KiB" in table[1]
        assert "not decided" in table[2]
        assert (await asked(node, "deletions", "undo", TOPIC)).exit_code == 0
        assert node.purge.kept == [TOPIC]
        node.purge.ends = ()
        refused = await asked(node, "deletions", "undo", TOPIC)
        assert_one_line(refused, "no deletion of topic", status=1)
