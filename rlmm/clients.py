"""The edge to aiokafka: clients that never create a topic by asking for it, and their life cycle.

aiokafka 0.14 always sends Metadata with allow_auto_topic_creation=true: a deleted ledger would come
back with the broker's defaults and look empty (H6). The clients also ask where logs end, and which
leader epochs the brokers know: aiokafka has no class for OffsetForLeaderEpoch v3, and its classes
for ListOffsets v5 do not return the epoch. Only this module touches private parts of aiokafka. It
must not know what the records mean. Sources: OffsetForLeaderEpochRequest.json,
ListOffsetsRequest.json and their responses.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, structs
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Int64, Schema, String

from kafka_clients.broker_client import BrokerClient
from kafka_clients.channel_security import ChannelSecurity, plaintext
from kafka_clients.closing_client import ClosingConsumer
from kafka_protocol.apis.offsets import DEBUGGING_REPLICA_ID, LATEST_TIMESTAMP
from kafka_protocol.error_codes import FENCED_LEADER_EPOCH
from kafka_protocol.fetch import CONSUMER_REPLICA_ID
from kip405.acls import Acl
from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.leader_answers import (
    NO_EPOCH,
    EpochEnd,
    EpochQuestion,
    FetchedEpochs,
    LogEnd,
    ReplicaVotes,
)

_READ_UNCOMMITTED = 0
_ANY_EPOCH = -1
"""As current leader epoch: any broker that believes it is the leader answers."""

_LINGER_MS = 5
"""Records of copies and deletions that run side by side share requests, and so do the fetches that
read them back.
"""
_ABORT_TIMEOUT_S = 5.0
_ASK_TIMEOUT_S = 5.0
NOT_AUTHORIZED = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)
log = structlog.get_logger(__name__)


def _topics(*partition_fields: tuple[str, Any]) -> tuple[str, Any]:
    """The field `topics` of a message: partitions by topic, each with these fields."""
    partitions = ("partitions", Array(*partition_fields))
    return "topics", Array(("topic", String("utf-8")), partitions)


class EpochEndsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("error_code", Int16),
            ("partition", Int32),
            ("leader_epoch", Int32),
            ("end_offset", Int64),
        ),
    )


class EpochEndsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndsResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        _topics(
            ("partition", Int32),
            ("current_leader_epoch", Int32),
            ("leader_epoch", Int32),
        ),
    )


class EpochEndsRequest(Request[EpochEndsStruct]):  # type: ignore[misc]
    """Asks one leader for leader epochs, by partition."""

    API_KEY = 23

    def __init__(self, questions: Mapping[TopicPartition, EpochQuestion]) -> None:
        self._questions = questions

    def build(self, request_struct_class: type[EpochEndsStruct]) -> EpochEndsStruct:
        topics: dict[str, list[tuple[int, int, int]]] = {}
        for topic_partition, question in self._questions.items():
            topics.setdefault(topic_partition.topic, []).append(
                (topic_partition.partition, _required_epoch(question), question.leader_epoch)
            )
        return request_struct_class(CONSUMER_REPLICA_ID, list(topics.items()))


def _required_epoch(question: EpochQuestion) -> int:
    """What is sent as current leader epoch. Whoever does not know the epoch that is asked for has
    no answer anyway, so that one need not be named, and a leader of a newer one does not refuse.
    """
    is_newer = question.current_leader_epoch > question.leader_epoch
    return question.current_leader_epoch if is_newer else _ANY_EPOCH


def read_epoch_ends(
    answer: Any,
) -> tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, int]]:
    """The leader's answers, and the error codes where it gave none."""
    found: dict[TopicPartition, EpochEnd] = {}
    refused: dict[TopicPartition, int] = {}
    for topic, partitions in answer.topics:
        for error_code, partition, leader_epoch, end_offset in partitions:
            topic_partition = TopicPartition(topic, partition)
            if error_code:
                refused[topic_partition] = error_code
            elif NO_EPOCH not in (leader_epoch, end_offset):
                found[topic_partition] = EpochEnd(leader_epoch, end_offset)
    return found, refused


