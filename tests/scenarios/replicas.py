"""Replicas of a running sandbox: which brokers hold and lead, move them, and restore all.

What the clients of the other tests cannot ask (reassignment, election of a chosen replica) goes
through kafka-python's admin client, straight to the brokers.
"""

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlm.log_dir.scanner import LogDirs, PartitionLog
from rlm_sandbox.readiness import service_is_ready
from tests.scenarios.cluster import Cluster, Row

_PREFERRED, _UNCLEAN = 0, 1
_LIMIT_S, _LIMIT_MS = 120, 120_000


@contextlib.contextmanager
def _admin(cluster: Cluster) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads its schemas in a deprecated way
        from kafka.admin import KafkaAdminClient

        admin = KafkaAdminClient(
            bootstrap_timeout_ms=_LIMIT_MS,
            request_timeout_ms=_LIMIT_MS,
            **cluster.kafka_python_options(),
        )
        try:
            yield admin
        finally:
            admin.close()


def trimmed_topic(
    cluster: Cluster,
    topic: str,
    assignment: list[int],
    *,
    mib: int = 5,
    configs: Mapping[str, str] | None = None,
) -> list[Row]:
    """A topic of one partition, enabled, whose oldest records only the remote store has."""
    cluster.create_topic(topic, assignment=[assignment], configs=configs)
    cluster.enable(topic)
    rows = cluster.fill(topic, mib=mib)
    cluster.wait_trimmed(topic, beyond=(mib - 3) * 1024)
    return rows


def isr(cluster: Cluster, topic: str, partition: int = 0) -> set[int]:
    metadata = cluster.admin.list_topics(topic, timeout=_LIMIT_S).topics[topic].partitions
    return set(metadata[partition].isrs) if partition in metadata else set()


def replicas(cluster: Cluster, topic: str, partition: int = 0) -> list[int]:
    metadata = cluster.admin.list_topics(topic, timeout=_LIMIT_S).topics[topic].partitions
    return list(metadata[partition].replicas)


def wait_isr(cluster: Cluster, topic: str, wanted: set[int], partition: int = 0) -> None:
    cluster.wait_for(
        lambda: isr(cluster, topic, partition) == wanted, f"ISR {wanted} of {topic}-{partition}"
    )


def wait_leader(cluster: Cluster, topic: str, node: int, partition: int = 0) -> None:
    cluster.wait_for(
        lambda: cluster.leader(topic, partition) == node, f"{node} leads {topic}-{partition}"
    )


def reassign(cluster: Cluster, topic: str, nodes: Sequence[int], partition: int = 0) -> None:
    """Give the partition these replicas, in this order; returns when they are all in sync."""
    with _admin(cluster) as admin:
        from kafka.structs import TopicPartition

        topic_partition = TopicPartition(topic, partition)
        refused = admin.alter_partition_reassignments({topic_partition: list(nodes)})[
            topic_partition
        ]
        assert refused is None, refused
    cluster.wait_for(
        lambda: (
            replicas(cluster, topic, partition) == list(nodes)
            and isr(cluster, topic, partition) == set(nodes)
        ),
        f"reassignment of {topic}-{partition} to {nodes}",
    )


def lead(cluster: Cluster, topic: str, node: int, partition: int = 0) -> None:
    """Move the leadership to a replica in sync, without moving data. Asked for again where the
    replica was not in sync in that moment, as on a busy machine.
    """
    others = [one for one in replicas(cluster, topic, partition) if one != node]
    reassign(cluster, topic, [node, *others], partition)

    def leads() -> bool:
        if cluster.leader(topic, partition) == node:
            return True
        with _admin(cluster) as admin:
            admin.elect_leaders(_PREFERRED, {topic: [partition]}, raise_errors=False)
        return False

    cluster.wait_for(leads, f"{node} leads {topic}-{partition}")


def bring_to_lead(cluster: Cluster, topic: str, node: int, partition: int = 0) -> None:
    """Until a replica that is not in sync leads: Kafka elects it mostly, else the operator does."""
    own_accord_s = time.monotonic() + 3

    def leads() -> bool:
        if cluster.leader(topic, partition) == node:
            return True
        if time.monotonic() > own_accord_s:
            with _admin(cluster) as admin:
                admin.elect_leaders(_UNCLEAN, {topic: [partition]}, raise_errors=False)
        return False

    cluster.wait_for(leads, f"{node} leads {topic}-{partition}")


def alter_log_dir(cluster: Cluster, topic: str, node: int, partition: int = 0) -> None:
    """Move a replica to the other log dir of its broker; returns when it is there."""
    before = Path(disk(cluster, topic, node, partition).directory).parent
    [other] = set(cluster.sandbox.log_dirs(node)) - {before}
    with _admin(cluster) as admin:
        [refused] = admin.alter_replica_log_dirs({(topic, partition, node): str(other)}).values()
    assert refused.errno == 0, refused
    name = f"{topic}-{partition}"
    cluster.wait_for(
        lambda: (other / name).is_dir() and not (before / name).exists(), f"{name} in {other}"
    )


def disk(cluster: Cluster, topic: str, node: int, partition: int = 0) -> PartitionLog:
    """A partition in the log dir of a broker."""
    paths = [str(path) for path in cluster.sandbox.log_dirs(node)]
    return LogDirs(paths).scan(topic, partition)


def heal(cluster: Cluster) -> None:
    """Start what a test stopped; returns when every broker is back and in sync everywhere, and
    services are ready again, also those that the test has started: the next one may ask any.
    """
    stopped = [row.name for row in cluster.sandbox.status() if row.state == "stopped"]
    for name in stopped:
        cluster.sandbox.start(name, wait=False)
    nodes = {broker["id"] for broker in cluster.sandbox.json["brokers"]}

    def healed() -> bool:
        metadata = cluster.admin.list_topics(timeout=30)
        internal = [one for name, one in metadata.topics.items() if name.startswith("__")]
        return set(metadata.brokers) == nodes and all(
            set(row.isrs) == set(row.replicas) and row.leader >= 0
            for topic in internal
            for row in topic.partitions.values()
        )

    cluster.wait_for(healed, "all brokers in sync again", _LIMIT_S)
    for row in cluster.sandbox.status():
        if row.name.startswith("rlm:"):
            http = cluster.sandbox.state.ports[int(row.name.partition(":")[2])].http
            cluster.wait_for(partial(service_is_ready, http), f"{row.name} is ready again")
