"""Requests to one broker for many topics or partitions, with an answer for each of them.

An error of one topic or partition is the answer for that one; an error of the whole request is
raised. `AllowedOperations` asks which operations the broker allows this service's principal,
without performing any: Kafka adds them to Metadata and DescribeCluster on request (KIP-430), with
one bit an operation.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kafka_clients.channel_security import ChannelSecurity
from kafka_protocol import error_codes
from kafka_protocol.apis import DESCRIBE_CLUSTER, DESCRIBE_CONFIGS, LIST_OFFSETS, METADATA
from kip405.acls import topic_acl
from kip405.addresses import Address
from kip405.errors import NotFound, RemoteStorageError, Unavailable
from kip405.ids import Uuid
from rlm.broker.answers import (
    OffsetAnswer,
    PartitionDescription,
    TopicConfigValue,
    TopicDescription,
    TopicIdAnswer,
    error_of_code,
)
from rlm.broker.connection import BrokerConnection
from rlm.broker.partition_requests import LIST_OFFSETS_VERSION, OffsetQuestion, list_offsets_body

TOPIC_RESOURCE = 2
_TOPIC_LEVEL_SOURCE = 1
_NO_LEADER_ERRORS = {
    error_codes.NONE,
    error_codes.LEADER_NOT_AVAILABLE,
    error_codes.REPLICA_NOT_AVAILABLE,
}
_GONE = {error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.UNKNOWN_TOPIC_ID}

ConfigValues = dict[str, TopicConfigValue]

_TIMEOUT_MS = 10_000
_CORRELATION_ID_BYTES = 4
_MOST_REMEMBERED = 16
"""Answers to Metadata: more sets of names are asked for where services lead many topics."""
_NOT_REPORTED = -(1 << 31)
OPERATIONS = {
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
}
"""The codes of org.apache.kafka.common.acl.AclOperation."""

Operations = frozenset[str]
B = TypeVar("B")
T = TypeVar("T")


async def first_answer(brokers: list[B], ask: Callable[[B], Awaitable[T]]) -> T:
    """The answer of the first broker that gives one, which is asked first from then on.
    Unavailable: none does.
    """
    failures: list[Unavailable] = []
    for broker in list(brokers):
        try:
            answer = await ask(broker)
        except Unavailable as error:
            failures.append(error)
            continue
        brokers.remove(broker)
        brokers.insert(0, broker)
        return answer
    raise Unavailable("; ".join(str(error) for error in failures)) from failures[0]


class _Described(NamedTuple):
    """An answer to Metadata, without its correlation id, and what it says."""

    answer: bytes
    topics: dict[str, TopicDescription | RemoteStorageError]


class Many:
    """Asks one broker over one connection; each call has the deadline `timeout_ms`."""

    def __init__(self, connection: BrokerConnection, *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._last_described: dict[frozenset[str] | None, _Described] = {}
        """By the names that were asked for, the latest last."""

    async def topics(
        self, names: Sequence[str] | None
    ) -> dict[str, TopicDescription | RemoteStorageError]:
        """Each topic of these names, or all that are there (Metadata v12); creates none."""
        if names is not None and not names:
            return {}
        wanted = None if names is None else [{"name": name} for name in names]
        body = {"topics": wanted, "allow_auto_topic_creation": False}
        frame = await self._connection.response(METADATA, 12, body, self._timeout_ms)
        found = self._described(None if names is None else frozenset(names), frame)
        return {**{name: _no_topic(name) for name in names or ()}, **found}

    def _described(
        self, names: frozenset[str] | None, frame: bytes | bytearray
    ) -> dict[str, TopicDescription | RemoteStorageError]:
        """What the frame says. Tasks ask for the same topics again and again, and to decode a topic
        of 1,000 partitions takes milliseconds: a frame that equals the one before is not decoded.
        """
        answer = memoryview(frame)[_CORRELATION_ID_BYTES:]
        known = self._last_described.pop(names, None)
        if known is None or known.answer != answer:
            value = self._connection.decoded(METADATA, 12, frame)
            topics = {topic["name"]: _topic_or_error(topic) for topic in value["topics"]}
            known = _Described(answer=bytes(answer), topics=topics)
        if not any(isinstance(one, RemoteStorageError) for one in known.topics.values()):
            self._last_described[names] = known  # an error is raised once: it keeps its traceback
        if len(self._last_described) > _MOST_REMEMBERED:
            del self._last_described[next(iter(self._last_described))]
        return known.topics

    async def topic_ids(self, topic_ids: Sequence[Uuid]) -> TopicIdAnswer:
        """What this broker knows of these ids (Metadata v12): codes, and nothing inferred."""
        body = {
            "topics": [{"topic_id": one.raw, "name": None} for one in topic_ids],
            "allow_auto_topic_creation": False,
        }
        answer = await self._connection.call(METADATA, 12, body, timeout_ms=self._timeout_ms)
        alive = {row["node_id"] for row in answer["brokers"]}
        replicas = {
            node_id
            for topic in answer["topics"]
            for row in topic["partitions"]
            for node_id in row["replica_nodes"]
        }
        return TopicIdAnswer(
            cluster_id=answer["cluster_id"],
            error_codes={
                Uuid(bytes(topic["topic_id"])): topic["error_code"] for topic in answer["topics"]
            },
            brokers=frozenset(alive | replicas),
        )

    async def topic_configs(
        self, topics: Sequence[str], names: Sequence[str]
    ) -> dict[str, ConfigValues | RemoteStorageError]:
        """Effective configuration of each topic: the values of these names, of none = all of them
        (DescribeConfigs v4).
        """
        resources = [
            {
                "resource_type": TOPIC_RESOURCE,
                "resource_name": topic,
                "configuration_keys": list(names) or None,
            }
            for topic in topics
        ]
        answer = await self._connection.call(
            DESCRIBE_CONFIGS, 4, {"resources": resources}, timeout_ms=self._timeout_ms
        )
        return {result["resource_name"]: _configs_or_error(result) for result in answer["results"]}

    async def offsets(
        self, questions: Sequence[OffsetQuestion], *, read_committed: bool, replica_id: int
    ) -> dict[OffsetQuestion, OffsetAnswer | RemoteStorageError]:
        """ListOffsets v7; a broker refuses to be asked twice for a partition in one request."""
        found: dict[OffsetQuestion, OffsetAnswer | RemoteStorageError] = {}
        for asked in _without_repeats(questions):
            body = list_offsets_body(
                asked.values(), read_committed=read_committed, replica_id=replica_id
            )
            answer = await self._connection.call(
                LIST_OFFSETS, LIST_OFFSETS_VERSION, body, timeout_ms=self._timeout_ms
            )
            for topic in answer["topics"]:
                for row in topic["partitions"]:
                    question = asked.get((topic["name"], row["partition_index"]))
                    if question is not None:
                        found[question] = _offset_or_error(question, row)
        return found


def _without_repeats(
    questions: Iterable[OffsetQuestion],
) -> Iterator[dict[tuple[str, int], OffsetQuestion]]:
    left = list(questions)
    while left:
        asked: dict[tuple[str, int], OffsetQuestion] = {}
        left = [
            question
            for question in left
            if asked.setdefault((question.topic, question.partition), question) is not question
        ]
        yield asked


def _offset_or_error(
    question: OffsetQuestion, row: Mapping[str, Any]
) -> OffsetAnswer | RemoteStorageError:
    if row["error_code"]:
        what = f"list offsets of {question.topic}-{question.partition}"
        return error_of_code(row["error_code"], what, needs=topic_acl("Describe", question.topic))
    return OffsetAnswer(
        offset=row["offset"], leader_epoch=row["leader_epoch"], timestamp_ms=row["timestamp"]
    )


def _configs_or_error(result: Mapping[str, Any]) -> ConfigValues | RemoteStorageError:
    if result["error_code"]:
        what = f"describe configs of topic {result['resource_name']}"
        needs = topic_acl("DescribeConfigs", result["resource_name"])
        return error_of_code(result["error_code"], what, result["error_message"], needs=needs)
    return {
        row["name"]: TopicConfigValue(
            value=row["value"], is_topic_level=row["config_source"] == _TOPIC_LEVEL_SOURCE
        )
        for row in result["configs"]
    }


def _no_topic(name: str) -> NotFound:
    return NotFound(f"topic {name!r} does not exist")


def _topic_or_error(topic: Mapping[str, Any]) -> TopicDescription | RemoteStorageError:
    code, name = topic["error_code"], topic["name"]
    if code in _GONE:
        return _no_topic(name)
    if code:
        return error_of_code(code, f"metadata of topic {name}", needs=topic_acl("Describe", name))
    return TopicDescription(
        name=name,
        topic_id=Uuid(bytes(topic["topic_id"])),
        internal=topic["is_internal"],
        partitions={
            row["partition_index"]: _partition(row)
            for row in topic["partitions"]
            if row["error_code"] in _NO_LEADER_ERRORS
        },
    )


def _partition(row: Mapping[str, Any]) -> PartitionDescription:
    return PartitionDescription(
        partition=row["partition_index"],
        leader=row["leader_id"],
        leader_epoch=row["leader_epoch"],
        replicas=tuple(row["replica_nodes"]),
        isr=tuple(row["isr_nodes"]),
    )


def operations_of(bits: int) -> Operations | None:
    """The operations of an answer's bit field; None where the broker did not say."""
    if bits == _NOT_REPORTED:
        return None
    return frozenset(name for code, name in OPERATIONS.items() if bits >> code & 1)


