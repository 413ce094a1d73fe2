"""The same journey beside every supported version of Kafka, with KRaft and with ZooKeeper.

In CI only beside the oldest, with ZooKeeper; the long run has them all, clusters of mixed versions
among them, and keeps its raw numbers under bench/results/.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kip405.addresses import Address
from kip405.errors import Invalid
from rlm.broker.own_broker import OwnBroker
from rlm_sandbox.kafka_versions import MIXED_KAFKA, SUPPORTED_KAFKA
from rlm_sandbox.sandbox import Sandbox
from tests.kept_results import keep_result
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.readers import aiokafka_read

pytestmark = pytest.mark.integration

_TOO_OLD = "3.2.3"
_MIB = 3
_ALL = [(mode, one.version) for one in SUPPORTED_KAFKA for mode in one.modes]
_IN_CI = ("zookeeper", SUPPORTED_KAFKA[0].version)
_CASES = [
    pytest.param(*case, id="-".join(case), marks=() if case == _IN_CI else pytest.mark.long)
    for case in [*_ALL, *(("kraft", versions) for versions in MIXED_KAFKA)]
]


@pytest.fixture(scope="module")
def measured() -> Iterator[list[dict[str, Any]]]:
    """What the cases took; written where more than CI's one has run."""
    rows: list[dict[str, Any]] = []
    yield rows
    if len(rows) > 1:
        keep_result("kafka_versions", {"cases": rows})


@pytest.mark.parametrize(("mode", "versions"), _CASES)
def test_old_data_is_read_beside_each_version(
    sandbox_factory: SandboxFactory, measured: list[dict[str, Any]], mode: str, versions: str
) -> None:
    brokers = len(versions.split(","))
    began = time.monotonic()
    sandbox = sandbox_factory(brokers=brokers, kafka_version=versions, mode=mode, heap_mib=256)
    up = time.monotonic()
    trims = _journey(sandbox, brokers)
    row = {"mode": mode, "versions": versions, "local_starts": trims}
    took = {"up_s": round(up - began, 1), "journey_s": round(time.monotonic() - up, 1)}
    measured.append({**row, **took})


def _journey(sandbox: Sandbox, brokers: int) -> list[int]:
    """Records are copied and trimmed under each broker as leader, and all are read; answers where
    the brokers' logs start then.
    """
    topic, ids = fresh("versions"), list(range(1, brokers + 1))
    with Cluster(sandbox) as cluster:
        cluster.create_topic(topic, assignment=[[*ids[at:], *ids[:at]] for at in range(brokers)])
        cluster.enable(topic)
        acked = [
            row for at in range(brokers) for row in cluster.fill(topic, mib=_MIB, partition=at)
        ]
        starts = [cluster.wait_trimmed(topic, at) for at in range(brokers)]
        assert_same(cluster.read_all(topic), acked)
        ends = {at: cluster.log_end(topic, at) for at in range(brokers)}
        assert_same(asyncio.run(aiokafka_read(cluster, topic, ends)), acked)
        cluster.rlm("verify", topic)
    return starts


@pytest.mark.long
def test_a_broker_that_is_too_old_is_refused(sandbox_factory: SandboxFactory) -> None:
    sandbox = sandbox_factory(kafka_version=_TOO_OLD, services=False)

    async def check() -> None:
        own = OwnBroker(Address.parse(sandbox.direct_bootstrap), client_id="test")
        try:
            await own.check_new_enough()
        finally:
            await own.close()

    with pytest.raises(Invalid, match=r"older than Kafka 3\.3.*upgrade the broker"):
        asyncio.run(check())
