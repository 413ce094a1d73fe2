"""Start offsets of share groups (KIP-932): a trim must not pass any of them (H19).

Every broker is asked for the share groups that it coordinates, and for their offsets.
FindCoordinator is not used, because it would create the topic of the groups. Any doubt is
Unavailable: then nothing is trimmed. The principal needs DESCRIBE on the cluster; otherwise brokers
hide groups.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kafka_clients.channel_security import ChannelSecurity
from kafka_protocol.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    LIST_GROUPS,
    METADATA,
)
from kafka_protocol.schema import Api, Value
from kip405.acls import Acl, MissingAcls, cluster_acl, group_acl, missing_acls, topic_acl
from kip405.addresses import Address
from kip405.errors import Internal, RemoteStorageError, Unavailable
from rlm.broker.answers import BrokerNode, error_of_code
from rlm.broker.connection import BrokerConnection
from rlm.broker.many import operations_of
from rlm.clock import Clock

_GROUPS_TOPIC = "__consumer_offsets"
_FRESH_MS = 5_000
_FAILED_MS = 1_000
_CALL_TIMEOUT_MS = 10_000
_SHARE_FETCH_KEY = 78
_LIST_GROUPS_WITH_TYPES = 5
_GROUP_RESOURCE = 32
_GROUP_ID_NOT_FOUND = 69
_GONE = {3, 100}
_NOT_BEGUN = -1

_Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The result of asking all brokers once, with the number of that attempt; `failure` says why
    there is none."""

    number: int
    until_ms: int
    starts: Mapping[_Partition, int]
    failure: RemoteStorageError | None = None

    def of(self, topic: str) -> Mapping[int, int]:
        """Start offset by partition; Unavailable where that failed, MissingAcls where it was
        refused.
        """
        what = f"share groups of {topic}: {self.failure}"
        if isinstance(self.failure, MissingAcls):
            raise MissingAcls(what, self.failure.acls) from self.failure
        if self.failure is not None:
            raise Unavailable(what) from self.failure
        return {partition: at for (name, partition), at in self.starts.items() if name == topic}


class BrokerShareGroups:
    """Implements rlm.remote_log.ports.ShareGroups over the direct listeners of all brokers.

    One set of requests serves all partitions that are planned within 5 s; after a failure, none is
    sent for 1 s. An irreversible step asks again.
    """

    def __init__(
        self,
        direct: Address,
        *,
        clock: Clock,
        client_id: str,
        security: ChannelSecurity | None = None,
    ) -> None:
        """`security` None: PLAINTEXT."""
        self._direct = direct
        self._security = security
        self._clock = clock
        self._client_id = client_id
        self._answer = _Answer(number=0, until_ms=-1, starts={})
        self._asking = asyncio.Lock()
        self._asked_count = 0

    async def start_offset(self, topic: str, partition: int) -> int | None:
        """Lowest start offset of any share group that reads the partition; None for none.

        0 for a group that has not begun and will begin at the oldest record. Unavailable: some
        group could not be seen.
        """
        async with self._asking:
            if self._clock.monotonic_ms() >= self._answer.until_ms:
                await self._ask()
            answer = self._answer
        return answer.of(topic).get(partition)

    async def starts_now(self, topic: str) -> Mapping[int, int]:
        """As `start_offset`, by partition, and of questions that were asked after this call."""
        newer_than = self._asked_count
        async with self._asking:
            if self._answer.number <= newer_than:
                await self._ask()
            answer = self._answer
        return answer.of(topic)

    async def close(self) -> None:
        """Drop what is remembered; connections are opened for one set of requests only."""
        self._answer = _Answer(number=0, until_ms=-1, starts={})

    async def _ask(self) -> None:
        self._asked_count += 1  # an abandoned request counts too: its answer never comes
        asked = self._asked_count
        failure: RemoteStorageError | None = None
        try:
            starts = await self._all_starts()
        except RemoteStorageError as error:
            starts, failure = {}, error
        lasts_ms = _FRESH_MS if failure is None else _FAILED_MS
        self._answer = _Answer(
            number=asked,
            until_ms=self._clock.monotonic_ms() + lasts_ms,
            starts=starts,
            failure=failure,
        )

    async def _all_starts(self) -> dict[_Partition, int]:
        """Ask all brokers once. Unavailable: coordinators moved meanwhile and may hide a group."""
        async with self._broker(self._direct) as direct:
            nodes = await direct.nodes()
            before = await direct.coordinators()
            lowest: dict[_Partition, int] = {}
            for node in nodes if before else ():
                async with self._broker(Address(host=node.host, port=node.port)) as broker:
                    for topic_partition, offset in await broker.share_starts():
                        lowest[topic_partition] = min(offset, lowest.get(topic_partition, offset))
            if await direct.coordinators() != before:
                raise Unavailable("coordinators of groups moved while they were asked")
        return lowest

    @asynccontextmanager
    async def _broker(self, address: Address) -> AsyncIterator["_Broker"]:
        connection = BrokerConnection(
            address, client_id=f"{self._client_id}-groups", security=self._security
        )
        try:
            yield _Broker(connection)
        finally:
            await connection.close()


