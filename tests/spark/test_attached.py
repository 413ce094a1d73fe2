"""The whole cluster is gone but for its bucket: the history is served without any Kafka."""

import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rlm.v1 import fetch_pb2 as pb
from tests.builders.attached_process import attached_reader
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.attached import content
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.faults import store_dir
from tests.scenarios.test_reader_role import Endpoint
from tests.scenarios.test_transactions import COMMITTED, UNCOMMITTED, Transaction
from tests.spark.lab import TIERED, assert_equal, expected, seen

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


def test_the_history_of_a_lost_cluster_is_served_and_read_by_spark(
    sandbox_factory: SandboxFactory, spark: SparkSession, tmp_path: Path
) -> None:
    sandbox, topic = sandbox_factory(), fresh("lost")
    bucket = tmp_path / "bucket"
    with Cluster(sandbox) as cluster:
        cluster.create_topic(topic)
        cluster.enable(topic)
        transaction = Transaction(cluster, topic, "aborted")
        cluster.fill(topic, mib=1)
        transaction.produce(200)
        transaction.abort()
        cluster.fill(topic, mib=3)
        cluster.wait_trimmed(topic)
        cluster.wait_copied(topic)
        end = int(cluster.status(topic)["remote_next_offset"])
        committed, whole = (
            [row for row in cluster.read_all(topic, **level) if row.offset < end]
            for level in (COMMITTED, UNCOMMITTED)
        )
        del transaction
        shutil.copytree(store_dir(cluster), bucket)
    sandbox.down(delete=True)
    assert not os.path.exists(sandbox.layout.state)
    with attached_reader(tmp_path, bucket) as reader:
        served = Endpoint(reader.address, topic)
        assert (served.position(-2), served.position(-1)) == (0, end)
        _, aborted, found = content(served, 0, end, pb.READ_UNCOMMITTED)
        got = [row for row in found if row[1] is not None and row[1][:2] in (b"ke", b"tx")]
        assert got == [(row.offset, row.key, row.value) for row in whole]
        assert len(aborted) == 0
        assert len(content(served, 0, end, pb.READ_COMMITTED)[1]) == 1
        frame = spark.read.format(TIERED).options(
            **{
                "rlm.endpoints": reader.address,
                "readMode": "remote_only",
                "includeHeaders": "true",
                "subscribe": topic,
                "kafka.isolation.level": "read_committed",
            }
        )
        assert_equal(seen(frame.load()), expected(committed))
