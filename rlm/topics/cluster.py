"""Asks the other brokers of a cluster: log starts, groups, and readers that a trim would harm.

Reads only, at the direct listeners. Requests that alter or delete go to our own broker alone (H5).

Each broker lists the groups that it coordinates, so their offsets are requested on the same
connection, over our own wire protocol. Share groups keep their offsets elsewhere:
rlm.broker.share_groups.

The first trim harms groups with offsets below it, and share groups (H19). Clients of the proxy are
not harmed: trimmed data is read back there. On the direct listener a classic consumer below the
bound resets its position, and a share group skips without any error.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_protocol.apis import LIST_GROUPS, OFFSET_FETCH
from kafka_protocol.apis.offsets import LATEST_TIMESTAMP
from kip405.acls import Acl, cluster_acl, group_acl, topic_acl
from kip405.addresses import Address
from kip405.errors import Fenced, RemoteStorageError, Unavailable
from rlm.broker.answers import TopicDescription, error_of_code
from rlm.broker.connection import BrokerConnection
from rlm.broker.own_broker import OwnBroker
from rlm.broker.versions import newest_versions
from rlm.clock import Clock
from rlm.plans.retention import Retention, effective_local_retention
from rlm.topics.ports import GroupOffset, Groups, LeaderOffsets, ShareGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker at one address: typed calls, and the bare connection for other APIs."""

    address: Address
    calls: OwnBroker
    connection: BrokerConnection

    async def close(self) -> None:
        await asyncio.gather(self.calls.close(), self.connection.close())


class OtherBrokers:
    """Brokers of the cluster by node id, at the addresses that our own direct listener returns."""

    def __init__(self, own: OwnBroker, *, client_id: str) -> None:
        self._own = own
        self._client_id = client_id
        self._nodes: dict[int, Node] = {}

    async def all(self) -> dict[int, Node]:
        """Every broker that is alive now."""
        cluster = await self._own.describe_cluster()
        addresses = {
            node.node_id: Address(host=node.host, port=node.port) for node in cluster.nodes
        }
        for node_id in [
            one for one, node in self._nodes.items() if addresses.get(one) != node.address
        ]:
            gone = self._nodes.pop(node_id, None)  # another caller may have been faster
            if gone is not None:
                await gone.close()
        for node_id, address in addresses.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = self._connect(address)
        return dict(self._nodes)

    async def sources(self) -> dict[int, OwnBroker]:
        """The calls of every broker that is alive now (rlm.topics.cluster_retention)."""
        return {node_id: node.calls for node_id, node in (await self.all()).items()}

    async def of(self, node_id: int) -> Node:
        """One broker; Unavailable if it is not alive."""
        node = (await self.all()).get(node_id)
        if node is None:
            raise Unavailable(f"broker {node_id} is not alive")
        return node

    async def offset(self, topic: TopicDescription, partition: int, timestamp: int) -> int:
        """ListOffsets from the partition's leader; Unavailable without one."""
        described = topic.partitions.get(partition)
        if described is None or described.leader < 0:
            raise Unavailable(f"partition {topic.name}-{partition} has no leader now")
        node = await self.of(described.leader)
        answer = await node.calls.list_offset(topic.name, partition, timestamp)
        return answer.offset

    async def close(self) -> None:
        """All at once: a broker that hangs takes its time over TLS."""
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(node.close() for node in nodes.values()))

    def _connect(self, address: Address) -> Node:
        security = self._own.security
        return Node(
            address=address,
            calls=OwnBroker(address, client_id=self._client_id, security=security),
            connection=BrokerConnection(
                address, client_id=f"{self._client_id}-groups", security=security
            ),
        )


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
    newest = await newest_versions(connection, timeout_ms=_TIMEOUT_MS)
    version = min(newest.get(LIST_GROUPS.key, -1), LIST_GROUPS.versions.high)
    body: dict[str, Any] = {"states_filter": [], "types_filter": []}
    answer = await connection.call(LIST_GROUPS, version, body, timeout_ms=_TIMEOUT_MS)
    what = f"list groups of broker {node_id}"
    _raise(answer["error_code"], what, needs=cluster_acl("Describe"))
    return [
        group["group_id"]
        for group in answer["groups"]
        if version < _FIRST_WITH_TYPE or group["group_type"] != _SHARE
    ]


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


