"""A real tiered topic with transactions, read without us: cp, Kafka's dump-log, sixty lines; and
put back into a broker that never saw it.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from rlm_sandbox.kafka_dist import KafkaDist
from rlm_sandbox.sandbox import Sandbox
from tests.docs.page import block, decode, run_shell
from tests.docs.test_blocks_without_us import make_logs
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh, row_of, text_value

pytestmark = pytest.mark.integration

_LIMIT_S = 120
COMMITTED: dict[str, Any] = {"isolation.level": "read_committed"}
GZIP: dict[str, Any] = {"compression.type": "gzip"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiered:
    """A topic of one partition; `rows` are the committed records below `remote_end`."""

    cluster: Cluster
    topic: str
    topic_id: str
    rows: list[Row]
    remote_end: int

    @property
    def plugin_config(self) -> Path:
        return next(Path(self.cluster.sandbox.json["dir"]).rglob("plugin*.yaml"))

    @property
    def folders(self) -> tuple[Path, str]:
        """The store's directory, and the partition's folder in it."""
        rows = yaml.safe_load(self.plugin_config.read_text(encoding="utf-8"))
        root = Path(rows["rsm.config.root"])
        (folder,) = root.rglob(f"{self.topic}-{self.topic_id}/0")
        return root, folder.relative_to(root).as_posix()


@pytest.fixture(scope="module")
def tiered(sandbox: Sandbox) -> Iterator[Tiered]:
    cluster = Cluster(sandbox)
    topic = fresh("outside")
    cluster.create_topic(topic)
    cluster.enable(topic, "--trim", "--local-retention-bytes", "1")
    rows = cluster.fill(topic, mib=1, **GZIP)
    rows += transaction(cluster, topic, commits=True)
    transaction(cluster, topic, commits=False)
    rows += cluster.fill(topic, mib=3)
    cluster.wait_for(
        lambda: cluster.log_start(topic) > rows[-1].offset - 1100, f"{topic} is trimmed"
    )
    cluster.wait_copied(topic)
    end = max(row["next_offset"] for row in cluster.rlm_json("segments", topic)["segments"])
    yield Tiered(
        cluster=cluster,
        topic=topic,
        topic_id=cluster.rlm_json("topics", "describe", topic)["topic_id"],
        rows=sorted((row for row in rows if row.offset < end), key=lambda row: row.offset),
        remote_end=end,
    )
    cluster.delete_topics()
    cluster.close()


def transaction(cluster: Cluster, topic: str, *, commits: bool) -> list[Row]:
    """Fifty records of a transaction of its own."""
    rows: list[Row] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{commits}"}
    )
    producer.init_transactions(_LIMIT_S)
    producer.begin_transaction()
    for _ in range(50):
        producer.produce(
            topic,
            value=text_value(),
            key=b"tx",
            partition=0,
            on_delivery=lambda _, message: rows.append(row_of(message)),
        )
    producer.flush(_LIMIT_S)
    if commits:
        producer.commit_transaction(_LIMIT_S)
    else:
        producer.abort_transaction(_LIMIT_S)
    return rows


@pytest.fixture
def kafka_bin(tiered: Tiered, tmp_path: Path) -> Path:
    """`bin/` of a Kafka, as far as the page needs it."""
    dist: KafkaDist = tiered.cluster.sandbox.dist
    folder = tmp_path / "bin"
    folder.mkdir()
    command = " ".join(
        f"'{word}'" for word in dist.tool_command("org.apache.kafka.tools.DumpLogSegments")
    )
    rlm = folder / "rlm"
    rlm.write_text(f"#!/bin/sh\nexec '{sys.executable}' -P -m rlm.cli.main \"$@\"\n")
    tool = folder / "kafka-dump-log.sh"
    tool.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    for one in (rlm, tool):
        one.chmod(0o755)
    return folder


def fetched(tiered: Tiered, tmp_path: Path) -> None:
    root, partition = tiered.folders
    run_shell(block("sh", "cp -R"), tmp_path, STORE=str(root), PARTITION=partition)
    if next(tmp_path.glob("fetched/*.blocks"), None) is not None:  # RLM_TEST_LAYOUT
        assert make_logs(tmp_path).returncode == 0


def test_sixty_lines_give_every_committed_record(tiered: Tiered, tmp_path: Path) -> None:
    fetched(tiered, tmp_path)
    done = decode(tmp_path)
    assert done.returncode == 0, done.stderr
    printed = [line.split("\t") for line in done.stdout.splitlines()]
    wanted = [
        [str(row.offset), str(row.timestamp_ms), repr(row.key), repr(row.value), "[]"]
        for row in tiered.rows
    ]
    assert printed == wanted
    assert any(row.key == b"tx" for row in tiered.rows)


def test_kafkas_dump_log_prints_an_object(tiered: Tiered, tmp_path: Path, kafka_bin: Path) -> None:
    fetched(tiered, tmp_path)
    objects = sorted(path.name for path in (tmp_path / "fetched").glob("*.log"))
    found = []
    for name in objects:
        done = run_shell(
            block("sh", "--print-data-log"), tmp_path, path=kafka_bin, OBJECT=name
        ).stdout
        assert "isvalid: false" not in done
        assert "isvalid: true" in done
        found += re.findall(r"^\| offset: (\d+).* payload: (.*)$", done, re.MULTILINE)
    printed = {int(offset): payload.encode() for offset, payload in found}
    assert {row.offset: row.value for row in tiered.rows}.items() <= printed.items()


def downloaded(tiered: Tiered, tmp_path: Path, kafka_bin: Path) -> Path:
    """By the page's own commands, from the store alone."""
    (tmp_path / "plugin.yaml").write_text(tiered.plugin_config.read_text())
    done = run_shell(
        block("sh", "rlm download"), tmp_path, path=kafka_bin, TOPIC=tiered.topic, RLM_SANDBOX=""
    )
    assert "isvalid: false" not in done.stdout
    logs = sorted((tmp_path / "downloaded" / f"{tiered.topic}-0").glob("*.log"))
    dumped = [int(base) for base in re.findall(r"^Log starting offset: (\d+)", done.stdout, re.M)]
    assert dumped == [int(path.stem) for path in logs]
    assert "isvalid: true" in done.stdout
    return tmp_path / "downloaded"


