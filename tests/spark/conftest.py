"""One Spark, one sandbox and one history for all tests of the connector."""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import SparkSession

from bench.spark.peer import source_class_path
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxError
from rlm_spark import local_spark
from tests.scenarios.cluster import Cluster, Row, fresh
from tests.scenarios.faults import whole
from tests.spark import history
from tests.spark.lab import SPARKS_OWN, TIERED, Lab, Seen, expected

_QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture(scope="session")
def kafka_source() -> str | None:
    """The class path of Spark's own Kafka source; None where its jars cannot be had."""
    try:
        return source_class_path()
    except SandboxError as error:
        warnings.warn(f"a plain consumer is the only oracle: {error}", stacklevel=1)
        return None


@pytest.fixture(scope="session")
def spark(kafka_source: str | None) -> Iterator[SparkSession]:
    """A Spark on two cores, small and quick to start; its Java ends with the tests."""
    conf = {
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraClassPath": kafka_source or "",
    }
    made = local_spark.session("tests", cores=2, conf=conf, jvm=_QUICK_JVM)
    try:
        yield made
    finally:
        local_spark.stop(made)


@pytest.fixture(scope="session")
def one_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """The session's one-broker sandbox; RLM_ONE_SANDBOX=DIR: a running one instead."""
    if running := os.environ.get("RLM_ONE_SANDBOX"):
        return Sandbox.open(Path(running))
    found: Sandbox = request.getfixturevalue("sandbox")
    return found


@pytest.fixture
def cluster(one_sandbox: Sandbox) -> Iterator[Cluster]:
    """The session's one broker, whole again after the test: use topics of your own."""
    with Cluster(one_sandbox) as made:
        try:
            yield made
        finally:
            whole(made)


@pytest.fixture
def lab(spark: SparkSession, cluster: Cluster) -> Lab:
    return Lab(spark=spark, cluster=cluster)


@pytest.fixture(
    params=[TIERED, pytest.param(SPARKS_OWN, marks=pytest.mark.long)],
)
def either(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    cluster: Cluster,
    kafka_source: str | None,
) -> Lab:
    """The source under test; in LONG also Spark's own, to see that a test asks the right thing."""
    if request.param == SPARKS_OWN and kafka_source is None:
        pytest.skip("the jars of Spark's Kafka source cannot be had")
    return Lab(spark=spark, cluster=cluster, source=request.param)


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """The same history twice: `tiered` is mostly remote, `plain` wholly in Kafka."""

    tiered: str
    plain: str
    rows: tuple[Row, ...]
    committed_rows: tuple[Row, ...]
    local_starts: tuple[int, ...]
    """Where the broker's log of each partition of `tiered` starts."""
    remote_ends: tuple[int, ...]

    def expected(self, *, committed: bool = False, headers: bool = True) -> list[Seen]:
        """What a plain consumer reads of the plain twin."""
        return expected(self.committed_rows if committed else self.rows, headers=headers)


@pytest.fixture(scope="session")
def twins(one_sandbox: Sandbox) -> Twins:
    """Some hundred records a partition, in a handful of segments."""
    with Cluster(one_sandbox) as cluster:
        return made_twins(cluster)


@pytest.fixture(scope="session")
def large_twins(one_sandbox: Sandbox) -> Twins:
    """Ten times as much: about 45 MiB a partition."""
    with Cluster(one_sandbox) as cluster:
        return made_twins(cluster, passes=10 * history.PASSES)


def made_twins(cluster: Cluster, *, passes: int = history.PASSES) -> Twins:
    """Written, copied, trimmed, and read once by a plain consumer."""
    tiered, plain = fresh("history"), fresh("twin")
    for topic in (tiered, plain):
        history.create(cluster, topic)
    cluster.enable(tiered, "--trim", "--local-retention-bytes", "1")
    for topic in (tiered, plain):
        history.write(cluster, topic, passes=passes)
    partitions = range(history.PARTITIONS)
    starts = tuple(trimmed_to_active(cluster, tiered, partition) for partition in partitions)
    ends = [cluster.log_end(plain, partition) for partition in partitions]
    assert ends == [cluster.log_end(tiered, partition) for partition in partitions]
    assert sum(starts) >= 0.8 * sum(ends), f"only {starts} of {ends} are remote only"
    return Twins(
        tiered=tiered,
        plain=plain,
        rows=_read(cluster, plain, IsolationLevel.READ_UNCOMMITTED),
        committed_rows=_read(cluster, plain, IsolationLevel.READ_COMMITTED),
        local_starts=starts,
        remote_ends=starts,
    )


def _read(cluster: Cluster, topic: str, isolation: IsolationLevel) -> tuple[Row, ...]:
    """Straight from Kafka, up to what the isolation level lets one see."""
    topic_partitions = [TopicPartition(topic, partition) for partition in range(history.PARTITIONS)]
    asked = cluster.admin.list_offsets(
        dict.fromkeys(topic_partitions, OffsetSpec.latest()), isolation_level=isolation
    )
    ends = {
        topic_partition.partition: int(future.result(120).offset)
        for topic_partition, future in asked.items()
    }
    level: dict[str, Any] = {"isolation.level": isolation.name.lower()}
    return tuple(cluster.read_all(topic, end=ends, bootstrap=cluster.direct, **level))


def trimmed_to_active(cluster: Cluster, topic: str, partition: int) -> int:
    """Until the broker has only the segment that it writes; answers where that begins."""
    end = cluster.log_end(topic, partition)

    def is_trimmed() -> bool:
        row = cluster.status(topic, partition)
        start, remote_end = row["local_log_start_offset"], row["remote_next_offset"]
        is_newest = row["high_watermark"] == end  # not of a time at which less was written
        return bool(is_newest and row["lag_segments"] == 0 and 0 < remote_end == start)

    cluster.wait_for(is_trimmed, f"{topic}-{partition} is trimmed to its active segment")
    return cluster.log_start(topic, partition)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a stream keeps its output and its checkpoint."""
    return tmp_path
