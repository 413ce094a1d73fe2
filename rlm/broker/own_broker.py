"""Typed calls to this service's broker, the only sender of DeleteRecords (H5), and to any broker.

A broker works on one request of a connection at a time. So there are two connections, one for calls
that the broker answers at once and one for calls that it may hold (alter, fetch), and one more for
each DeleteRecords (`deletions`). Questions that tasks repeat for every partition are coalesced
(`rlmm/coalesced.py`): a request names many of them.

`AnyBroker` is for a service without a broker. It offers only queries that every broker answers
alike. It begins with the broker that gave the last answer, and goes on to the next if a broker does
not answer.
"""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from kafka_clients.channel_security import ChannelSecurity
from kafka_protocol.apis import (
    API_VERSIONS,
    DELETE_RECORDS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
)
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kafka_protocol.schema import Value
from kip405.acls import Acl, MissingAcls, cluster_acl, topic_acl
from kip405.addresses import Address
from kip405.errors import Internal, NotFound, RemoteStorageError
from kip405.ids import TopicPartition, Uuid
from rlm.broker.answers import (
    BrokerNode,
    ClusterDescription,
    LocalRecords,
    OffsetAnswer,
    OpenTransaction,
    TopicConfigValue,
    TopicDescription,
    TopicIdAnswer,
    error_of_code,
)
from rlm.broker.connection import BrokerConnection
from rlm.broker.deletions import DeletionConnection
from rlm.broker.many import (
    TOPIC_RESOURCE,
    ConfigValues,
    Many,
    first_answer,
)
from rlm.broker.partition_requests import FETCH_VERSION, OffsetQuestion, fetch_body, local_records
from rlm.broker.versions import check_new_enough, newest_versions
from rlmm.coalesced import Coalesced
from rlmm.publisher import OutcomeUnknown

_BROKER_RESOURCE = 4
_ADDRESS_ENTITY, _CONNECTION_RATE = "ip", "connection_creation_rate"
_ANY_NAME = 2
"""The entity that stands for all other names is among them."""
_SET, _DELETE = 0, 1
_ConfigNames = tuple[str, ...]
_OffsetKind = tuple[bool, int]


def deletion_client_id(client_id: str) -> str:
    """The client id of the DeleteRecords that a service with this client id sends."""
    return f"{client_id}-delete"


def is_sent_by_a_service(client_id: str | None) -> bool:
    """Whether a DeleteRecords with this client id is a service's own, which no proxy may get."""
    return re.fullmatch(deletion_client_id(r"rlm-\d+"), client_id or "") is not None


