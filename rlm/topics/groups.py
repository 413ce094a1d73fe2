"""Which groups read a topic and where they stand, asked of every broker over our own wire layer.

Each broker lists the groups it coordinates, so offsets are asked on the same connection. Share
groups keep their offsets elsewhere: rlm.broker.share_groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kip405.errors import Unavailable
from rlm.broker.answers import TopicDescription, error_of_code
from rlm.broker.connection import BrokerConnection
from rlm.topics.cluster import OtherBrokers
from rlm.topics.ports import GroupOffset
from rlm.wire.apis import API_VERSIONS, LIST_GROUPS, OFFSET_FETCH

_TIMEOUT_MS = 10_000
_SHARE = "share"
_FIRST_WITH_TYPE = 5
_GROUP_ID_NOT_FOUND = 69
_COORDINATORS_MOVED = frozenset({14, 15, 16})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A group that commits offsets, and the broker that coordinates it."""

    connection: BrokerConnection
    group: str


class ClusterGroups:
    """Implements rlm.topics.ports.Groups."""

    def __init__(self, brokers: OtherBrokers) -> None:
        self._brokers = brokers

    async def committed(self, topic: TopicDescription) -> tuple[GroupOffset, ...]:
        found: list[GroupOffset] = []
        for listed in await self._list():
            found += await _committed(listed, topic)
        return tuple(found)

    async def _list(self) -> list[_Listed]:
        found: list[_Listed] = []
        for node_id, node in sorted((await self._brokers.all()).items()):
            version = await _newest(node.connection, LIST_GROUPS.key, LIST_GROUPS.versions.high)
            answer = await node.connection.call(
                LIST_GROUPS,
                version,
                {"states_filter": [], "types_filter": []},
                timeout_ms=_TIMEOUT_MS,
            )
            _raise(answer["error_code"], f"list groups of broker {node_id}")
            found += [
                _Listed(connection=node.connection, group=group["group_id"])
                for group in answer["groups"]
                if version < _FIRST_WITH_TYPE or group["group_type"] != _SHARE
            ]
        return found


async def _newest(connection: BrokerConnection, api_key: int, ours: int) -> int:
    """The newest version of an API that both sides know; -1 = the broker lacks it."""
    answer = await connection.call(API_VERSIONS, 0, {}, timeout_ms=_TIMEOUT_MS)
    _raise(answer["error_code"], f"versions of {connection.address}")
    theirs: dict[int, int] = {row["api_key"]: row["max_version"] for row in answer["api_keys"]}
    return min(theirs.get(api_key, -1), ours)


async def _committed(listed: _Listed, topic: TopicDescription) -> list[GroupOffset]:
    partitions = sorted(topic.partitions)
    body = {
        "groups": [
            {
                "group_id": listed.group,
                "topics": [{"name": topic.name, "partition_indexes": partitions}],
            }
        ],
        "require_stable": False,
    }
    answer = await listed.connection.call(OFFSET_FETCH, 8, body, timeout_ms=_TIMEOUT_MS)
    found: list[GroupOffset] = []
    for group in answer["groups"]:
        if group["error_code"] == _GROUP_ID_NOT_FOUND:
            continue
        _raise(group["error_code"], f"committed offsets of group {listed.group}")
        found += _rows(listed.group, group["topics"], "committed_offset")
    return [row for row in found if row.offset >= 0]


def _rows(group: str, topics: Sequence[Mapping[str, Any]], name: str) -> list[GroupOffset]:
    rows = []
    for topic in topics:
        for partition in topic["partitions"]:
            _raise(partition["error_code"], f"offsets of group {group}")
            rows.append(
                GroupOffset(
                    group=group, partition=partition["partition_index"], offset=partition[name]
                )
            )
    return rows


def _raise(code: int, what: str) -> None:
    if code in _COORDINATORS_MOVED:
        raise Unavailable(f"{what}: the coordinator is moving; try again")
    if code:
        raise error_of_code(code, what)
