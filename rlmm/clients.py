"""The aiokafka edge: clients that never create a topic by asking for it, and how they are made
and dropped.

aiokafka 0.14 always asks Metadata with allow_auto_topic_creation=true: a deleted ledger would
come back with the broker's defaults and look empty (H6). Everything private of aiokafka that we
touch is touched in this file. Must not know what the records mean.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition

_ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Where our own clients connect: the brokers' direct listeners, never a proxy. Times in ms."""

    bootstrap_servers: tuple[str, ...]
    client_id: str
    request_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    fetch_max_wait_ms: int = 500


class ExplicitTopicsClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """An AIOKafkaClient whose metadata requests forbid topic creation.

    `layout` tells when the cluster looked different: brokers, or leaders of the topics it follows.
    """

    layout: frozenset[tuple[Any, ...]] = frozenset()

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
        (topic, partition, cluster.leader_for_partition(TopicPartition(topic, partition)))
        for topic in cluster.topics(exclude_internal_topics=False)
        for partition in cluster.partitions_for_topic(topic) or ()
    }
    return frozenset(brokers | leaders)


def _forbid_topic_creation(client: AIOKafkaClient) -> ExplicitTopicsClient:
    """Turn the client that aiokafka made in a constructor into ours, before it is started.

    Producer and consumer hand their client on to their parts at once, so it is changed, not
    replaced.
    """
    client.__class__ = ExplicitTopicsClient
    explicit: ExplicitTopicsClient = client
    return explicit


def make_consumer(settings: ConnectionSettings) -> AIOKafkaConsumer:
    """A consumer without group, offsets of its own or reset policy; the caller assigns, seeks and
    stops it.
    """
    consumer = AIOKafkaConsumer(
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
    _forbid_topic_creation(consumer._client)
    return consumer


def make_producer(settings: ConnectionSettings) -> AIOKafkaProducer:
    """An idempotent producer with acks=all."""
    producer = AIOKafkaProducer(
        bootstrap_servers=list(settings.bootstrap_servers),
        client_id=settings.client_id,
        acks="all",
        enable_idempotence=True,
        request_timeout_ms=settings.request_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
    )
    _forbid_topic_creation(producer.client)
    return producer


def make_admin(settings: ConnectionSettings) -> AIOKafkaAdminClient:
    """An admin client for creating our topics."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=list(settings.bootstrap_servers),
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
    )
    _forbid_topic_creation(admin._client)
    return admin


def cluster_layout(producer: AIOKafkaProducer) -> frozenset[tuple[Any, ...]]:
    """How the producer sees brokers and leaders; it differs after every change of metadata."""
    layout: frozenset[tuple[Any, ...]] = producer.client.layout
    return layout


async def abort_producer(producer: AIOKafkaProducer) -> None:
    """Drop a producer with everything it has not sent: `stop()` would flush, which is what must
    not happen now.
    """
    producer._closed = True
    with contextlib.suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_ABORT_TIMEOUT_S):
            await producer.client.close()
            await producer._sender.close()
            await producer.client.close()
