"""The commands against a real API in this process: what they print, and how they fail."""

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.ids import Uuid
from kip405.process import software_version
from rlm.cli.main import COMMANDS
from rlm.topics.purge import TopicEnd
from tests.builders.ledger import metadata
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.store import STORE_ID
from tests.rlm.api.enabled import enabled_node
from tests.rlm.api.harness import Log, Node, api_node
from tests.rlm.cli.invoking import as_json, asked, assert_one_line, rlm
from tests.rlm.topics.cluster import Cluster


async def test_enable_trim_describe_list_disable(node: Node) -> None:
    made = await as_json(
        node,
        *("topics", "enable", TOPIC, "--trim", "--retention", "180d"),
        *("--local-retention", "12h", "--local-retention-bytes", "2GiB"),
        *("--retention-bytes", "2TiB"),
    )
    assert made["retention_ms"] == 180 * 86_400_000
    assert made["local_retention_ms"] == 12 * 3_600_000
    assert (made["retention_bytes"], made["local_retention_bytes"]) == (2 << 40, 2 << 30)
    assert (made["mode"], made["trim"], len(made["topic_id"])) == ("tier", True, 22)
    described = await asked(node, "topics", "describe", TOPIC)
    assert "180d, 2.0 TiB" in described.stdout
    assert "min.insync.replicas      unknown" in described.stdout
    assert "unclean leader election  unknown" in described.stdout
    listed = await asked(node, "topics", "list")
    assert listed.stdout.splitlines()[0].split()[:4] == ["topic", "mode", "state", "trim"]
    assert listed.stdout.splitlines()[1].split()[:4] == [TOPIC, "tier", "enabled", "on"]
    off = await asked(node, "topics", "trim", TOPIC, "off")
    assert off.exit_code == 0
    assert "warning: the local log" in off.stderr
    kept = await as_json(node, "topics", "disable", TOPIC, "--confirm")
    assert kept["state"] == "kept"


async def test_minus_one_and_plain_numbers(node: Node) -> None:
    made = await as_json(
        node, "topics", "enable", TOPIC, "--retention-ms", "-1", "--local-retention-ms", "1500"
    )
    assert (made["retention_ms"], made["local_retention_ms"]) == (-1, 1_500)
    made = await as_json(node, "topics", "enable", TOPIC, "--local-retention", "-2")
    assert made["local_retention_ms"] == -2


async def test_status_segments_freeze(node: Node) -> None:
    await as_json(node, "topics", "enable", TOPIC)
    node.ledger.copied(metadata(1, 0, 500, {0: 0}))
    segments = await as_json(node, "segments", TOPIC)
    assert [(row["start_offset"], row["next_offset"]) for row in segments["segments"]] == [(0, 500)]
    table = await asked(node, "segments", TOPIC, "-p", "0")
    assert "COPY_SEGMENT_FINISHED" in table.stdout
    frozen = await as_json(node, "freeze", "--why", "swap")
    assert [(row["topic"], row["by"]) for row in frozen["freezes"]] == [("", "ann")]
    status = await asked(node, "status")
    assert f"{TOPIC}-0" in status.stdout
    assert "everything" in status.stdout
    answer = await as_json(node, "status", TOPIC)
    row = answer["partitions"][0]
    assert (row["remote_next_offset"], row["log_end_offset"], row["lag_bytes"]) == (30, 60, 2048)
    assert (await asked(node, "unfreeze")).stdout == "nothing is frozen\n"


async def test_fetch_prints_records_of_both_tiers() -> None:
    async with enabled_node(Cluster(), log=Log(remote_next=24)) as node:
        result = await asked(node, "fetch", TOPIC, "-p", "0", "-o", "22", "-n", "4")
        lines = await asked(node, "fetch", TOPIC, "-p", "0", "-o", "earliest", "-n", "0", "--json")
        every = await asked(
            node, *("fetch", TOPIC, "-p", "0", "-o", "50", "-n", "0", "--uncommitted")
        )
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(row[0], row[1]) for row in rows] == [
        ("remote", "22"),
        ("remote", "23"),
        ("local", "24"),
        ("local", "25"),
    ]
    assert rows[2][3:] == ["k0", "v24", "h=0"]
    records = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [record["offset"] for record in records] == list(range(54))
    assert records[0]["key"] == "k0"
    assert len(every.stdout.splitlines()) == 10