class OwnBroker:
    """This service's broker. Every call has the default deadline; errors are kip405.errors."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        security: ChannelSecurity | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        """`security` None: PLAINTEXT."""
        self.address = address
        self.security = security
        self._quick = BrokerConnection(address, client_id=client_id, security=security)
        self._slow = BrokerConnection(address, client_id=f"{client_id}-slow", security=security)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._many = Many(self._quick, timeout_ms=timeout_ms)
        self._topics: Coalesced[str, TopicDescription] = Coalesced(self._many.topics)
        self._configs: dict[_ConfigNames, Coalesced[str, ConfigValues]] = {}
        self._offsets: dict[_OffsetKind, Coalesced[OffsetQuestion, OffsetAnswer]] = {}

    async def close(self) -> None:
        await asyncio.gather(self._quick.close(), self._slow.close())

    async def check_new_enough(self) -> None:
        """Invalid if the broker is older than Kafka 3.3 (`rlm.broker.versions`)."""
        newest = await newest_versions(self._quick, timeout_ms=self._timeout_ms)
        check_new_enough(newest, str(self.address))

    async def describe_cluster(self) -> ClusterDescription:
        """Cluster id and the brokers alive, at this listener's addresses (DescribeCluster v0)."""
        answer = await self._quick.call(DESCRIBE_CLUSTER, 0, {}, timeout_ms=self._timeout_ms)
        _raise(
            answer["error_code"],
            f"describe cluster at {self.address}",
            answer["error_message"],
            needs=cluster_acl("Describe"),
        )
        nodes = (
            BrokerNode(node_id=node["broker_id"], host=node["host"], port=node["port"])
            for node in answer["brokers"]
        )
        return ClusterDescription(cluster_id=answer["cluster_id"], nodes=tuple(nodes))

    async def broker_config(self, node_id: int) -> dict[str, str | None]:
        """Configuration of the broker that answers, which must be `node_id` (else Invalid, H13)."""
        resource = {
            "resource_type": _BROKER_RESOURCE,
            "resource_name": str(node_id),
            "configuration_keys": None,
        }
        answer = await self._quick.call(
            DESCRIBE_CONFIGS, 4, {"resources": [resource]}, timeout_ms=self._timeout_ms
        )
        for result in answer["results"]:
            what = f"the broker at {self.address} does not answer as node {node_id}"
            needs = cluster_acl("DescribeConfigs")
            _raise(result["error_code"], what, result["error_message"], needs=needs)
            return {row["name"]: row["value"] for row in result["configs"]}
        raise Internal(f"describe configs of node {node_id}: empty answer")

    async def connection_rates(self) -> dict[str | None, float]:
        """New connections a second that the broker takes of an address, by address; None = of each
        other address (DescribeClientQuotas v1). Without an entry there is no limit.
        """
        every = {"entity_type": _ADDRESS_ENTITY, "match_type": _ANY_NAME, "match": None}
        answer = await self._quick.call(
            DESCRIBE_CLIENT_QUOTAS,
            1,
            {"components": [every], "strict": True},
            timeout_ms=self._timeout_ms,
        )
        what, needs = f"client quotas at {self.address}", cluster_acl("DescribeConfigs")
        _raise(answer["error_code"], what, answer["error_message"], needs=needs)
        return {
            entity["entity_name"]: value["value"]
            for entry in answer["entries"] or ()
            for entity in entry["entity"]
            for value in entry["values"]
            if value["key"] == _CONNECTION_RATE
        }

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        """The topics of these names that exist, or all (Metadata v12); never creates one.

        MissingAcls names all of those that we may not see.
        """
        found = await self._many.topics(names)
        hidden = [one for one in found.values() if isinstance(one, MissingAcls)]
        if hidden:
            acls = (acl for error in hidden for acl in error.acls)
            raise MissingAcls("; ".join(str(error) for error in hidden), acls)
        return tuple(topic for topic in found.values() if _exists(topic))

    async def topic(self, name: str) -> TopicDescription:
        """One topic; NotFound if there is none of this name."""
        return await self._topics.answer(name)

    async def topic_ids(self, topic_ids: Sequence[Uuid]) -> TopicIdAnswer:
        """What the broker knows of these topic ids (Metadata v12)."""
        return await self._many.topic_ids(topic_ids)

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        *,
        leader_epoch: int = -1,
        read_committed: bool = False,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> OffsetAnswer:
        """ListOffsets v7: -1 latest (LSO if read_committed), -2 earliest, >= 0 a timestamp in ms.

        Fenced when this broker does not lead under `leader_epoch` (-1 = do not check).
        """
        kind = read_committed, replica_id
        if kind not in self._offsets:
            self._offsets[kind] = Coalesced(
                lambda questions: self._many.offsets(
                    questions, read_committed=read_committed, replica_id=replica_id
                )
            )
        question = OffsetQuestion(topic, partition, timestamp, leader_epoch)
        return await self._offsets[kind].answer(question)

    async def delete_records(
        self, topic: str, partition: int, offset: int, *, timeout_ms: int
    ) -> int:
        """Send one DeleteRecords that is not remembered; returns the low watermark.

        Only for an offset below which nothing is left anyway. What could delete a record is sent by
        RecordDeletions, which knows what may still be executed (H41). Errors as there.
        """
        connection = self.deletion_connection()
        topic_partition = TopicPartition(topic, partition)
        try:
            await connection.open()
            async with asyncio.timeout((timeout_ms + 2_000) / 1000):
                return await connection.send(topic_partition, offset, hold_ms=timeout_ms)
        except OSError as error:
            raise OutcomeUnknown(
                f"delete records of {topic_partition} below {offset}: {error}"
            ) from error
        finally:
            await connection.close()

    def deletion_connection(self) -> DeletionConnection:
        """A connection of its own, not opened yet, for one DeleteRecords (RecordDeletions)."""
        client_id = deletion_client_id(self._client_id)
        connection = BrokerConnection(self.address, client_id=client_id, security=self.security)
        return _DeletionConnection(connection, timeout_ms=self._timeout_ms)

    async def topic_config(
        self, topic: str, names: _ConfigNames = ()
    ) -> dict[str, TopicConfigValue]:
        """Effective configuration of a topic, cluster defaults included (DescribeConfigs v4): the
        values of these names, of none = all of them.
        """
        if names not in self._configs:
            self._configs[names] = Coalesced(lambda topics: self._many.topic_configs(topics, names))
        return await self._configs[names].answer(topic)

    async def alter_topic_config(
        self,
        topic: str,
        *,
        set_values: Mapping[str, str],
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and unset topic configurations in one IncrementalAlterConfigs v1; `validate_only`
        asks whether that is allowed, and changes nothing.
        """
        rows = [
            {"name": name, "config_operation": _SET, "value": value}
            for name, value in set_values.items()
        ] + [{"name": name, "config_operation": _DELETE, "value": None} for name in unset]
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic,
            "configs": rows,
        }
        body = {"resources": [resource], "validate_only": validate_only}
        answer = await self._slow.call(
            INCREMENTAL_ALTER_CONFIGS, 1, body, timeout_ms=self._timeout_ms
        )
        for result in answer["responses"]:
            _raise(
                result["error_code"],
                f"alter configs of topic {topic}",
                result["error_message"],
                needs=topic_acl("AlterConfigs", topic),
            )

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        leader_epoch: int = -1,
        read_committed: bool = False,
        max_wait_ms: int = 0,
    ) -> LocalRecords:
        """Fetch v12 from the broker's own log; Fenced for an offset outside it or a stale epoch."""
        body = fetch_body(
            topic,
            partition,
            offset,
            max_bytes=max_bytes,
            leader_epoch=leader_epoch,
            read_committed=read_committed,
            max_wait_ms=max_wait_ms,
        )
        answer = await self._slow.call(
            FETCH, FETCH_VERSION, body, timeout_ms=self._timeout_ms + max_wait_ms
        )
        what, needs = f"fetch {topic}-{partition} at {offset}", topic_acl("Read", topic)
        _raise(answer["error_code"], what, needs=needs)
        found = _only_partition(answer["responses"])
        _raise(found["error_code"], what, needs=needs)
        return local_records(found)

    async def open_transactions(self, topic: str, partition: int) -> tuple[OpenTransaction, ...]:
        """The open transactions of a partition that this broker has (DescribeProducers v0)."""
        body = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        answer = await self._quick.call(DESCRIBE_PRODUCERS, 0, body, timeout_ms=self._timeout_ms)
        found, what = (
            _only_partition(answer["topics"]),
            f"describe producers of {topic}-{partition}",
        )
        needs = topic_acl("Read", topic)
        _raise(found["error_code"], what, found["error_message"], needs=needs)
        return tuple(
            OpenTransaction(
                producer_id=row["producer_id"],
                producer_epoch=row["producer_epoch"],
                start_offset=row["current_txn_start_offset"],
                last_timestamp_ms=row["last_timestamp"],
            )
            for row in found["active_producers"]
            if row["current_txn_start_offset"] >= 0
        )


class _DeletionConnection:
    """DeleteRecords v2 to this broker only (H5)."""

    def __init__(self, connection: BrokerConnection, *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms

    async def open(self) -> None:
        await self._connection.call(API_VERSIONS, 0, {}, timeout_ms=self._timeout_ms)

    def send(self, topic_partition: TopicPartition, offset: int, *, hold_ms: int) -> Awaitable[int]:
        """Fenced: not leader, or the offset lies above the high watermark. Unavailable: applied on
        the leader while a live follower lags (7), or refused for now; the log start shows which.
        """
        row = {"partition_index": topic_partition.partition, "offset": offset}
        body = {
            "topics": [{"name": topic_partition.topic, "partitions": [row]}],
            "timeout_ms": hold_ms,
        }
        answer = self._connection.send(DELETE_RECORDS, 2, body)
        what = f"delete records of {topic_partition} below {offset}"
        return self._low_watermark(answer, what, topic_acl("Delete", topic_partition.topic))

    async def _low_watermark(self, answer: Awaitable[Value], what: str, needs: Acl) -> int:
        found = _only_partition((await answer)["topics"])
        _raise(found["error_code"], what, needs=needs)
        return int(found["low_watermark"])

    async def close(self) -> None:
        await self._connection.close()


def _raise(code: int, what: str, detail: str | None = None, *, needs: Acl) -> None:
    if code:
        raise error_of_code(code, what, detail, needs=needs)


def _only_partition(topics: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    for topic in topics:
        for partition in topic["partitions"]:
            row: Mapping[str, Any] = partition
            return row
    raise Internal("the broker answered for no partition")


def _exists(found: TopicDescription | RemoteStorageError) -> TypeGuard[TopicDescription]:
    if isinstance(found, RemoteStorageError) and not isinstance(found, NotFound):
        raise found
    return isinstance(found, TopicDescription)


T = TypeVar("T")
_TIMEOUT_MS = 5_000


class AnyBroker:
    """Connects at the first call; the owner closes it."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        client_id: str,
        security: ChannelSecurity | None = None,
    ) -> None:
        """`security` None: PLAINTEXT."""
        self._brokers = [
            OwnBroker(one, client_id=client_id, security=security, timeout_ms=_TIMEOUT_MS)
            for one in addresses
        ]

    async def topic(self, name: str) -> TopicDescription:
        """NotFound: positively unknown. Unavailable: no broker answers."""
        return await first_answer(self._brokers, lambda broker: broker.topic(name))

    async def topics(self) -> tuple[TopicDescription, ...]:
        """All that there are; Unavailable likewise."""
        return await first_answer(self._brokers, lambda broker: broker.topics())

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]:
        """Effective configuration; errors likewise."""
        return await first_answer(self._brokers, lambda broker: broker.topic_config(topic))

    async def describe_cluster(self) -> ClusterDescription:
        """Unavailable: no broker answers."""
        return await first_answer(self._brokers, lambda broker: broker.describe_cluster())

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()
