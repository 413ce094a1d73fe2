"""`rlm copy-limit`: what every service goes by, changed for all or for one, and removed."""

from typing import Any

import pytest

from rlmm.settings_records import CopyLimitRecord
from tests.rlm.api.harness import api_node
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.topics.cluster import Cluster

MIB = 1 << 20


def limits(answer: Any) -> list[tuple[int, int | None]]:
    return [(row["node_id"], row["bytes_per_second"]) for row in answer["nodes"]]


async def test_a_limit_for_all_and_one_for_a_node_overrule_what_is_configured() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2):
        before = await as_json(one, "copy-limit")
        assert limits(before) == [(1, 1 << 30), (2, 1 << 30)]
        assert not before["decided"] and "overruled" not in before["nodes"][0]
        assert limits(await as_json(one, "copy-limit", "64MiB")) == [(1, 64 * MIB), (2, 64 * MIB)]
        both = await as_json(one, "copy-limit", "2GiB", "--node", "2")
        assert limits(both) == [(1, 64 * MIB), (2, 2048 * MIB)]
        assert [row["configured_bytes_per_second"] for row in both["nodes"]] == [1 << 30, 1 << 30]
        assert [row["node_id"] for row in both["decided"]] == [None, 2]
        shown = (await asked(one, "copy-limit")).stdout.splitlines()
        rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in shown]
        assert rows[0][:4] == ["service", "in effect", "configured", "overruled for"]
        assert rows[1][:5] == ["1", "64.0 MiB/s", "1.0 GiB/s", "all", "ann"]
        assert rows[2][:5] == ["2", "2.0 GiB/s", "1.0 GiB/s", "this node", "ann"]
        for_one = await as_json(one, "copy-limit", "--default")
        assert limits(for_one) == [(1, 1 << 30), (2, 2048 * MIB)]
        after = await as_json(one, "copy-limit", "--default", "--node", "2")
        assert limits(after) == [(1, 1 << 30), (2, 1 << 30)] and not after["decided"]


async def test_h38_what_a_silent_service_goes_by_is_unknown() -> None:
    cluster = Cluster()
    async with api_node(cluster, node_id=1):
        pass
    async with api_node(cluster, node_id=2) as two:
        for node_id in (1, 9):
            await two.service.settings.publish(
                CopyLimitRecord(node_id=node_id, bytes_per_second=MIB, by="ann", decided_ms=0)
            )
        answer = await as_json(two, "copy-limit")
        assert limits(answer) == [(1, None), (2, 1 << 30), (9, None)]
        assert "not reachable" in answer["nodes"][0]["problem"]
        assert answer["nodes"][2]["problem"] == "no service of this node is known"
        shown = (await asked(two, "copy-limit")).stdout
        assert "unknown: no service of this node is known" in shown
        await as_json(two, "copy-limit", "--default", "--node", "9")
        assert limits(await as_json(two, "copy-limit")) == [(1, None), (2, 1 << 30)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1048575",), "must be at least 1048576 (1 MiB a second), got 1048575"),
        (("0",), "must be at least 1048576"),
        (("fast",), "a size such as 2TiB"),
        (("64MiB", "--node", "2147483648"), "2147483648 is not in the range"),
        (("64MiB", "--default"), "goes with no BYTES"),
        (("--node", "1"), "goes with BYTES or --default"),
    ],
)
async def test_wrong_use_is_refused(arguments: tuple[str, ...], words: str) -> None:
    async with api_node(Cluster()) as node:
        assert_one_line(await asked(node, "copy-limit", *arguments), words, status=2)
        assert not (await as_json(node, "copy-limit"))["decided"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("64MiB", "--node", "7"), "no service of node 7 is known; known nodes: 1"),
        (("--default",), "no copy limit was decided for all services"),
        (("--default", "--node", "1"), "no copy limit was decided for node 1"),
    ],
)
async def test_what_is_not_there_is_not_found(arguments: tuple[str, ...], words: str) -> None:
    async with api_node(Cluster()) as node:
        assert_one_line(await asked(node, "copy-limit", *arguments), words, status=1)