class LogEndResponse(Response):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("partition", Int32),
            ("error_code", Int16),
            ("timestamp", Int64),
            ("offset", Int64),
            ("leader_epoch", Int32),
        ),
    )


class LogEndStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 5
    RESPONSE_TYPE = LogEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("isolation_level", Int8),
        _topics(
            ("partition", Int32),
            ("current_leader_epoch", Int32),
            ("timestamp", Int64),
        ),
    )


class LogEndRequest(Request[LogEndStruct]):  # type: ignore[misc]
    """Asks for the end of one partition; with `of_leader` False, as any replica that is asked has
    it.
    """

    API_KEY = 2

    def __init__(self, topic_partition: TopicPartition, *, of_leader: bool) -> None:
        self._topic_partition = topic_partition
        self._replica_id = CONSUMER_REPLICA_ID if of_leader else DEBUGGING_REPLICA_ID

    def build(self, request_struct_class: type[LogEndStruct]) -> LogEndStruct:
        partitions = [(self._topic_partition.partition, _ANY_EPOCH, LATEST_TIMESTAMP)]
        topics = [(self._topic_partition.topic, partitions)]
        return request_struct_class(self._replica_id, _READ_UNCOMMITTED, topics)


def read_log_end(answer: Any) -> LogEnd:
    """The broker's answer; its KafkaError where it refused."""
    for topic, partitions in answer.topics:
        for _, error_code, _, offset, leader_epoch in partitions:
            if error_code:
                raise for_code(error_code)(topic)
            return LogEnd(offset, leader_epoch)
    raise KafkaError("an empty answer")


def error_text(error: BaseException, *needs: Acl) -> str:
    """An error of aiokafka in words; a refusal for want of an ACL names that of the topic that was
    refused, or all of them where it does not say which.
    """
    if not isinstance(error, NOT_AUTHORIZED):
        return repr(error)
    refused = [getattr(one, "topic", one) for one in error.args]
    named = [acl for acl in needs if acl.resource_name in refused] or needs
    return f"{error!r}: missing ACL: {'; '.join(map(str, named))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Where this product's own clients connect: the brokers' direct listeners, never a proxy. Times
    in ms.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str
    request_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    fetch_max_wait_ms: int = 500
    security: ChannelSecurity = field(default_factory=plaintext)


class ExplicitTopicsClient(BrokerClient):
    """A client whose metadata requests forbid topic creation.

    `layout` is notified when the cluster changed: brokers, or leaders of the topics that it
    follows. `fetched` records the leader epochs of what a consumer fetches, because aiokafka's
    records lack them.
    """

    layout: frozenset[tuple[Any, ...]] = frozenset()
    fetched: FetchedEpochs | None = None

    async def send(self, node_id: Any, request: Any, **options: Any) -> Any:
        answer = await super().send(node_id, request, **options)
        if self.fetched is not None and isinstance(request, FetchRequest):
            for topic, partitions in answer.topics:
                for partition, *_, batches in partitions:
                    self.fetched.note(TopicPartition(topic, partition), batches or b"")
        return answer

    async def _metadata_update(self, cluster_metadata: Any, topics: Iterable[str] | None) -> bool:
        request = MetadataRequest(list(topics) if topics else None, allow_auto_topic_creation=False)
        bootstrap = next((key for key in self._conns if key[0] == "bootstrap"), None)
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        for node in [*nodes, "bootstrap"] if bootstrap else nodes:
            connection = await self._get_conn(node)
            if connection is None:
                continue
            try:
                answer = await connection.send(request)
            except (KafkaError, TimeoutError):
                continue
            if not answer.brokers:
                return False
            cluster_metadata.update_metadata(answer)
            self.layout = _layout(self.cluster)
            if bootstrap in self._conns and self.cluster.brokers():
                self._conns.pop(bootstrap).close()
            return True
        cluster_metadata.failed_update(None)
        return False


