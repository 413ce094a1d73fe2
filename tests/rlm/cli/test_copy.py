"""`rlm copy`: its targets, its table and its exit status; what `rlm status` says of copies."""

from dataclasses import replace

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlm.tasks.copy_progress import Progress
from rlm.tasks.copy_runs import CopyReport, CopyTarget
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node
from tests.rlm.cli.invoking import as_json, asked
from tests.rlm.topics.cluster import Cluster


def report(partition: int, why: str = "") -> CopyReport:
    return CopyReport(
        partition=TopicPartition(TOPIC, partition),
        segments=2,
        size_bytes=2048,
        first_uncopied_offset=40,
        local_log_start_offset=-1,
        is_complete=not why,
        why=why,
    )


async def enabled(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)


async def test_partitions_are_shown_with_what_was_done() -> None:
    async with api_node(Cluster()) as node:
        await enabled(node)
        node.copies.events = [report(0), report(1)]
        done = await asked(node, "copy", TOPIC, "--keep-local", "1KiB")
        assert done.exit_code == 0, done.output
        rows = [line.split() for line in done.stdout.splitlines()]
        assert rows[2] == [f"{TOPIC}-1", "2", "2.0", "KiB", "40", "-", "done"]
        both = frozenset({TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)})
        assert node.copies.asked == [CopyTarget(partitions=both, keep_local_bytes=1024)]
        found = await as_json(node, "copy", f"{TOPIC}:1", "--up-to", "7")
        assert found["complete"] is True
        (row,) = found["partitions"]
        assert (row["partition"], row["first_uncopied_offset"]) == (1, 40)
        one = frozenset({TopicPartition(TOPIC, 1)})
        assert node.copies.asked[-1] == CopyTarget(partitions=one, up_to_offset=7)


async def test_what_is_not_done_is_said_and_ends_with_status_1() -> None:
    async with api_node(Cluster()) as node:
        await enabled(node)
        node.copies.events = [report(0), report(1, "not trimmed: trim is off")]
        done = await asked(node, "copy", TOPIC)
        assert done.exit_code == 1
        assert "NOT DONE: not trimmed: trim is off" in done.stdout
        node.copies.events, node.copies.error = [report(0)], Unavailable("no leader")
        done = await asked(node, "copy", f"{TOPIC}:0", f"{TOPIC}:1")
        assert done.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((f"{TOPIC}:x",), "is neither TOPIC nor TOPIC:PARTITION"),
        ((":1",), "is neither TOPIC nor TOPIC:PARTITION"),
        ((TOPIC, "--keep-local", "-1"), "cannot be negative"),
    ],
)
async def test_wrong_use_is_refused(arguments: tuple[str, ...], words: str) -> None:
    async with api_node(Cluster()) as node:
        done = await asked(node, "copy", *arguments)
        assert done.exit_code == 2
        assert words in done.stderr


async def test_h38_status_shows_what_is_to_be_copied_and_how_long_it_takes() -> None:
    async with api_node(Cluster()) as node:
        assert "time left" not in (await asked(node, "status")).stdout
        known = Progress(
            segments_left=3, bytes_left=3 << 20, bytes_per_second=1 << 20, left_ms=3_000
        )
        node.stores.copying = replace(node.stores.copying, progress=known)
        lines = [line.split() for line in (await asked(node, "status")).stdout.splitlines()]
        assert ["1", "3", "/", "3.0", "MiB", "1.0", "MiB/s", "1.0", "GiB/s", "3", "s"] in lines
        slow = replace(known, bytes_per_second=None, left_ms=None)
        node.stores.copying = replace(node.stores.copying, progress=slow)
        lines = [line.split() for line in (await asked(node, "status")).stdout.splitlines()]
        assert ["1", "3", "/", "3.0", "MiB", "unknown", "1.0", "GiB/s", "unknown"] in lines
        [service] = (await as_json(node, "status"))["services"]
        assert service["copying"]["bytes_per_second"] is None
        nothing = replace(slow, segments_left=0, bytes_left=0)
        node.stores.copying = replace(
            node.stores.copying, progress=nothing, unmeasured_partitions=2
        )
        lines = [line.split() for line in (await asked(node, "status")).stdout.splitlines()]
        assert [
            "1",
            "0",
            "/",
            "0",
            "B",
            "+",
            "2",
            "unknown",
            "unknown",
            "1.0",
            "GiB/s",
            "unknown",
        ] in lines