async def test_fetch_says_where_there_is_no_record() -> None:
    async with enabled_node(Cluster()) as node:
        result = await asked(node, "fetch", TOPIC, "-p", "0", "-o", "latest", "--json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert re.fullmatch(r"rlm: no record from offset \d+ on\n", result.stderr)


async def test_fetch_follows_the_leader() -> None:
    cluster = Cluster()
    async with enabled_node(cluster, node_id=1), enabled_node(cluster, node_id=2) as two:
        result = await asked(two, "fetch", TOPIC, "-p", "0", "-o", "0", "-n", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("remote\t0\t")


async def test_h15_partition_accept_loss_shows_first_what_would_be_accepted() -> None:
    async with api_node(Cluster()) as node:
        shown = await asked(node, "partition", "accept-loss", TOPIC, "-p", "0")
        assert "orders-0" in shown.output and "gone" in shown.output
        assert "as over a compaction gap" in shown.output
        assert "Nothing was changed" in shown.output
        done = await asked(node, "partition", "accept-loss", TOPIC, "-p", "0", "--yes")
        assert "on record now" in done.output
        assert [apply for _, _, apply in node.losses.asked] == [False, True]
        as_json = await asked(node, "partition", "accept-loss", TOPIC, "-p", "0", "--json")
        assert json.loads(as_json.stdout)["ranges"][0]["start_offset"] == 10
        command = ("partition", "accept-loss", TOPIC, "-p", "0", "--without-store")
        assert (await asked(node, *command, str(STORE_ID))).exit_code == 0
        assert node.losses.without == (STORE_ID,)
        assert "--without-store" in (await asked(node, *command, "no-id")).output


async def test_disable_delete_needs_a_yes() -> None:
    async with api_node(Cluster()) as node:
        await as_json(node, "topics", "enable", TOPIC)
        shown = await asked(node, "topics", "disable", TOPIC, "--delete", "--confirm")
        assert shown.exit_code == 1
        assert "--yes decides it, and nothing was changed" in shown.output
        done = await asked(node, "topics", "disable", TOPIC, "--delete", "--yes")
        assert "deleting" in done.stdout and "will be deleted from the remote" in done.output
        kept = await as_json(node, "topics", "disable", TOPIC)
        assert kept["state"] == "kept"


async def test_h07_purge_shows_deleted_topics_and_confirms_by_name() -> None:
    async with api_node(Cluster()) as node:
        nothing = await asked(node, "purge")
        assert "no topic is known to be deleted" in nothing.output
        await as_json(node, "topics", "enable", TOPIC)
        record = node.service.settings.view.topic(TOPIC_ID)
        assert record is not None
        held = TopicEnd(record=record, segments=3, size_bytes=4096, due_in_ms=None, waits="you")
        due = replace(held, record=replace(record, name="due"), due_in_ms=60_000, waits="")
        node.purge.ends = (held, due)
        shown = await asked(node, "purge")
        times = "1970-01-01 00:00:00 .*1970-01-01 00:01:00"
        words = f"{TOPIC} .*{TOPIC_ID} .*enabled .*300 .*4.0 KiB .*{times} .*not decided .*you"
        assert re.search(words, shown.output), shown.output
        assert re.search(r"due .*1m", shown.output), shown.output
        assert node.purge.confirmed == []
        rows = json.loads((await asked(node, "purge", TOPIC, "--confirm", "--json")).stdout)
        assert node.purge.confirmed == [(TOPIC,)]
        assert [row.get("due_in_ms") for row in rows["topics"]] == [None, 60_000]


async def test_partition_adopt_and_adopt_log_start_ask_first() -> None:
    async with api_node(Cluster(), log=Log(frozen=True)) as node:
        await as_json(node, "topics", "enable", TOPIC)
        asked_first = await asked(node, "partition", "adopt", TOPIC, "-p", "0")
        assert asked_first.exit_code != 0
        done = await asked(node, "partition", "adopt", TOPIC, "-p", "0", "--yes")
        assert done.exit_code == 0, done.output
        node.log.frozen = False
        node.log.local_start = 40
        done = await asked(node, "topics", "adopt-log-start", TOPIC, "-p", "0", "--yes")
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (["topics", "enable", "nope"], ["nope", "does not exist"], 1),
        (["topics", "describe", TOPIC], ["not enabled"], 1),
        (["topics", "trim", TOPIC, "on"], ["not enabled"], 1),
        (["topics", "trim", TOPIC, "maybe"], ["'on', 'off'"], 2),
        (["topics", "enable", TOPIC, "--retention", "5x"], ["180d"], 2),
        (["topics", "enable", TOPIC, "--retention-bytes", "-7"], ["-1 (no limit)"], 2),
        (["topics", "enable", TOPIC, "--retention-bytes", "8388608TiB"], ["is too much"], 2),
        (["topics", "enable", TOPIC, "--retention", "106751991168d"], ["is too much"], 2),
        (
            ["topics", "enable", TOPIC, "--retention", "1h", "--local-retention", "2h"],
            ["must not be more than"],
            2,
        ),
        (
            ["topics", "enable", TOPIC, "--retention", "1h", "--retention-ms", "7"],
            ["give one"],
            2,
        ),
        (["topics", "disable", TOPIC, "--yes"], ["goes with --delete"], 2),
        (["topics", "disable", TOPIC, "--delete"], ["rlm purge"], 1),
        (["fetch", TOPIC, "-p", "0", "-o", "soon"], ["earliest or latest"], 2),
        (["fetch", TOPIC, "-p", "9", "-o", "0"], ["it has 0 to 1"], 1),
        (["fetch", TOPIC, "-o", "0"], ["--partition"], 2),
        (["segments", TOPIC], ["not enabled"], 1),
        (
            ["wrong"],
            [
                "there are acls, attach, audit, bucket-policy, clients, completion, config,",
                " copy, ",
            ],
            2,
        ),
        (["statsu"], ["no command 'statsu'; did you mean 'status'?"], 2),
        (["copy", f"{TOPIC}-0"], [f"'{TOPIC}-0' does not exist", f"is written {TOPIC}:0"], 1),
        (["status", "--bad"], ["--bad"], 2),
    ],
)
async def test_wrong_use_is_one_clear_line(
    node: Node, arguments: list[str], words: list[str], status: int
) -> None:
    assert_one_line(await asked(node, *arguments), *words, status=status)


