"""Spark reads a topic through whose layout changed in the middle, whatever the layouts are."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.layout_changes import changed_through, with_all_layouts
from tests.spark.lab import Lab, assert_equal, expected, seen

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_topic_whose_layout_changes_is_read_through(
    spark: SparkSession, sandbox_factory: SandboxFactory, kind: str, folder: Path
) -> None:
    """As a batch and as a stream from both tiers, and from the remote tier alone."""
    with Cluster(with_all_layouts(sandbox_factory, kind)) as cluster:
        topic, lab = fresh("layouts"), Lab(spark=spark, cluster=cluster)
        rows = changed_through(cluster, topic)
        options = {"includeHeaders": "true"}
        assert_equal(seen(lab.read(topic, options)), expected(rows))
        lab.run_available(lab.stream(topic, options), folder)
        assert_equal(seen(lab.written(folder)), expected(rows))
        remote = {"readMode": "remote_only", **options}
        end = cluster.status(topic)["remote_next_offset"]
        assert_equal(seen(lab.read(topic, remote)), expected(rows[:end]))