def _layout(cluster: Any) -> frozenset[tuple[Any, ...]]:
    brokers = {(broker.nodeId, broker.host, broker.port) for broker in cluster.brokers()}
    leaders = {
        (topic, partition, cluster.leader_for_partition(structs.TopicPartition(topic, partition)))
        for topic in cluster.topics(exclude_internal_topics=False)
        for partition in cluster.partitions_for_topic(topic) or ()
    }
    return frozenset(brokers | leaders)


def _make_ours(client: AIOKafkaClient, settings: ConnectionSettings) -> ExplicitTopicsClient:
    """Make the client that aiokafka created in a constructor one of ours, before it is started:
    it creates no topic, and its connections are secured.

    Producer and consumer pass their client on at once, so it is changed, not
    replaced.
    """
    client.__class__ = ExplicitTopicsClient
    explicit: ExplicitTopicsClient = client
    explicit.channel_security = settings.security
    return explicit


def make_consumer(settings: ConnectionSettings) -> AIOKafkaConsumer:
    """A consumer without group, offsets of its own or reset policy; the caller assigns, seeks and
    stops it.
    """
    consumer = ClosingConsumer(
        bootstrap_servers=list(settings.bootstrap_servers),
        client_id=settings.client_id,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
        request_timeout_ms=settings.request_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        exclude_internal_topics=False,
    )
    _make_ours(consumer._client, settings).fetched = FetchedEpochs()
    return consumer


async def end_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer, where a block ends. Its own error is only logged: raised, it would take the
    place of what ends the block, as a cancellation is, and whoever tries again would go on.
    """
    try:
        await consumer.stop()
    except (KafkaError, OSError) as error:
        log.info("consumer_not_stopped", error=repr(error))


def fetched_epochs(consumer: AIOKafkaConsumer) -> FetchedEpochs:
    """Leader epochs of what one of this product's consumers has fetched."""
    fetched: FetchedEpochs = consumer._client.fetched
    return fetched


async def refresh_metadata(consumer: AIOKafkaConsumer) -> None:
    """Ask again for the leaders."""
    await consumer._client.force_metadata_update()


async def ask_epoch_ends(
    consumer: AIOKafkaConsumer, questions: Mapping[TopicPartition, EpochQuestion]
) -> dict[TopicPartition, EpochEnd]:
    """Where the leaders' logs end these epochs, all leaders at once; partitions whose leader gave
    no answer, or knows only older epochs, are left out after another try with fresh metadata.
    """
    found = await _ask_leaders(consumer._client, questions)
    rest = {
        topic_partition: question
        for topic_partition, question in questions.items()
        if topic_partition not in found
    }
    if rest:
        await consumer._client.force_metadata_update()
        found |= await _ask_leaders(consumer._client, rest)
    return found


