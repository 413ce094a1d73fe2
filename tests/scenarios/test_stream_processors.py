"""Kafka Streams and Flink aggregate a trimmed topic from its earliest record, and an untrimmed twin
of it: the results are equal, and are those of the records that were acknowledged.
"""

import json
import os
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.java_classes import compiled, java_compiler, kafka_class_path
from rlm.cli.main import main
from rlm_sandbox.kafka_dist import cache_dir, java_binary, java_environment
from rlm_sandbox.maven import cached_jars
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxError
from tests.scenarios.client_programs import PROGRAMS
from tests.scenarios.cluster import Cluster, Row, fresh

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_RECORDS = 1_500
_VALUE = b"v" * 900
_RUN_LIMIT_S = 500
"""Of a machine that does much else besides; alone each program takes some seconds."""

_STREAMS_MIB, _FLINK_MIB = 6, 90
_FLINK = "1.20.1"
_FLINK_JARS = (
    f"org.apache.flink:flink-clients:{_FLINK}",
    f"org.apache.flink:flink-streaming-java:{_FLINK}",
    f"org.apache.flink:flink-connector-base:{_FLINK}",
    "org.apache.flink:flink-connector-kafka:3.4.0-1.20",
)
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.lang.reflect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """One topic whose oldest records only the store has, and one with the same records that no
    service has touched.
    """

    cluster: Cluster
    tiered: str
    untouched: str
    rows: list[Row]

    def expected(self) -> dict[str, str]:
        """By the last character of the key: records, and the sum of their checksums."""
        totals: dict[str, tuple[int, int]] = {}
        for row in self.rows:
            assert row.key is not None and row.value is not None
            group = row.key[-1:].decode()
            count, total = totals.get(group, (0, 0))
            totals[group] = (count + 1, total + zlib.crc32(row.key + row.value))
        return {group: f"{count}:{total}" for group, (count, total) in sorted(totals.items())}

    def spec(self, topic: str) -> dict[str, Any]:
        return {
            "bootstrap": self.cluster.bootstrap,
            "topic": topic,
            "count": len(self.rows),
            "group": fresh("totals"),
            "protocol": "classic",
            "security": self.cluster.client_security(),
        }


@pytest.fixture(scope="module")
def twins(sandbox: Sandbox) -> Iterator[Twins]:
    with Cluster(sandbox) as cluster:
        tiered, untouched = fresh("history"), fresh("untouched")
        rows: list[Row] = []
        for topic in (tiered, untouched):
            cluster.create_topic(topic, partitions=_PARTITIONS)
            values = (
                (n % _PARTITIONS, b"key-%d" % n, b"%d" % n + _VALUE)
                for n in range(_PARTITIONS * _RECORDS)
            )
            rows = cluster.produce(topic, values)
        cluster.enable(tiered, "--trim", "--local-retention-bytes", "1")
        for partition in range(_PARTITIONS):
            cluster.wait_trimmed(tiered, partition, beyond=_RECORDS // 10)
        yield Twins(cluster=cluster, tiered=tiered, untouched=untouched, rows=rows)
        cluster.delete_topics()


def _with_files_in(folder: Path, command: list[str]) -> list[str]:
    """The same command, with its temporary files in a folder of the test."""
    return [command[0], f"-Djava.io.tmpdir={folder}", *command[1:]]


def _printed(command: list[str], spec: dict[str, Any]) -> Any:
    done = subprocess.run(
        command,
        input=json.dumps(spec) + "\n",
        capture_output=True,
        text=True,
        env=java_environment(),
        timeout=_RUN_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


def _jars(name: str, coordinates: tuple[str, ...], size_mib: int, *, alone: bool) -> str:
    """As a class path; skips where they cannot be had."""
    try:
        jars = cached_jars(
            name,
            coordinates,
            cache_dir(),
            repository=os.environ.get("RLM_MAVEN_REPO"),
            size_mib=size_mib,
            progress=lambda _: None,
            alone=alone,
        )
    except SandboxError as error:
        pytest.skip(f"jars cannot be had for {name}: {error}")
    return os.pathsep.join(map(str, jars))


def _streams_command(sandbox: Sandbox) -> list[str]:
    dist = sandbox.dist
    name = f"kafka-streams-{dist.version}"
    coordinate = f"org.apache.kafka:kafka-streams:{dist.version}"
    jars = _jars(name, (coordinate,), _STREAMS_MIB, alone=True)
    needed = os.pathsep.join((kafka_class_path(dist, PROGRAMS / "java", "client-reader"), jars))
    classes = compiled(
        java_compiler(), PROGRAMS / "streams", needed, f"client-streams-{dist.version}"
    )
    command = dist.tool_command("Totals")
    command[command.index("-cp") + 1] = os.pathsep.join((needed, str(classes)))
    return command


def _flink_command() -> list[str]:
    jars = _jars(f"flink-{_FLINK}", _FLINK_JARS, _FLINK_MIB, alone=False)
    classes = compiled(java_compiler(), PROGRAMS / "flink", jars, f"client-flink-{_FLINK}")
    opened = [part for one in _OPENED for part in ("--add-opens", f"{one}=ALL-UNNAMED")]
    options = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
    path = os.pathsep.join((jars, str(classes)))
    return [str(java_binary()), *options, *opened, "-cp", path, "Flink"]


@pytest.mark.timeout(1_200)
def test_kafka_streams_aggregates_what_is_trimmed(
    twins: Twins, sandbox: Sandbox, tmp_path: Path
) -> None:
    command = _with_files_in(tmp_path, _streams_command(sandbox))
    starts = [twins.cluster.log_start(twins.tiered, p) for p in range(_PARTITIONS)]
    assert min(starts) > 0
    found = _printed(command, twins.spec(twins.tiered))
    assert found == twins.expected()
    assert found == _printed(command, twins.spec(twins.untouched))


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_flink_aggregates_what_is_trimmed(twins: Twins, tmp_path: Path) -> None:
    command = _with_files_in(tmp_path, _flink_command())
    assert min(twins.cluster.log_start(twins.tiered, p) for p in range(_PARTITIONS)) > 0
    found = _printed(command, twins.spec(twins.tiered))
    assert found == twins.expected()
    assert found == _printed(command, twins.spec(twins.untouched))


def test_the_prefixes_of_all_topics_are_those_that_the_brokers_have(twins: Twins) -> None:
    config = str(twins.cluster.sandbox.layout.rlm_config(1))
    done = CliRunner().invoke(main, ["store", "prefixes", "--all", "--json", "--config", config])
    assert done.exit_code == 0, done.output
    names = {name for one in json.loads(done.output)["prefixes"] for name in one["partitions"]}
    assert {f"{twins.tiered}-{p}" for p in range(_PARTITIONS)} < names
    assert not any(name.startswith("__") for name in names)
