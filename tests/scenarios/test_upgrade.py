"""Three services of an older version are rolled to this one, one after the other, and back, while
clients produce and read: nothing is lost or comes twice, and clients see reconnects alone (H24).

Which older version, `older_services.py` says. What each version writes, the other reads: old
records are read from the store after each step, through services of both.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, assert_same, fresh
from tests.scenarios.older_services import OlderServices, older_tree
from tests.scenarios.traffic import SteadyProducer, TailConsumer

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_800)]

NODES = (1, 2, 3)
_DRAIN_MS = 10_000
_EXIT_MS = 5_000
"""The process ends after its work has, under whatever else the machine does."""
_KIB_PER_S = 150
_MIX_S = 120.0


@dataclass
class Roll:
    """The cluster under load, and what its services have done."""

    cluster: Cluster
    older: OlderServices
    topic: str
    drains_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def step(self, node: int, *, is_older: bool) -> None:
        """One service is stopped, and started in the other version; then old records are read."""
        sandbox, name = self.cluster.sandbox, f"rlm:{node}"
        began = time.monotonic()
        sandbox.stop(name)
        direction = "back" if is_older else "forward"
        self.drains_ms[direction, node] = int((time.monotonic() - began) * 1_000)
        with ExitStack() as version:
            if is_older:
                version.enter_context(self.older.older())
            sandbox.start(name)
        assert self.older.is_older(self.pid(node)) == is_older, f"{name} has the other code"
        self.read_everything()

    def pid(self, node: int) -> int:
        return int(self.cluster.sandbox.json["brokers"][node - 1]["rlm_pid"])

    def read_everything(self) -> None:
        """From the first offset on, by the store and the brokers: no position is reset, and each
        offset comes once.
        """
        rows = self.cluster.read_all(self.topic, timeout_s=_MIX_S)
        for partition in range(len(NODES)):
            offsets = [row.offset for row in rows if row.partition == partition]
            assert offsets == list(range(len(offsets)))


def _has_followed(tail: TailConsumer, acked: int) -> bool:
    """Whether it has its share of what was acknowledged, which went to partitions in turn."""
    return len(tail.offsets) >= acked // len(NODES)


@pytest.fixture
def roll(
    sandbox_factory: SandboxFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Roll]:
    """All services are of the older version, and the topic's beginning is in the store alone."""
    folder = tmp_path_factory.mktemp("older")
    older = OlderServices(older_tree(folder), Path(folder) / "start")
    with older.older():
        made = sandbox_factory(
            brokers=len(NODES),
            heap_mib=256,
            overrides=(f"rlm.shutdown.timeout.ms={_DRAIN_MS}",),
        )
    with Cluster(made) as cluster:
        topic = fresh("rolled")
        cluster.create_topic(topic, assignment=[[node] for node in NODES])
        yield Roll(cluster, older, topic)


def test_h24_services_are_rolled_forward_and_back_under_load(roll: Roll) -> None:
    cluster, topic = roll.cluster, roll.topic
    assert all(roll.older.is_older(roll.pid(node)) for node in NODES)
    partitions = list(range(len(NODES)))
    old = [row for one in partitions for row in cluster.fill(topic, mib=3, partition=one)]
    cluster.enable(topic)
    for partition in partitions:
        cluster.wait_trimmed(topic, partition)
    with ExitStack() as load:
        tails = [load.enter_context(TailConsumer(cluster, topic, one)) for one in partitions]
        producer = load.enter_context(
            SteadyProducer(cluster, topic, partitions, kib_per_s=_KIB_PER_S)
        )
        for node in NODES:
            roll.step(node, is_older=False)
        for partition in partitions:  # this version copies and trims what the older one began
            cluster.wait_trimmed(topic, partition, beyond=cluster.log_start(topic, partition))
        for node in NODES:
            roll.step(node, is_older=True)
        for partition in partitions:
            cluster.wait_trimmed(topic, partition, beyond=cluster.log_start(topic, partition))
        producer.stop()
        assert producer.failures == []
        acked = producer.rows
        for tail in tails:
            cluster.wait_for(partial(_has_followed, tail, len(acked)), "the tail was followed")
    assert [problem for tail in tails for problem in tail.problems] == []
    read = sorted(cluster.read_all(topic), key=lambda row: (row.partition, row.offset))
    assert_same(read, sorted([*old, *acked], key=lambda row: (row.partition, row.offset)))
    assert max(roll.drains_ms.values()) <= _DRAIN_MS + _EXIT_MS, roll.drains_ms