_SHOWN = 5
_LOADING_MS = 10_000
"""How long a broker that has just begun to coordinate groups may need to load them."""
_AGAIN_MS = 500


class ReaderCheck:
    """Checks the readers before trimming begins."""

    def __init__(
        self,
        *,
        offsets: LeaderOffsets,
        groups: Groups,
        share_groups: ShareGroups,
        clock: Clock,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._share_groups = share_groups
        self._clock = clock

    async def check(
        self, topic: TopicDescription, retention: Retention, *, force: bool
    ) -> tuple[str, ...]:
        """Warnings for the operator; Fenced with the same text unless `force`.

        Unavailable, unless `force`: some group could not be read for 10 s.
        """
        try:
            findings = await self._findings_soon(topic, retention, 0 if force else _LOADING_MS)
        except RemoteStorageError as error:
            if not force:
                raise
            findings = (f"the readers of {topic.name} are not known: {error}",)
        if findings and not force:
            raise Fenced("; ".join(findings) + "; --force goes on all the same")
        return findings

    async def _findings_soon(
        self, topic: TopicDescription, retention: Retention, most_ms: int
    ) -> tuple[str, ...]:
        """Brokers are asked again while they do not answer: groups that a broker loads, or that
        move to another one, are there soon. A broker that lets each question take long is asked no
        more often than fits.
        """
        until_ms = self._clock.monotonic_ms() + most_ms
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                return await self._findings(topic, retention)
            except Unavailable:
                ended_ms = self._clock.monotonic_ms()
                if ended_ms + _AGAIN_MS + ended_ms - began_ms > until_ms:
                    raise
            await self._clock.sleep_ms(_AGAIN_MS)

    async def _findings(self, topic: TopicDescription, retention: Retention) -> tuple[str, ...]:
        texts = (
            _share_text(topic.name, await self._share_groups.starts_now(topic.name)),
            _lagging_text(topic.name, await self._lagging(topic, retention)),
        )
        return tuple(text for text in texts if text)

    async def _lagging(
        self, topic: TopicDescription, retention: Retention
    ) -> tuple[tuple[GroupOffset, int], ...]:
        committed = await self._groups.committed(topic)
        bounds: dict[int, int] = {}
        for row in committed:
            if row.partition not in bounds:
                bounds[row.partition] = await self._first_bound(topic, row.partition, retention)
        return tuple(
            (row, bounds[row.partition]) for row in committed if row.offset < bounds[row.partition]
        )

    async def _first_bound(
        self, topic: TopicDescription, partition: int, retention: Retention
    ) -> int:
        """The first trim goes at most up to here; 0 = no trim."""
        local = effective_local_retention(retention)
        if local.is_unlimited:
            return 0
        latest = await self._offsets.offset(topic, partition, LATEST_TIMESTAMP)
        if local.max_bytes is not None or local.max_age_ms is None:
            return latest  # sizes are not known here: everything may be trimmed
        oldest_kept_ms = max(0, self._clock.now_ms() - local.max_age_ms)
        kept = await self._offsets.offset(topic, partition, oldest_kept_ms)
        return latest if kept < 0 else kept


def _share_text(topic: str, starts: Mapping[int, int]) -> str:
    if not starts:
        return ""
    partitions = [
        f"{topic}-{partition} from {start}" for partition, start in sorted(starts.items())
    ]
    return (
        "share groups read this topic and would skip what is trimmed without any error: "
        f"{_some(partitions)}"
    )


def _lagging_text(topic: str, rows: tuple[tuple[GroupOffset, int], ...]) -> str:
    if not rows:
        return ""
    partitions = [
        f"{row.group} at {row.offset} of {topic}-{row.partition} (bound at most {bound})"
        for row, bound in sorted(rows, key=lambda pair: (pair[0].group, pair[0].partition))
    ]
    return (
        "groups have offsets below the first trim bound and would reset them on the direct "
        f"listener (through the proxy they read on): {_some(partitions)}"
    )


def _some(items: list[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
