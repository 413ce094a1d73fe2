"""Brokers' answers that say which operations they allow (KIP-430)."""

from collections.abc import Collection
from typing import Any

from kip405.acls import Acl
from rlm.broker.many import OPERATIONS

_REFUSED = 29
CLUSTER: dict[str, Any] = {
    "throttle_time_ms": 0,
    "error_code": 0,
    "error_message": None,
    "cluster_id": "another",
    "controller_id": 1,
    "brokers": [],
    "cluster_authorized_operations": -1,
}
"""DescribeCluster of a broker that allows everything."""


def bits_without(denied: Collection[str]) -> int:
    """The bit field of every operation but these."""
    return sum(1 << code for code, name in OPERATIONS.items() if name not in denied)


def topics_with_rights(topics: Collection[str], without: Collection[Acl]) -> dict[str, Any]:
    """Metadata of topics on which everything is allowed but this."""
    return {"topics": [_topic(topic, without) for topic in topics]}


def _topic(topic: str, without: Collection[Acl]) -> dict[str, Any]:
    denied = {acl.operation for acl in without if acl.resource_name == topic}
    if "Describe" in denied:
        return {"error_code": _REFUSED, "name": topic}
    return {"error_code": 0, "name": topic, "topic_authorized_operations": bits_without(denied)}
