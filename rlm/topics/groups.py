"""Finds the groups that read a topic and their committed offsets, by asking every broker.

Each broker lists the groups that it coordinates, so their offsets are requested on the same
connection, over our own wire protocol. Share groups keep their offsets elsewhere:
rlm.broker.share_groups.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_protocol.apis import API_VERSIONS, LIST_GROUPS, OFFSET_FETCH
from kip405.acls import Acl, cluster_acl, group_acl, topic_acl
from kip405.errors import Unavailable
from rlm.broker.answers import TopicDescription, error_of_code
from rlm.broker.connection import BrokerConnection
from rlm.topics.cluster import OtherBrokers
from rlm.topics.ports import GroupOffset

_TIMEOUT_MS = 10_000
_GROUPS_A_CALL = 50
_SHARE = "share"
_FIRST_WITH_TYPE = 5
_GROUP_ID_NOT_FOUND = 69
_COORDINATORS_MOVED = frozenset({14, 15, 16})


class ClusterGroups:
    """Implements rlm.topics.ports.Groups."""

    def __init__(self, brokers: OtherBrokers) -> None:
        self._brokers = brokers

    async def committed(self, topic: TopicDescription) -> tuple[GroupOffset, ...]:
        found: list[GroupOffset] = []
        for node_id, node in sorted((await self._brokers.all()).items()):
            groups = await _listed(node_id, node.connection)
            for at in range(0, len(groups), _GROUPS_A_CALL):
                some = groups[at : at + _GROUPS_A_CALL]
                found += await _committed(node.connection, some, topic)
        return tuple(found)


async def _listed(node_id: int, connection: BrokerConnection) -> list[str]:
    """Groups that this broker coordinates and that commit offsets."""
    version = await _newest(connection, LIST_GROUPS.key, LIST_GROUPS.versions.high)
    body: dict[str, Any] = {"states_filter": [], "types_filter": []}
    answer = await connection.call(LIST_GROUPS, version, body, timeout_ms=_TIMEOUT_MS)
    what = f"list groups of broker {node_id}"
    _raise(answer["error_code"], what, needs=cluster_acl("Describe"))
    return [
        group["group_id"]
        for group in answer["groups"]
        if version < _FIRST_WITH_TYPE or group["group_type"] != _SHARE
    ]


async def _newest(connection: BrokerConnection, api_key: int, ours: int) -> int:
    """The newest version of an API that both sides support; -1 = the broker lacks it."""
    answer = await connection.call(API_VERSIONS, 0, {}, timeout_ms=_TIMEOUT_MS)
    _raise(answer["error_code"], f"versions of {connection.address}", needs=None)
    theirs: dict[int, int] = {row["api_key"]: row["max_version"] for row in answer["api_keys"]}
    return min(theirs.get(api_key, -1), ours)


async def _committed(
    connection: BrokerConnection, groups: Sequence[str], topic: TopicDescription
) -> list[GroupOffset]:
    asked = [{"name": topic.name, "partition_indexes": sorted(topic.partitions)}]
    body = {
        "groups": [{"group_id": group, "topics": asked} for group in groups],
        "require_stable": False,
    }
    answer = await connection.call(OFFSET_FETCH, 8, body, timeout_ms=_TIMEOUT_MS)
    found: list[GroupOffset] = []
    for group in answer["groups"]:
        if group["error_code"] == _GROUP_ID_NOT_FOUND:
            continue
        what = f"committed offsets of group {group['group_id']}"
        _raise(group["error_code"], what, needs=group_acl("Describe", group["group_id"]))
        found += _rows(group["group_id"], group["topics"])
    return [row for row in found if row.offset >= 0]


def _rows(group: str, topics: Sequence[Mapping[str, Any]]) -> list[GroupOffset]:
    rows = []
    for topic in topics:
        for partition in topic["partitions"]:
            needs = topic_acl("Describe", topic["name"])
            _raise(partition["error_code"], f"offsets of group {group}", needs=needs)
            rows.append(
                GroupOffset(
                    group=group,
                    partition=partition["partition_index"],
                    offset=partition["committed_offset"],
                )
            )
    return rows


def _raise(code: int, what: str, *, needs: Acl | None) -> None:
    if code in _COORDINATORS_MOVED:
        raise Unavailable(f"{what}: the coordinator is moving; try again")
    if code:
        raise error_of_code(code, what, needs=needs)
