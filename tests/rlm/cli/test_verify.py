"""`rlm verify`: its lines, its progress and its exit status."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from click.testing import CliRunner, Result

from kip405.errors import Unavailable
from kip405.ids import TopicPartition, Uuid
from rlm.cli.main import main
from rlm.cli.progress import progress_line
from rlm.plans.verification import Issue, IssueKind, PartitionOffsets
from rlm.tasks.verification import PartitionReport
from rlm.v1 import admin_pb2 as pb
from tests.builders.log_dir import TOPIC
from tests.rlm.api.harness import Node, api_node
from tests.rlm.topics.cluster import Cluster

SEGMENT = Uuid(b"s" * 16)
LOST = Issue(
    kind=IssueKind.OBJECTS,
    partition=TopicPartition(TOPIC, 0),
    start_offset=10,
    next_offset=20,
    text="x.log is not there",
    action="restore it",
    segment_id=SEGMENT,
    object_name="c/x",
)
HOLE = Issue(
    kind=IssueKind.HOLE,
    partition=TopicPartition(TOPIC, 0),
    start_offset=3,
    next_offset=5,
    text="recorded hole: accepted loss: ann",
)
OFFSETS = PartitionOffsets(
    local_log_start_offset=303,
    last_stable_offset=304,
    local_log_end_offset=305,
    remote_log_start_offset=301,
    remote_log_end_offset=302,
)


def report(
    findings: int = 0, unchecked: tuple[str, ...] = (), partition: int = 0
) -> PartitionReport:
    return PartitionReport(
        partition=TopicPartition(TOPIC, partition),
        segments=7,
        findings=findings,
        offsets=None if unchecked else OFFSETS,
        unchecked=unchecked,
    )


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with api_node(Cluster()) as running:
        await asked(running, "topics", "enable", TOPIC)
        running.runs.events = [report(), report(partition=1)]
        yield running


async def asked(node: Node, *arguments: str) -> Result:
    runner = CliRunner(env={"RLM_ADDRESS": node.address, "RLM_PRINCIPAL": "ann"})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


async def test_clean_is_0_and_every_offset_has_its_name(node: Node) -> None:
    result = await asked(node, "verify", TOPIC)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    headers, first, second = result.stdout.splitlines()
    for name, value in (("Lx", "303"), ("Ly", "304"), ("Lz", "305"), ("Rx", "301"), ("Ry", "302")):
        assert headers.index(name) >= first.index(value)
    assert first.split()[0] == f"{TOPIC}-0"
    assert first.split()[-2:] == ["7", "clean"]
    assert second.split()[0] == f"{TOPIC}-1"
    assert node.runs.asked == [(TOPIC, False)]


async def test_findings_are_1_and_one_line_each(node: Node) -> None:
    node.runs.events = [HOLE, LOST, report(findings=1), report(partition=1, unchecked=("away",))]
    result = await asked(node, "verify", "--deep")
    assert result.exit_code == 1, result.output
    assert node.runs.asked == [("", True)]
    finding, note, unchecked = result.stdout.splitlines()[-3:]
    assert finding == (
        f"finding: {TOPIC}-0, offsets 10 to 20, segment {SEGMENT}, c/x: x.log is not there; "
        "restore it [objects]"
    )
    assert note == f"note: {TOPIC}-0, offsets 3 to 5: recorded hole: accepted loss: ann [hole]"
    assert unchecked == f"not checked: {TOPIC}-1: away"
    assert "1 FINDINGS" in result.stdout


async def test_a_note_alone_is_clean(node: Node) -> None:
    node.runs.events = [HOLE, report(), report(partition=1)]
    assert (await asked(node, "verify")).exit_code == 0


async def test_h38_what_could_not_be_checked_is_2(node: Node) -> None:
    node.runs.events = [report(unchecked=("the store is away",)), report(partition=1)]
    result = await asked(node, "verify")
    assert result.exit_code == 2, result.output
    assert "NOT CHECKED" in result.stdout
    assert f"not checked: {TOPIC}-0: the store is away" in result.stdout
    node.runs.events, node.runs.error = [report()], Unavailable("broken off")
    assert (await asked(node, "verify")).exit_code == 2
    for wrong in (("verify", "nothing"), ("verify", "--address", "127.0.0.1:1")):
        result = await asked(node, *wrong)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.splitlines()
        assert line.startswith("rlm: ")


async def test_json_has_all_of_it(node: Node) -> None:
    node.runs.events = [LOST, report(findings=1), report(partition=1, unchecked=("away",))]
    result = await asked(node, "verify", "--json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert (shown["findings"], shown["unchecked"], shown["deep"]) == (1, 1, False)
    (issue,) = shown["issues"]
    assert (issue["kind"], issue["segment_id"], issue["is_finding"]) == (
        "objects",
        str(SEGMENT),
        True,
    )
    first, second = shown["partitions"]
    assert first["offsets"]["remote_log_end_offset"] == 302
    assert "offsets" not in second
    assert second["unchecked"] == ["away"]


def progress(node_id: int, done: int, size: int) -> pb.VerifyProgress:
    return pb.VerifyProgress(
        node_id=node_id,
        segments=done,
        segments_total=100,
        size_bytes=size,
        size_total_bytes=1 << 30,
    )


def test_progress_has_share_rate_and_time_left_of_all_services() -> None:
    rows = (progress(1, 50, 1 << 29), progress(2, 0, 0))
    assert progress_line(rows, 10_000) == (
        "25 %, 50 of 200 segments, 512.0 MiB of 2.0 GiB, 51.2 MiB/s, 30 s left"
    )
    sizes = pb.VerifyProgress(node_id=1, segments=1, segments_total=4)
    assert progress_line((sizes,), 1_000) == "25 %, 1 of 4 segments, 3 s left"
    assert progress_line((), 0) == "0 %, 0 of 0 segments"
