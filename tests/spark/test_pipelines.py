"""Export and audit on a real Spark: killed midway and run again, and damage in the store found."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from rlm_spark.pipelines import export
from rlm_spark.pipelines.arguments import AUDIT
from rlm_spark.pipelines.chunks import ChunkSize
from rlm_spark.pipelines.commands import run_audit
from rlm_spark.pipelines.exporting import ExportReport
from rlm_spark.pipelines.spark_jobs import JobFailed
from tests.project.tree import ROOT
from tests.scenarios.objects import INDEXES, with_records
from tests.spark.conftest import Twins
from tests.spark.exports import exported
from tests.spark.lab import Lab, assert_equal

pytestmark = pytest.mark.integration

_CHUNK = 8
_LIMIT_S = 240


def _options(lab: Lab, topic: str) -> dict[str, str]:
    return {
        **lab.connection(),
        "subscribe": topic,
        "readMode": "remote_preferred",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_uncommitted",
    }


def _commits(root: Path) -> int:
    return len(list((root / "_kafka_rlm_export" / "commits").glob("*/*.json")))


@contextlib.contextmanager
def _driver(lab: Lab, topic: str, root: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An export in processes of its own, all gone afterwards."""
    command = [sys.executable, "-m", "rlm_spark.pipelines", "export", topic, "--dir", str(root)]
    command += ["--headers", "--isolation", "read_uncommitted", "--chunk-records", str(_CHUNK)]
    command += ["--address", lab.endpoint, "--bootstrap-server", lab.cluster.direct]
    java = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    (temporary := root.with_name("tmp")).mkdir()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **java, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(120)


def _kill_workers(spark: SparkSession) -> bool:
    """SIGKILL for the Python workers of the session's JVM, of which some may be idle; whether there
    was one.
    """
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    killed = False
    for daemon in java.children():
        workers: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end with its last worker
            workers = daemon.children()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
                killed = True
    return killed


def _export(lab: Lab, topic: str, root: Path) -> ExportReport:
    size = ChunkSize(records=_CHUNK)
    return export(lab.spark, _options(lab, topic), to=str(root), size=size)


def _killed_export(lab: Lab, topic: str, root: Path, *, after: int) -> None:
    """An export of which workers are killed once so many chunks count, until one was at work."""
    outcome: list[ExportReport | JobFailed] = []

    def run() -> None:
        try:
            outcome.append(_export(lab, topic, root))
        except JobFailed as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    killed = False
    while thread.is_alive():
        if _commits(root) >= after:
            killed |= _kill_workers(lab.spark)
        thread.join(0.2)
    assert killed, "it had ended before the kill"
    (ended,) = outcome
    assert isinstance(ended, JobFailed), ended
    assert "lost task" in str(ended).lower(), ended


def _stopped_export(lab: Lab, topic: str, root: Path, *, after: int) -> ExportReport:
    """An export that is asked to stop once so many chunks count."""
    stop = threading.Event()

    def show(*progress: object) -> None:
        if _commits(root) >= after:
            stop.set()

    size = ChunkSize(records=_CHUNK)
    options = _options(lab, topic)
    report: ExportReport = export(lab.spark, options, to=str(root), size=size, show=show, stop=stop)
    return report


def test_an_export_whose_driver_and_worker_are_killed_has_every_row_once(
    lab: Lab, twins: Twins, tmp_path: Path
) -> None:
    root, topic = tmp_path / "exported", twins.tiered
    with _driver(lab, topic, root) as driver:
        lab.cluster.wait_for(lambda: _commits(root) >= 5, "five chunks", _LIMIT_S)
        assert driver.poll() is None, "it had ended before the kill"
        os.kill(driver.pid, signal.SIGKILL)  # its Java and workers live on for a while
        driver.wait(120)
        _killed_export(lab, topic, root, after=_commits(root) + 5)
        stopped = _stopped_export(lab, topic, root, after=_commits(root) + 1)
        assert stopped.is_stopped
        assert 0 < stopped.left < len(stopped.chunks)
        report = _export(lab, topic, root)
    assert (report.left, report.problems, report.is_stopped) == (0, (), False)
    assert_equal(exported(root, topic), twins.expected())
    assert not list((root / "_kafka_rlm_export" / "attempts").iterdir())
    assert _export(lab, topic, root).chunks == ()


@contextlib.contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """One byte in the middle is another for a while."""
    before = path.read_bytes()
    at = len(before) // 2
    mode = path.stat().st_mode
    path.chmod(0o600)
    try:
        path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        yield
    finally:
        path.write_bytes(before)
        path.chmod(mode)


@contextlib.contextmanager
def _gone(path: Path) -> Iterator[None]:
    aside = path.with_name("aside")
    path.rename(aside)
    try:
        yield
    finally:
        aside.rename(path)


def _audit(
    topic: str, endpoint: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    values = {row.name: row.default for row in AUDIT}
    status = run_audit([topic], values, {"rlm.endpoints": endpoint}, as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, found


def test_an_audit_finds_a_flipped_byte_and_a_missing_object(
    lab: Lab, twins: Twins, capsys: pytest.CaptureFixture[str]
) -> None:
    status, whole = _audit(twins.tiered, lab.endpoint, capsys)
    assert (status, whole["findings"]) == (0, 0), whole
    (topic,) = whole["topics"]
    assert topic["partitions"] == 3
    assert topic["segments"] > 10
    remote = [row for row in twins.rows if row.offset < twins.remote_ends[row.partition]]
    assert topic["records"] >= len(remote)  # with those of aborted transactions
    store = Path(lab.cluster.sandbox.json["dir"]) / "store"
    folder = next(store.glob(f"*/{twins.tiered}-*"))
    flipped = with_records(folder / "0")[1]
    lost = min(path for path in folder.glob("1/*") if path.name.endswith(INDEXES))
    with _damaged(flipped), _gone(lost):
        status, found = _audit(twins.tiered, lab.endpoint, capsys)
    assert status == 1
    findings = found["topics"][0]["findings"]
    by_object = {(one["object_name"], one["kind"]) for one in findings}
    assert (str(flipped.relative_to(store)), "checksum") in by_object
    assert (str(lost.relative_to(store)), "missing") in by_object
    stems = [str(path.relative_to(store).with_suffix("")) for path in (flipped, lost)]
    # In blocks nothing can be read without the index either.
    assert {name.rpartition(".")[0] for name, _ in by_object} == set(stems)