class _Broker:
    """The requests to one broker."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._where = f"broker at {connection.address}"

    async def nodes(self) -> tuple[BrokerNode, ...]:
        """All brokers alive, at the addresses of this listener. MissingAcls: they would hide groups
        from us and say nothing.
        """
        body = {"include_cluster_authorized_operations": True}
        answer = await self._call(DESCRIBE_CLUSTER, 0, body)
        what, needs = f"list groups at {self._where}", cluster_acl("Describe")
        _raise(answer["error_code"], what, needs=needs)
        allowed = operations_of(answer["cluster_authorized_operations"])
        if allowed is not None and needs.operation not in allowed:
            raise missing_acls(what, [needs])
        return tuple(
            BrokerNode(node_id=row["broker_id"], host=row["host"], port=row["port"])
            for row in answer["brokers"]
        )

    async def coordinators(self) -> tuple[tuple[int, int, int], ...]:
        """(partition, leader, epoch) of the topic of groups; empty where no group was ever made."""
        body = {"topics": [{"name": _GROUPS_TOPIC}], "allow_auto_topic_creation": False}
        answer = await self._call(METADATA, 12, body)
        topic = _only(answer["topics"], self._where)
        if topic["error_code"] in _GONE:
            return ()
        needs = topic_acl("Describe", _GROUPS_TOPIC)
        _raise(topic["error_code"], f"metadata of {_GROUPS_TOPIC} at {self._where}", needs=needs)
        for row in topic["partitions"]:
            what = f"coordinator {_GROUPS_TOPIC}-{row['partition_index']}"
            _raise(row["error_code"], what, needs=needs)
        return tuple(
            sorted(
                (row["partition_index"], row["leader_id"], row["leader_epoch"])
                for row in topic["partitions"]
            )
        )

    async def share_starts(self) -> list[tuple[_Partition, int]]:
        """Start offset of every partition of every share group coordinated by this broker."""
        if not await self._knows_share_groups():
            return []
        starts: list[tuple[_Partition, int]] = []
        for group in await self._share_groups():
            starts += await self._starts_of(group)
        return starts

    async def _knows_share_groups(self) -> bool:
        answer = await self._call(API_VERSIONS, 0, {})
        _raise(answer["error_code"], f"versions of {self._where}", needs=None)
        newest = {row["api_key"]: row["max_version"] for row in answer["api_keys"]}
        knows_offsets = DESCRIBE_SHARE_GROUP_OFFSETS.key in newest
        if not knows_offsets and _SHARE_FETCH_KEY in newest:
            raise Unavailable(f"{self._where} serves share groups but cannot list their offsets")
        return knows_offsets and newest.get(LIST_GROUPS.key, -1) >= _LIST_GROUPS_WITH_TYPES

    async def _share_groups(self) -> list[str]:
        body = {"states_filter": [], "types_filter": ["share"]}
        answer = await self._call(LIST_GROUPS, _LIST_GROUPS_WITH_TYPES, body)
        what = f"list groups of {self._where}"
        _raise(answer["error_code"], what, needs=cluster_acl("Describe"))
        return [row["group_id"] for row in answer["groups"]]

    async def _starts_of(self, group_id: str) -> list[tuple[_Partition, int]]:
        body = {"groups": [{"group_id": group_id, "topics": None}]}
        answer = await self._call(DESCRIBE_SHARE_GROUP_OFFSETS, 0, body)
        group = _only(answer["groups"], self._where)
        if group["error_code"] == _GROUP_ID_NOT_FOUND:
            return []
        what = f"offsets of share group {group_id} at {self._where}"
        _raise(group["error_code"], what, needs=group_acl("Describe", group_id))
        starts: list[tuple[_Partition, int]] = []
        for topic in group["topics"]:
            for row in topic["partitions"]:
                _raise(row["error_code"], what, needs=topic_acl("Describe", topic["topic_name"]))
                starts.append(((topic["topic_name"], row["partition_index"]), row["start_offset"]))
        return await self._with_beginnings(group_id, starts)

    async def _with_beginnings(
        self, group_id: str, starts: list[tuple[_Partition, int]]
    ) -> list[tuple[_Partition, int]]:
        """Partitions not begun start at 0, unless the group begins them at the log's end."""
        begun = [row for row in starts if row[1] != _NOT_BEGUN]
        if len(begun) == len(starts) or await self._begins_at_the_end(group_id):
            return begun
        return [(topic_partition, max(offset, 0)) for topic_partition, offset in starts]

    async def _begins_at_the_end(self, group_id: str) -> bool:
        name = "share.auto.offset.reset"
        resource = {
            "resource_type": _GROUP_RESOURCE,
            "resource_name": group_id,
            "configuration_keys": [name],
        }
        answer = await self._call(DESCRIBE_CONFIGS, 4, {"resources": [resource]})
        result = _only(answer["results"], self._where)
        what = f"configuration of share group {group_id}"
        _raise(result["error_code"], what, needs=group_acl("DescribeConfigs", group_id))
        return any(row["name"] == name and row["value"] == "latest" for row in result["configs"])

    async def _call(self, api: Api, version: int, body: Mapping[str, Any]) -> Value:
        return await self._connection.call(api, version, body, timeout_ms=_CALL_TIMEOUT_MS)


def _only(rows: Sequence[Value], where: str) -> Value:
    if len(rows) != 1:
        raise Internal(f"{where} answers {len(rows)} times where it was asked once")
    return rows[0]


def _raise(code: int, what: str, *, needs: Acl | None) -> None:
    if code:
        raise error_of_code(code, what, needs=needs)
