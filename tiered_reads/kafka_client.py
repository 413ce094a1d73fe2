"""The connector's own consumer: reads whole record batches from Kafka's brokers, as bytes.

It has no group, decodes nothing and keeps no position: each call states the offset. Calls block.
Transient errors (leaders, connections) are retried until `patience_ms` pass without an answer. This
module must not know read modes or the remote tier.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from aiokafka import errors as kafka_errors

from kafka_clients.refusals import NoTokenNow, SecurityRefused
from kafka_protocol import error_codes as codes
from kip405.acls import Acl, topic_acl
from tiered_reads import clock
from tiered_reads.errors import KafkaClientError, TopicChangedError
from tiered_reads.kafka_connection import BrokerConnections, LoopThread, connect
from tiered_reads.kafka_options import KafkaSettings
from tiered_reads.kafka_requests import (
    NO_TOPIC_ID,
    FetchedPartition,
    TopicMetadata,
    fetch_request,
    list_offsets_request,
)
from tiered_reads.shared import Shared
from tiered_reads.stopping import Stop
from tiered_reads.values import TopicPartition

GONE_AFTER_MS: Final = 5_000
"""A topic that all answers deny for so long is gone; a broker that just started may deny it."""

# Errors that newer metadata, or a moment, may resolve (Errors.java).
_PASSING: Final = frozenset(
    {
        codes.UNKNOWN_SERVER_ERROR,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.REQUEST_TIMED_OUT,
        codes.REPLICA_NOT_AVAILABLE,
        codes.NETWORK_EXCEPTION,
        codes.KAFKA_STORAGE_ERROR,
        codes.FETCH_SESSION_ID_NOT_FOUND,
        codes.INVALID_FETCH_SESSION_EPOCH,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
        codes.OFFSET_NOT_AVAILABLE,
        codes.THROTTLING_QUOTA_EXCEEDED,
        codes.UNKNOWN_TOPIC_ID,
        codes.INCONSISTENT_TOPIC_ID,
    }
)
# Errors that remain with every broker and after every wait.
_FINAL: Final = (
    SecurityRefused,
    kafka_errors.IncompatibleBrokerVersion,
    kafka_errors.UnsupportedVersionError,
)

_OF_THE_QUERY: Final = "of this query"
"""In an error's text, where only the brokers know the principal's name."""

T = TypeVar("T")


class TopicGone(Exception):
    """Kafka does not have the topic, or the partition, (any more)."""


class _Passing(Exception):
    """Try again with newer metadata."""


class _Unknown(Exception):
    """Kafka does not know it; try again, because a new broker may not know it yet."""


class KafkaClient:
    """Thread-safe. `gone_after_ms`: see GONE_AFTER_MS."""

    def __init__(
        self, settings: KafkaSettings, *, patience_ms: int, gone_after_ms: int = GONE_AFTER_MS
    ) -> None:
        self._settings = settings
        self._patience_ms = patience_ms
        self._gone_after_ms = gone_after_ms
        self._loop = LoopThread("rlm-kafka-consumer")
        self._connections: BrokerConnections | None = None
        self._connecting: asyncio.Lock | None = None
        self._topics: dict[str, TopicMetadata] = {}

    def close(self) -> None:
        """Close every connection, end the thread."""
        if self._connections is not None:
            self._loop.run(self._connections.close(), Stop())
            self._connections = None
        self._loop.close()

    def topics(self, names: Sequence[str] | None, stop: Stop) -> dict[str, TopicMetadata]:
        """The topics that exist; `names` None: all that this user may see. KafkaClientError."""
        return self._loop.run(self._retried("metadata", lambda: self._describe(names)), stop)

    def topic(self, name: str, stop: Stop) -> TopicMetadata:
        """One topic, from the cache if it is there. TopicGone, KafkaClientError."""
        return self._loop.run(self._retried(f"topic {name}", lambda: self._topic(name)), stop)

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool, stop: Stop
    ) -> dict[TopicPartition, int | None]:
        """The offset for each timestamp in ms, None where no record matches. EARLIEST_TIMESTAMP and
        LATEST_TIMESTAMP are allowed; the latest under `read_committed` is the last stable offset.
        TopicGone, KafkaClientError.
        """
        return self._loop.run(self._offsets(dict(wanted), read_committed), stop)

    def fetch(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        offset: int,
        *,
        read_committed: bool,
        stop: Stop,
    ) -> FetchedPartition | None:
        """One answer of the leader, maybe without records; None: the offset is out of range.

        TopicChangedError where the name has another id than `topic_id` now; TopicGone,
        KafkaClientError.
        """
        work = self._retried(
            f"fetch of {topic_partition} at {offset}",
            lambda: self._fetch(topic_partition, topic_id, offset, read_committed),
        )
        return self._loop.run(work, stop)

    async def _fetch(
        self, topic_partition: TopicPartition, topic_id: bytes, offset: int, read_committed: bool
    ) -> FetchedPartition | None:
        topic = await self._topic(topic_partition.topic)
        _same_topic(topic, topic_id)
        request = fetch_request(
            topic_partition, topic_id, offset, self._settings, read_committed=read_committed
        )
        client = await self._connected()
        answer = await client.send_to(_leader(topic, topic_partition), request)
        if answer.error_code == codes.OFFSET_OUT_OF_RANGE:
            return None
        self._check(answer.error_code, str(topic_partition), topic_acl("Read", topic.name))
        return answer

    async def _offsets(
        self, wanted: dict[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}

        async def ask() -> None:
            left = {
                topic_partition: wanted[topic_partition]
                for topic_partition in wanted
                if topic_partition not in found
            }
            await self._offsets_once(left, read_committed, found)

        await self._retried("offsets", ask)
        return found

    async def _offsets_once(
        self,
        wanted: dict[TopicPartition, int],
        read_committed: bool,
        found: dict[TopicPartition, int | None],
    ) -> None:
        missing = {topic_partition.topic for topic_partition in wanted} - set(self._topics)
        if missing:
            await self._describe(sorted(missing))
        by_node: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for topic_partition, timestamp in wanted.items():
            node = _leader(await self._topic(topic_partition.topic), topic_partition)
            by_node[node][topic_partition] = timestamp
        client = await self._connected()
        for node, timestamps in by_node.items():
            request = list_offsets_request(timestamps, read_committed=read_committed)
            answer = await client.send_to(node, request)
            for topic_partition, (error_code, offset) in answer.items():
                needs = topic_acl("Describe", topic_partition.topic)
                self._check(error_code, str(topic_partition), needs)
                found[topic_partition] = offset if offset >= 0 else None

    async def _topic(self, name: str) -> TopicMetadata:
        topic = self._topics.get(name)
        if topic is None:
            topic = (await self._describe([name])).get(name)
        if topic is None:
            raise _Unknown(f"Kafka has no topic {name}")
        return topic

    async def _describe(self, names: Iterable[str] | None) -> dict[str, TopicMetadata]:
        client = await self._connected()
        found: dict[str, TopicMetadata] = {}
        for topic in await client.describe(None if names is None else list(names)):
            if topic.error_code in (codes.NONE, codes.LEADER_NOT_AVAILABLE):
                found[topic.name] = self._topics[topic.name] = topic
            elif topic.error_code != codes.UNKNOWN_TOPIC_OR_PARTITION:
                needs = topic_acl("Describe", topic.name)
                self._check(topic.error_code, f"topic {topic.name}", needs)
        return found

    def _check(self, error_code: int, what: str, needs: Acl) -> None:
        """Raise what an answer's error code means. `needs`: the right without which Kafka refuses
        the request.
        """
        if error_code == codes.NONE:
            return
        name = kafka_errors.for_code(error_code).__name__
        if error_code in _PASSING:
            raise _Passing(f"{what}: {name} ({error_code})")
        why = ""
        if error_code == codes.TOPIC_AUTHORIZATION_FAILED:
            principal = self._settings.security.principal or _OF_THE_QUERY
            why = f": missing ACL: {replace(needs, principal=principal)}"
        raise KafkaClientError(f"{what}: Kafka answers {name} ({error_code}){why}")

    async def _connected(self) -> BrokerConnections:
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._connections is None:
                self._connections = await connect(self._settings)
            return self._connections

    async def _retried(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        begun = clock.monotonic_ms()
        unknown_since: int | None = None
        number = 0
        while True:
            try:
                return await attempt()
            except _Unknown as error:
                failed: Exception = error
                now = clock.monotonic_ms()
                unknown_since = now if unknown_since is None else unknown_since
                if now - unknown_since >= self._gone_after_ms:
                    raise TopicGone(str(error)) from error
            except (_Passing, kafka_errors.KafkaError, OSError, TimeoutError) as error:
                failed = error
                unknown_since = None
                _refuse_final(what, error)
            wait_ms = clock.backoff_ms(number, first_ms=max(1, self._settings.retry_backoff_ms))
            if clock.monotonic_ms() - begun + wait_ms > self._patience_ms:
                raise KafkaClientError(
                    f"{what}: nothing from Kafka in {self._patience_ms} ms, last: {_text(failed)}"
                ) from failed
            await self._refresh_metadata(failed)
            await clock.pause_ms(wait_ms)
            number += 1

    async def _refresh_metadata(self, failed: Exception) -> None:
        """Forget the leaders; if no known broker answers, start from the bootstrap servers."""
        self._topics.clear()
        connections = self._connections
        if isinstance(failed, _Passing) or connections is None:
            return
        with contextlib.suppress(TimeoutError, kafka_errors.KafkaError):
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                if await connections.force_metadata_update():
                    return
        if self._connections is connections:
            self._connections = None
            with contextlib.suppress(kafka_errors.KafkaError, OSError):
                await connections.close()


def _same_topic(topic: TopicMetadata, topic_id: bytes) -> None:
    if NO_TOPIC_ID not in (topic_id, topic.topic_id) and topic_id != topic.topic_id:
        raise TopicChangedError(
            topic.name,
            f"deleted and recreated while it was read (id {topic_id.hex()}, now "
            f"{topic.topic_id.hex()}): its offsets mean other records now",
        )


def _leader(topic: TopicMetadata, topic_partition: TopicPartition) -> int:
    leader = topic.leaders.get(topic_partition.partition)
    if leader is None:
        raise _Unknown(f"Kafka has no partition {topic_partition}")
    if leader < 0:
        raise _Passing(f"{topic_partition} has no leader now")
    return leader


def _refuse_final(what: str, error: Exception) -> None:
    if isinstance(error, _FINAL) and not isinstance(error, NoTokenNow):
        raise KafkaClientError(f"{what}: {_text(error)}") from error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


SHARED: Shared[KafkaClient] = Shared()


def leased_client(
    settings: KafkaSettings, patience_ms: int
) -> contextlib.AbstractContextManager[KafkaClient]:
    """This process's client for the settings."""
    return SHARED.leased(
        (settings, patience_ms), lambda: KafkaClient(settings, patience_ms=patience_ms)
    )
