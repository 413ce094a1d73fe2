"""What a cluster has, as brokers and their disks show it: to compare before and after."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.scenarios.cluster import Cluster

_LIMIT_S = 120
_OF_SEGMENTS = (".log", ".index", ".timeindex")
Config = Mapping[str, tuple[Any, Any]]
"""Value and source of each entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """`topic_configs` and `broker_configs`: DescribeConfigs, by topic and node."""

    topic_configs: Mapping[str, Config]
    broker_configs: Mapping[str, Config]
    partitions: Mapping[str, tuple[tuple[int, ...], ...]]
    acls: frozenset[str]
    groups: frozenset[str]

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self.topic_configs)


def state_of(cluster: Cluster) -> ClusterState:
    """Asked past the proxies."""
    metadata = cluster.admin.list_topics(timeout=_LIMIT_S)
    kinds = ConfigResource.Type
    return ClusterState(
        topic_configs=_configs(cluster, kinds.TOPIC, metadata.topics),
        broker_configs=_configs(cluster, kinds.BROKER, map(str, metadata.brokers)),
        partitions={
            name: tuple(tuple(one.partitions[number].replicas) for number in sorted(one.partitions))
            for name, one in metadata.topics.items()
        },
        acls=_acls(cluster),
        groups=frozenset(
            one.group_id
            for one in cluster.admin.list_consumer_groups(request_timeout=_LIMIT_S).result().valid
        ),
    )


def _configs(cluster: Cluster, kind: Any, names: Any) -> dict[str, Config]:
    """Brokers are asked one by one, as librdkafka wants it."""
    found: dict[str, Config] = {}
    for name in names:
        resource = ConfigResource(kind, name)
        config = cluster.admin.describe_configs([resource])[resource].result(_LIMIT_S)
        found[name] = {key: (entry.value, entry.source) for key, entry in config.items()}
    return found


def _acls(cluster: Cluster) -> frozenset[str]:
    """None where there is no authorizer."""
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    try:
        return frozenset(map(str, cluster.admin.describe_acls(every).result(_LIMIT_S)))
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SECURITY_DISABLED:
            raise
        return frozenset()


def commit(
    cluster: Cluster, client: Mapping[str, Any], group: str, topic: str, offset: int
) -> None:
    """The group has committed this offset of the first partition."""

    def is_committed() -> bool:
        consumer = Consumer({**client, "group.id": group})
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        finally:
            consumer.close()
        return True

    cluster.wait_for(is_committed, f"{group} has committed")


def names_on_disk(cluster: Cluster, node: int) -> set[str]:
    """Files and folders in the log directories of a broker, but for those that Kafka makes sooner
    or later: checkpoints and hidden files.
    """
    found = {one.name for folder in cluster.sandbox.log_dirs(node) for one in folder.iterdir()}
    return {one for one in found if not one.startswith(".") and not one.endswith("checkpoint")}


def closed_segments(cluster: Cluster, node: int) -> dict[str, str]:
    """The files of closed segments of a broker, as `topic-partition/file`, and what is in them."""
    found: dict[str, str] = {}
    for log_dir in cluster.sandbox.log_dirs(node):
        for folder in log_dir.glob("*-*/"):
            logs = sorted(int(one.stem) for one in folder.glob("*.log"))
            for base in logs[:-1]:
                for ending in _OF_SEGMENTS:
                    path = folder / f"{base:020}{ending}"
                    found[f"{folder.name}/{path.name}"] = _digest(path)
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def base_offset_of(name: str) -> int:
    """Of a file of `closed_segments`."""
    return int(name.rpartition("/")[2].partition(".")[0])
