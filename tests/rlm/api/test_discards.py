"""`rlm partition discard`, its list and its undo, over the API and by the commands (H4)."""

import pytest

from kip405.errors import NotFound
from kip405.ids import PartitionKey
from rlm.v1 import admin_pb2 as pb
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.harness import api_node
from tests.rlm.api.test_admin_service import call
from tests.rlm.cli.invoking import as_json, asked
from tests.rlm.topics.cluster import Cluster

KEY = PartitionKey(TOPIC_ID, 0)


async def test_h04_a_discard_is_decided_and_undone_by_the_leaders_service() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await call(one, "EnableTopic", pb.EnableTopicRequest(topic=TOPIC))
        await two.service.settings.barrier(1)
        request = pb.DiscardPartitionRequest(topic=TOPIC, partition=0)
        plan = await call(two, "DiscardPartition", request)
        assert (plan.segments, plan.records, plan.size_bytes) == (5, 500, 2048)
        assert (plan.local_log_start_offset, plan.local_log_end_offset) == (0, 120)
        assert (plan.oldest_ms, plan.newest_ms, plan.delay_ms) == (0, 60_000, 60_000)
        assert (plan.own_segments, plan.own_size_bytes, plan.own_only_remote_records) == (
            2,
            1_024,
            30,
        )
        assert one.losses.discards.decisions == {}
        request.confirm = True
        await call(two, "DiscardPartition", request)
        assert one.losses.discards.decisions == {KEY: "tests"}
        assert two.losses.discards.decisions == {}
        undo = pb.UndoDeletionRequest(topic=TOPIC, partition=0)
        assert (await call(two, "UndoDeletion", undo)).topic == TOPIC
        assert one.losses.discards.decisions == {}
        with pytest.raises(NotFound, match="no discard is pending"):
            await call(one, "UndoDeletion", undo)


async def test_a_discard_is_shown_first_and_needs_yes() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        shown = await asked(node, "partition", "discard", TOPIC, "-p", "0")
        assert shown.exit_code == 0, shown.output
        assert "500 records, 2.0 KiB" in shown.stdout
        assert "2 segments, 1.0 KiB; 30 records of it are in no tier then" in shown.stdout
        assert "Nothing was changed: --yes gives it up, and deletes it after 1m" in shown.stdout
        assert node.losses.discards.decisions == {}
        done = await asked(node, "partition", "discard", TOPIC, "-p", "0", "--yes")
        assert "`rlm deletions undo orders -p 0` keeps it until then" in done.stdout
        assert node.losses.discards.decisions == {KEY: "ann"}
        found = await as_json(node, "partition", "discard", TOPIC, "-p", "0", "--yes")
        assert (found["applied"], found["frozen"]) == (True, "orphans")


async def test_a_pending_discard_is_listed_and_undone() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        node.losses.discards.decisions[KEY] = "ann"
        (row,) = (await as_json(node, "deletions", "list"))["deletions"]
        assert (row["kind"], row["topic"], row["partition"]) == ("discard", TOPIC, 0)
        assert (row["by"], row["due_in_ms"], row["decided_ms"]) == ("ann", 60_000, 1_000)
        assert (row["segments"], row["records"], row["size_bytes"]) == (5, 500, 2048)
        assert (await as_json(node, "status"))["deletions"] == [row]
        table = (await asked(node, "deletions", "list")).stdout
        assert table.splitlines()[1].split()[:4] == [f"{TOPIC}-0", "discard", "-", "-"]
        undone = await asked(node, "deletions", "undo", TOPIC, "-p", "0")
        assert undone.exit_code == 0, undone.output
        assert node.losses.discards.decisions == {}