async def _ask_leaders(
    client: AIOKafkaClient, questions: Mapping[TopicPartition, EpochQuestion]
) -> dict[TopicPartition, EpochEnd]:
    for topic in {topic_partition.topic for topic_partition in questions}:
        await client.add_topic(topic)
    by_leader: dict[int, dict[TopicPartition, EpochQuestion]] = {}
    for topic_partition, question in questions.items():
        leader = client.cluster.leader_for_partition(structs.TopicPartition(*topic_partition))
        if leader is not None and leader >= 0:
            by_leader.setdefault(leader, {})[topic_partition] = question
    answers = await asyncio.gather(
        *(ask_leader(client, leader, asked) for leader, asked in by_leader.items()),
        return_exceptions=True,
    )
    found: dict[TopicPartition, EpochEnd] = {}
    for leader, answer in zip(by_leader, answers, strict=True):
        if isinstance(answer, (KafkaError, OSError, TimeoutError)):
            log.info("epoch_ends_unanswered", leader=leader, error=repr(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found |= answer
    return found


async def ask_leader(
    client: AIOKafkaClient, leader: int, questions: Mapping[TopicPartition, EpochQuestion]
) -> dict[TopicPartition, EpochEnd]:
    """What one broker answers. Where it knows a newer epoch than the asker, the same broker is
    asked again without one; any other may be the deposed one.
    """
    found, refused = read_epoch_ends(await _ask(client, leader, EpochEndsRequest(questions)))
    fenced = {
        topic_partition: EpochQuestion(questions[topic_partition].leader_epoch, _ANY_EPOCH)
        for topic_partition, error_code in refused.items()
        if error_code == FENCED_LEADER_EPOCH
    }
    if fenced:
        again, still = read_epoch_ends(await _ask(client, leader, EpochEndsRequest(fenced)))
        found |= again
        refused = {one: code for one, code in refused.items() if one not in fenced} | still
    for topic_partition, error_code in refused.items():
        log.info(
            "epoch_end_refused",
            topic=topic_partition.topic,
            at=topic_partition.partition,
            error=for_code(error_code).__name__,
            error_code=error_code,
        )
    return found


async def ask_log_end(
    consumer: AIOKafkaConsumer, topic_partition: TopicPartition, min_insync_replicas: int
) -> int:
    """End offset behind everything written before this call; Unavailable where the leader, or as
    many replicas as it takes to be sure of the leader, do not answer. KafkaError: we may not ask.
    """
    client = consumer._client
    await client.add_topic(topic_partition.topic)
    metadata = client.cluster._partitions.get(topic_partition.topic, {}).get(
        topic_partition.partition
    )
    if metadata is None or metadata.leader < 0:
        raise Unavailable(f"end offset of {topic_partition}: no leader is known")
    votes = ReplicaVotes(
        topic_partition,
        leader=metadata.leader,
        replicas=frozenset(metadata.replicas),
        min_insync_replicas=min_insync_replicas,
    )
    decided = asyncio.Event()
    hopeless: list[KafkaError] = []

    async def ask(node: int) -> None:
        try:
            request = LogEndRequest(topic_partition, of_leader=node == metadata.leader)
            votes.take(node, read_log_end(await _ask(client, node, request)))
        except (KafkaError, OSError, TimeoutError) as error:
            votes.refuse(node, repr(error))
            if isinstance(error, NOT_AUTHORIZED):
                hopeless.append(error)
        if votes.is_decided:
            decided.set()

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(node)) for node in (metadata.leader, *votes.others)]
        await decided.wait()
        for task in asking:
            task.cancel()
    if hopeless and not votes.has_end:
        raise hopeless[0]
    return votes.end()


async def _ask(client: AIOKafkaClient, node: int, request: Any) -> Any:
    """One question; a paused broker does not block others for the whole request timeout."""
    async with asyncio.timeout(_ASK_TIMEOUT_S):
        return await client.send(node, request)


def make_producer(settings: ConnectionSettings) -> AIOKafkaProducer:
    """An idempotent producer with acks=all."""
    producer = AIOKafkaProducer(
        bootstrap_servers=list(settings.bootstrap_servers),
        client_id=settings.client_id,
        acks="all",
        enable_idempotence=True,
        linger_ms=_LINGER_MS,
        request_timeout_ms=settings.request_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
    )
    _make_ours(producer.client, settings)
    return producer


def make_admin(settings: ConnectionSettings) -> AIOKafkaAdminClient:
    """An admin client for creating our topics."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=list(settings.bootstrap_servers),
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
    )
    _make_ours(admin._client, settings)
    return admin


def cluster_layout(producer: AIOKafkaProducer) -> frozenset[tuple[Any, ...]]:
    """How the producer sees brokers and leaders; it differs after every change of metadata."""
    layout: frozenset[tuple[Any, ...]] = producer.client.layout
    return layout


def cut_producer(producer: AIOKafkaProducer) -> None:
    """Drop a producer with everything that it has not sent, now: it sends nothing from here on.
    `stop()` would flush, which is what must not happen. `abort_producer` waits for its end.
    """
    producer._closed = True
    producer.client.cut()
    if producer._sender.sender_task is not None:
        producer._sender.sender_task.cancel()


async def abort_producer(producer: AIOKafkaProducer) -> None:
    """Cut a producer, and wait until its connections are gone."""
    cut_producer(producer)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ABORT_TIMEOUT_S):
            if producer._sender.sender_task is not None:
                await asyncio.wait({producer._sender.sender_task})
            await producer.client.close()
