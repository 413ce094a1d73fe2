"""`rlm diagnose` and the call Diagnose: one archive of all services, and what is not in it."""

import json
import stat
import tarfile
from dataclasses import replace
from pathlib import Path

from kip405.ids import PartitionKey
from rlm.plans.problems import Problem, ProblemKind
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.rlm.api.harness import api_node
from tests.rlm.api.node_fakes import say_alive
from tests.rlm.cli.invoking import as_json, asked, assert_one_line
from tests.rlm.tasks.test_decisions import COPIED
from tests.rlm.topics.cluster import Cluster


def content(path: Path) -> dict[str, bytes]:
    """By name below the archive's one folder."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            folder, _, name = member.name.partition("/")
            assert folder == path.name.removesuffix(".tar.gz") and member.mode == 0o600
            file = archive.extractfile(member)
            assert file is not None
            found[name] = file.read()
    return found


async def test_an_archive_has_the_cluster_and_each_service(tmp_path: Path) -> None:
    cluster, path = Cluster(), tmp_path / "found.tar.gz"
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        await as_json(one, "topics", "enable", TOPIC)
        one.reports.documents.found = {"metrics.txt": b"m 1\n"}
        two.reports.documents.found = {"metrics.txt": b"m 2\n"}
        done = await asked(one, "diagnose", "-o", str(path))
    assert done.exit_code == 0, done.output
    found = content(path)
    assert sorted(found) == [
        "about.json",
        "errors.json",
        "events.json",
        "service-1/metrics.txt",
        "service-2/metrics.txt",
        "status.json",
    ]
    assert (found["service-1/metrics.txt"], found["service-2/metrics.txt"]) == (b"m 1\n", b"m 2\n")
    assert json.loads(found["status.json"])["partitions"][0]["topic"] == TOPIC
    assert json.loads(found["errors.json"]) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_each_service_masks_its_own_secrets_in_status_and_events(tmp_path: Path) -> None:
    cluster, path = Cluster(), tmp_path / "found.tar.gz"
    async with api_node(cluster, node_id=1) as one, api_node(cluster, node_id=2) as two:
        await one.service.settings.barrier(1)
        for number, node in enumerate((one, two)):
            secret = f"planted-{number}"
            node.reports.documents.secrets = (secret,)
            node.statuses.problems[:] = [
                Problem(
                    kind=ProblemKind.STORE_REFUSES_WRITES,
                    subject=f"store {number}",
                    text=f"refused {secret}",
                    since_ms=0,
                )
            ]
            key, tasks = PartitionKey(TOPIC_ID, number), node.reports.tasks
            tasks.copied[key] = replace(COPIED, partition=number, detail=f"because of {secret}")
            tasks.decisions.copy_ended(key)
        unmasked = "".join([(await asked(one, of)).stdout for of in ("status", "events")])
        done = await asked(one, "diagnose", "-o", str(path))
    assert done.exit_code == 0, done.output
    assert all(f"{word} planted-{at}" in unmasked for word in ("refused", "of") for at in (0, 1))
    found = content(path)
    texts = {row["text"] for row in json.loads(found["status.json"])["problems"]}
    assert "refused ***" in texts
    assert [row["text"] for row in json.loads(found["events.json"])["events"]] == [
        "remote up to 10; waiting for the last stable offset because of ***"
    ] * 2
    assert b"planted" not in b"".join(found.values())


async def test_h38_what_is_missing_is_said_in_it(tmp_path: Path) -> None:
    path = tmp_path / "d.tar.gz"
    async with api_node(Cluster()) as node:
        await say_alive(node.service, 2, "127.0.0.1:1")
        done = await asked(node, "diagnose", "-o", str(path), "--json")
    assert done.exit_code == 1
    [error] = json.loads(content(path)["errors.json"])
    assert error.startswith("the service of broker 2: ")
    assert json.loads(done.stdout)["errors"] == [error]


async def test_no_file_is_overwritten_and_no_document_leaves_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "d.tar.gz"
    path.write_text("mine")
    async with api_node(Cluster()) as node:
        refused = await asked(node, "diagnose", "-o", str(path))
        assert_one_line(refused, "File exists", status=2)
        node.reports.documents.found = {"../up": b""}
        other = str(tmp_path / "other.tar.gz")
        assert_one_line(await asked(node, "diagnose", "-o", other), "'../up'", status=2)
    assert path.read_text() == "mine"