def test_download_by_store_by_plugin_and_by_service_are_the_same(
    tiered: Tiered, tmp_path: Path, kafka_bin: Path
) -> None:
    root = downloaded(tiered, tmp_path, kafka_bin)
    name = f"{tiered.topic}-0"
    tiered.cluster.rlm("download", tiered.topic, "--dir", str(tmp_path / "by-service"))
    plugin = tiered.cluster.sandbox.json["plugin"]
    tiered.cluster.rlm(
        "download", tiered.topic, "--dir", str(tmp_path / "by-plugin"), "--plugin", plugin
    )
    for other in ("by-service", "by-plugin"):
        assert contents(tmp_path / other / name) == contents(root / name)
    suffixes = {path.suffix for path in (root / name).iterdir()}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata"} <= suffixes


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.timeout(300)
def test_a_fresh_broker_serves_the_download(
    tiered: Tiered, tmp_path: Path, kafka_bin: Path, sandbox_factory: SandboxFactory
) -> None:
    root = downloaded(tiered, tmp_path, kafka_bin)
    made = sandbox_factory(services=False)
    with Cluster(made) as cluster:
        _served_from(cluster, root, tiered)


def _served_from(cluster: Cluster, root: Path, tiered: Tiered) -> None:
    """The broker takes the downloaded log for its own."""
    made = cluster.sandbox
    cluster.create_topic(tiered.topic, configs={"retention.ms": "-1"})
    made.stop("broker:1")
    (log_dir,) = [one for one in made.log_dirs() if (one / f"{tiered.topic}-0").exists()]
    empty = log_dir / f"{tiered.topic}-0"
    new_id = (empty / "partition.metadata").read_bytes()
    for path in empty.iterdir():
        path.unlink()
    for path in (root / f"{tiered.topic}-0").iterdir():
        (empty / path.name).write_bytes(path.read_bytes())
    (empty / "partition.metadata").write_bytes(new_id)
    made.start("broker:1")
    assert cluster.log_end(tiered.topic) == tiered.remote_end
    read = cluster.read_all(tiered.topic, bootstrap=made.direct_bootstrap, **COMMITTED)
    assert_same(read, tiered.rows)
