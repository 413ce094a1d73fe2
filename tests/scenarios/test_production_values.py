"""H30: the same journey with the intervals that brokers and services have in production.

The sandbox is quick everywhere else; here trims become visible on disk only after minutes, and the
service looks at a partition every half minute, so that reads meet views that are old.
"""

from collections.abc import Iterator

import pytest

from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, assert_same

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

PRODUCTION = (
    "broker.log.retention.check.interval.ms=300000",
    "broker.log.initial.task.delay.ms=30000",
    "broker.log.segment.delete.delay.ms=60000",
    "broker.log.flush.offset.checkpoint.interval.ms=60000",
    "broker.log.flush.start.offset.checkpoint.interval.ms=60000",
    "broker.broker.session.timeout.ms=9000",
    "broker.broker.heartbeat.interval.ms=2000",
    "rlm.remote.log.manager.task.interval.ms=30000",
    "rlm.trim.interval.ms=30000",
    "rlm.leadership.poll.interval.ms=1000",
    "rlm.service.heartbeat.interval.ms=10000",
    "rlm.sweep.grace.ms=3600000",
)


def segments_on_disk(cluster: Cluster, topic: str) -> int:
    (log_dir,) = cluster.sandbox.log_dirs(1)
    return len(list((log_dir / f"{topic}-0").glob("*.log")))


@pytest.fixture
def cluster(sandbox_factory: SandboxFactory) -> Iterator[Cluster]:
    with Cluster(sandbox_factory(overrides=PRODUCTION)) as made:
        yield made


def test_h30_the_journey_with_production_intervals(cluster: Cluster) -> None:
    cluster.create_topic("slow")
    cluster.enable("slow")
    acked = cluster.fill("slow", mib=8)
    before = segments_on_disk(cluster, "slow")
    cluster.wait_trimmed("slow", timeout_s=300)
    for _ in range(3):
        assert_same(cluster.read_all("slow", timeout_s=120), acked)
    acked += cluster.fill("slow", mib=4, first=8192)
    cluster.wait_trimmed("slow", beyond=cluster.log_start("slow"), timeout_s=300)
    assert_same(cluster.read_all("slow", timeout_s=120), acked)
    cluster.wait_for(
        lambda: segments_on_disk(cluster, "slow") < before, "old segments gone from disk", 500
    )