class AllowedOperations:
    """Asks one broker over a connection of its own, opened at the first call; the owner closes
    it.
    """

    def __init__(self, address: Address, *, client_id: str, security: ChannelSecurity) -> None:
        self._connection = BrokerConnection(
            address, client_id=f"{client_id}-allowed", security=security
        )

    async def on_cluster(self) -> Operations | None:
        """DescribeCluster v0; nothing without Describe. Unavailable: no answer."""
        body = {"include_cluster_authorized_operations": True}
        answer = await self._connection.call(DESCRIBE_CLUSTER, 0, body, timeout_ms=_TIMEOUT_MS)
        if answer["error_code"]:
            raise error_of_code(answer["error_code"], "describe cluster", needs=None)
        return operations_of(answer["cluster_authorized_operations"])

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, Operations | None]:
        """Metadata v12, by the names that exist; nothing at all without Describe."""
        if not topics:
            return {}
        body = {
            "topics": [{"name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }
        answer = await self._connection.call(METADATA, 12, body, timeout_ms=_TIMEOUT_MS)
        found: dict[str, Operations | None] = {}
        for topic in answer["topics"]:
            code = topic["error_code"]
            if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
                found[topic["name"]] = frozenset()
            elif code == 0:
                found[topic["name"]] = operations_of(topic["topic_authorized_operations"])
        return found

    async def close(self) -> None:
        await self._connection.close()


class AllowedByAny:
    """The same of whichever broker answers: all of them know the same ACLs."""

    def __init__(
        self, addresses: Sequence[Address], *, client_id: str, security: ChannelSecurity
    ) -> None:
        self._brokers = [
            AllowedOperations(one, client_id=client_id, security=security) for one in addresses
        ]

    async def on_cluster(self) -> Operations | None:
        """See AllowedOperations. Unavailable: no broker answers."""
        return await first_answer(self._brokers, lambda broker: broker.on_cluster())

    async def on_topics(self, topics: Sequence[str]) -> Mapping[str, Operations | None]:
        """Likewise."""
        return await first_answer(self._brokers, lambda broker: broker.on_topics(topics))

    async def close(self) -> None:
        for broker in self._brokers:
            await broker.close()