async def test_compacted_topic_and_no_leader() -> None:
    cluster = Cluster(configs={TOPIC: {"cleanup.policy": "compact"}})
    async with api_node(cluster) as node:
        compacted = await asked(node, "topics", "enable", TOPIC)
        assert_one_line(compacted, "cleanup.policy=compact", status=2)
        cluster.leader = -1
        headless = await asked(node, "topics", "enable", TOPIC)
        assert_one_line(headless, "no leader", status=1)


async def test_service_not_reachable_or_not_named(tmp_path: Path) -> None:
    gone = await rlm("status", "--address", "127.0.0.1:1")
    assert_one_line(gone, "127.0.0.1:1", "not reachable", status=1)
    assert_one_line(await rlm("status"), "RLM_ADDRESS", "RLM_SANDBOX", status=2)
    assert_one_line(await rlm("status", "--address", "nonsense"), "HOST:PORT", status=2)
    missing = await rlm("status", env={"RLM_SANDBOX": str(tmp_path)})
    assert_one_line(missing, "no sandbox", status=2)


async def test_an_address_of_no_host_or_of_another_protocol() -> None:
    no_host = await rlm("status", "--address", "no-such-host.invalid:1")
    assert_one_line(no_host, "not reachable: no address is known of this host name", status=1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await rlm("status", "--address", f"127.0.0.1:{port}")
    assert_one_line(found, "speaks HTTP, not gRPC: give the address of grpc.listen", status=1)


async def test_the_help_of_a_group_has_whole_sentences() -> None:
    shown = " ".join((await rlm("partition", "--help")).stdout.split())
    assert "Let readers of TOPIC skip records that no store and no broker has any more." in shown
    assert "..." not in shown.partition("Commands:")[2]


async def test_a_sandbox_names_its_services(node: Node, tmp_path: Path) -> None:
    document = {"brokers": [{"grpc": "127.0.0.1:1"}, {"grpc": node.address}]}
    (tmp_path / "sandbox.json").write_text(json.dumps(document))
    result = await rlm("topics", "list", env={"RLM_SANDBOX": str(tmp_path)})
    assert result.stdout == "no topic is enabled\n", result.output


async def test_serve_names_the_bad_setting(tmp_path: Path) -> None:
    path = tmp_path / "rlm.yaml"
    path.write_text("node.id: x\n")
    assert_one_line(await rlm("serve", "--config", str(path)), "node.id", "whole number", status=2)
    assert_one_line(await rlm("serve", "--config", str(tmp_path / "no")), "no", status=2)


@pytest.mark.parametrize("name", sorted(COMMANDS))
async def test_every_command_has_help(name: str) -> None:
    result = await rlm(name, "--help")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 3
    assert name in (await rlm("--help")).stdout


def test_help_imports_no_heavy_library() -> None:
    script = (
        "import sys\nfrom rlm.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'grpc', 'aiohttp', 'aiokafka', 'rich', 'yaml', 'prometheus_client'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"acls", "sandbox"}))
def test_commands_import_nothing_of_services(name: str) -> None:
    """Each of these takes as long as all that the command needs; whoever asks often waits often."""
    script = (
        f"import sys, {COMMANDS[name].module}\n"
        "heavy = {'aiokafka', 'structlog', 'yaml', 'rlmm', 'kafka_protocol', 'pyspark'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_a_reader_that_is_configured_as_a_broker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rlm.yaml"
    path.write_text("node.id: 1\n")
    result = await rlm("serve", "--role", "reader", "--config", str(path))
    assert_one_line(result, "node.id: a reader has no broker", status=2)
    path.write_text("cluster.id: c1\n")
    result = await rlm("serve", "--config", str(path))
    assert_one_line(result, "state.dir: missing", status=2)
    result = await rlm("serve", "--role", "writer", "--config", str(path))
    assert result.exit_code == 2


async def test_h39_segments_of_a_topic_recreated_are_said_to_be_those_of_the_one_that_is_gone() -> (
    None
):
    cluster = Cluster()
    async with api_node(cluster) as node:
        await as_json(node, "topics", "enable", TOPIC)
        node.ledger.write(metadata(1, 0, 100, {0: 0}))
        listed = await asked(node, "segments", TOPIC)
        assert (listed.exit_code, listed.stderr) == (0, "")
        cluster.recreate(Uuid(bytes(range(100, 116))))
        shown = await asked(node, "segments", TOPIC)
        assert shown.stdout == listed.stdout
        assert f"warning: topic {TOPIC} was deleted and recreated" in shown.stderr
        assert len((await as_json(node, "segments", TOPIC))["segments"]) == 1


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("here", "neither"),
        ("::1:9095", "neither"),
        ("h:0", "the port is not within"),
        ("unix:/" + "x" * 103, "has 104 bytes"),
    ],
)
async def test_an_address_is_read_as_everywhere(address: str, why: str) -> None:
    done = await rlm("status", "--address", address)
    assert done.exit_code != 0
    assert why in done.stderr


async def test_the_version_is_that_of_the_software() -> None:
    assert (await rlm("--version")).stdout == f"rlm, version {software_version()}\n"
