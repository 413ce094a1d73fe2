"""`rlm import pinterest` as a command, and what a reader without Kafka serves of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.builders.attached_process import attached_reader
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.pinterest import (
    BITS,
    CLUSTER,
    PREFIX,
    TOPIC,
    ImportSite,
    TheirBucket,
    upload_all,
)
from tests.kip405.batch_builder import batch, control_batch, log_of

LOGS = (
    log_of(0, [40, 60]),
    batch(100, 10, transactional=True, producer_id=7) + batch(110, 10, epoch=1),
    control_batch(120, 0, producer_id=7, epoch=1) + batch(121, 79, epoch=3),
)
COMMITTED = [*range(100), *range(110, 120), *range(121, 200)]


def plugin_file(site: ImportSite) -> Path:
    path = site.folder / "plugin.yaml"
    rows = {"listen": "127.0.0.1:0", "plugin": "local", "rsm.config.root": str(site.root)}
    path.write_text(yaml.safe_dump(rows), encoding="utf-8")
    return path


def theirs(site: ImportSite) -> dict[str, Any]:
    return {
        "rsm.config.pinterest.root": str(site.bucket.root),
        "rsm.config.pinterest.prefix": PREFIX,
        "rsm.config.pinterest.cluster": CLUSTER,
        "rsm.config.pinterest.entropy.bits": BITS,
    }


def run(site: ImportSite, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [
        *(sys.executable, "-P", "-m", "rlm.cli.main", "import", "pinterest"),
        *("--plugin-config", str(plugin_file(site)), "--bucket", str(site.bucket.root)),
        *("--prefix", PREFIX, "--cluster", CLUSTER, "--entropy-bits", str(BITS), *options),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_reader_serves_what_was_imported(tmp_path: Path) -> None:
    site = ImportSite(tmp_path)
    upload_all(site.bucket, *LOGS)
    before = site.bucket.content()
    planned = run(site, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    (row,) = json.loads(planned.stdout)["partitions"]
    assert (row["topic"], row["new_segments"], row["watermark"]) == (TOPIC, 3, 120)
    assert site.content() == {}
    done = run(site, "--cluster-id", CLUSTER_ID)
    assert done.returncode == 0, done.stderr
    assert f"{TOPIC}-0: 3 segments imported" in done.stdout
    assert f"{TOPIC}-0: 3 of 3 segments" in done.stderr
    with attached_reader(tmp_path, site.root, settings=theirs(site)) as reader:
        remote = ("--remote-only", "-n", "0", "--json")
        fetched = reader.rlm("fetch", TOPIC, "-p", "0", "-o", "earliest", *remote)
        assert fetched.returncode == 0, fetched.stderr
        rows = [json.loads(line) for line in fetched.stdout.splitlines()]
        assert [one["offset"] for one in rows] == COMMITTED
        assert {one["value"] for one in rows} == {"value"}
    assert site.bucket.content() == before


def test_what_cannot_be_imported_is_said_in_one_line(tmp_path: Path) -> None:
    site = ImportSite(tmp_path)
    upload_all(site.bucket, LOGS[0])
    unknown = run(site)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "--cluster-id says whose it becomes" in unknown.stderr
    (site.bucket.folder / "offset.wm").unlink()
    refused = run(site, "--cluster-id", CLUSTER_ID)
    assert refused.returncode == 1
    assert f"{TOPIC}-0: refused: it has no offset.wm" in refused.stdout


def test_a_damaged_log_is_named_and_other_partitions_go_on(tmp_path: Path) -> None:
    site = ImportSite(tmp_path)
    upload_all(site.bucket, *LOGS)
    upload_all(TheirBucket(site.bucket.root, partition=1), LOGS[0])
    site.bucket.file(100).write_bytes(LOGS[1][:-1])
    done = run(site, "--cluster-id", CLUSTER_ID)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    stopped, other = done.stdout.splitlines()
    assert stopped.startswith(f"{TOPIC}-0: 1 segments imported; stopped: ")
    assert "00000000000000000100.log: at file position" in stopped
    assert stopped.endswith("import again when it is mended")
    assert other == f"{TOPIC}-1: 1 segments imported"
    with attached_reader(tmp_path, site.root, settings=theirs(site)) as reader:
        remote = ("--remote-only", "-n", "0", "-o", "earliest")
        whole = reader.rlm("fetch", TOPIC, "-p", "1", *remote)
        assert (whole.returncode, len(whole.stdout.splitlines())) == (0, 100)
        cut = reader.rlm("fetch", TOPIC, "-p", "0", *remote)
        assert cut.returncode != 0
        assert "offsets from 100 on are doubtful: their log could not be imported" in cut.stderr
        assert "00000000000000000100.log" in reader.rlm("status").stdout
