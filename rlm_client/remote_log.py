"""The remote log of partitions as the fetch API gives it: bounds, offsets, pieces of batches.

With stores, pieces come from there as far as services list segments, and all else as without them.
Calls block; the fetcher makes them in threads. What is read for certain, and when an offset counts
as lost, is decided by `tiered_reads.failover`. This module must not know aiokafka.
"""

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP
from kip405.errors import ErrorKind
from rlm_client.store.opened import OpenStores
from rlm_client.store.reader import StoreReader
from tiered_reads import clock
from tiered_reads.errors import ServiceError
from tiered_reads.failover import SETTLE_MS, Absent, Order, PieceIterator, TierReader
from tiered_reads.fetch_client import FetchClient
from tiered_reads.range_reader import Identity, NotTieredReader, Reading, ServiceReader
from tiered_reads.stopping import Stop
from tiered_reads.values import (
    DataLoss,
    Fetched,
    OffsetRange,
    TopicPartition,
)

Items = Generator[Fetched | DataLoss, None, None]

PATIENCE_MS = 5_000
"""How long a thread goes on with calls that fail; then it is free for other partitions."""
QUESTION_LIMIT_MS = 10_000
"""How long a service may take for bounds or an offset; then another one is asked."""
_ANSWER_LIMIT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBounds:
    """Where the remote log of a partition begins and ends, as one service knows it."""

    topic_id: bytes
    start_offset: int
    end_offset: int


def range_of(topic_partition: Any, start_offset: int, end_offset: int) -> OffsetRange:
    """A range of a partition, whoever's type names that."""
    return OffsetRange(
        topic_partition=TopicPartition(topic_partition.topic, topic_partition.partition),
        start_offset=start_offset,
        end_offset=end_offset,
    )


class RemoteLog(Protocol):
    """What the consumer asks of the remote tier. Thread-safe. ConnectorError, Stopped."""

    def bounds(self, topic: str, stop: Stop) -> dict[int, RemoteBounds] | None:
        """By partition, without those that have no remote data; None: the topic is not tiered."""

    def preferred(self, wanted: OffsetRange, topic_id: bytes, stop: Stop) -> Items:
        """Pieces from the remote tier alone; they end where it does not have the next offset."""

    def proven(self, wanted: OffsetRange, topic_id: bytes | None, stop: Stop) -> Items:
        """Pieces of a range that Kafka does not have (any more), and its losses: what the remote
        tier denies, the leader's service decides. `topic_id` None: the topic is not tiered.
        """

    def alone(self, wanted: OffsetRange, topic_id: bytes, stop: Stop) -> Items:
        """Pieces of a range of the remote tier, and its losses: what it denies for SETTLE_MS."""

    def dated_offset(
        self, topic_partition: TopicPartition, timestamp: int, *, remote_only: bool, stop: Stop
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after a timestamp (ms), or of -1 (latest)
        or -2 (earliest); offset -1 where there is none. None: the topic is not tiered.
        """

    def close(self) -> None:
        """End every call."""


class ServiceRemoteLog:
    """The remote log by the fetch API of services, and `stores` where given; closes both."""

    def __init__(
        self,
        client: FetchClient,
        *,
        read_committed: bool,
        max_bytes: int,
        settle_ms: int = SETTLE_MS,
        stores: OpenStores | None = None,
    ) -> None:
        self._stores = stores
        self._client = client
        self._read_committed = read_committed
        self._max_bytes = max_bytes
        self._settle_ms = settle_ms

    def close(self) -> None:
        """See RemoteLog."""
        if self._stores is not None:
            self._stores.close()
        self._client.close()

    def bounds(self, topic: str, stop: Stop) -> dict[int, RemoteBounds] | None:
        """See RemoteLog."""
        found = self._client.describe_topics((topic,), TopicPartition(topic, 0), stop)
        if not found:
            return None
        return {
            row.partition: RemoteBounds(
                topic_id=found[0].topic_id,
                start_offset=max(0, row.remote_log_start_offset),
                end_offset=row.remote_next_offset,
            )
            for row in found[0].partitions
            if row.remote_next_offset >= 0
        }

    def preferred(self, wanted: OffsetRange, topic_id: bytes, stop: Stop) -> Items:
        """See RemoteLog."""
        reader = self._remote_reader(wanted, topic_id)
        with contextlib.suppress(Absent):
            yield from reader.read(wanted.start_offset, wanted.end_offset, stop)

    def proven(self, wanted: OffsetRange, topic_id: bytes | None, stop: Stop) -> Items:
        """See RemoteLog."""
        remote: TierReader = NotTieredReader(is_authoritative=False)
        if topic_id is not None:
            remote = self._remote_reader(wanted, topic_id)
        leader: TierReader = self._service_reader(
            self._reading(wanted, topic_id), topic_id, remote_only=False, is_authoritative=True
        )
        if topic_id is not None:
            leader = DescribedTopicReader(leader, wanted.topic_partition)
        order = Order(readers=(remote,), authoritative=leader, settle_ms=self._settle_ms)
        yield from PieceIterator(wanted, order, stop)

    def alone(self, wanted: OffsetRange, topic_id: bytes, stop: Stop) -> Items:
        """See RemoteLog."""
        remote = self._remote_reader(wanted, topic_id)
        order = Order(
            readers=(SettledReader(remote, self._settle_ms),), settle_ms=2 * self._settle_ms
        )
        yield from PieceIterator(wanted, order, stop)

    def dated_offset(
        self, topic_partition: TopicPartition, timestamp: int, *, remote_only: bool, stop: Stop
    ) -> tuple[int, int] | None:
        """See RemoteLog."""
        try:
            found = self._client.list_dated_offset(
                topic_partition,
                timestamp,
                remote_only=remote_only,
                read_committed=self._read_committed and timestamp != EARLIEST_TIMESTAMP,
                stop=stop,
            )
        except ServiceError as error:
            if error.kind != ErrorKind.NOT_FOUND.name:
                raise
            return None
        return (-1, -1) if found is None else found

    def _remote_reader(self, wanted: OffsetRange, topic_id: bytes) -> TierReader:
        reading = self._reading(wanted, topic_id)
        service = self._service_reader(reading, topic_id, remote_only=True)
        if self._stores is None:
            return service
        return StoreReader(self._client, self._stores, reading, topic_id, service)

    def _reading(self, wanted: OffsetRange, topic_id: bytes | None) -> Reading:
        return Reading(
            topic_partition=wanted.topic_partition,
            identity=Identity(wanted.topic_partition.topic, topic_id),
            read_committed=self._read_committed,
            poll_timeout_ms=_ANSWER_LIMIT_MS,
            max_bytes=self._max_bytes,
        )

    def _service_reader(
        self,
        reading: Reading,
        topic_id: bytes | None,
        *,
        remote_only: bool,
        is_authoritative: bool = False,
    ) -> ServiceReader:
        return ServiceReader(
            self._client,
            reading,
            topic_id,
            remote_only=remote_only,
            is_authoritative=is_authoritative,
        )


class DescribedTopicReader:
    """Raises an error where a service does not know the id by which a topic was described: this
    proves no loss. The topic was disabled meanwhile, or the caller may not see it any more.
    """

    def __init__(self, reader: TierReader, topic_partition: TopicPartition) -> None:
        self.name = reader.name
        self._reader = reader
        self._topic_partition = topic_partition

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """See TierReader. ServiceError, which may pass: the topic is to be described again."""
        try:
            yield from self._reader.read(start_offset, end_offset, stop)
        except Absent as absent:
            if not isinstance(absent.__cause__, ServiceError):
                raise
            raise ServiceError(
                ErrorKind.UNAVAILABLE.name,
                f"{self._topic_partition}: {absent.reason}, by which it was described: it was "
                "disabled or deleted since, or this caller has lost the right to describe it",
            ) from absent


class SettledReader:
    """Makes it certain that a tier lacks an offset, once it has said for `settle_ms` that it has
    later ones: its service's view of the ledger is behind by less.
    """

    def __init__(self, reader: TierReader, settle_ms: int) -> None:
        self.name = reader.name
        self._reader = reader
        self._settle_ms = settle_ms
        self._denied: tuple[int, int] | None = None

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """See TierReader."""
        position = start_offset
        try:
            for piece in self._reader.read(start_offset, end_offset, stop):
                yield piece
                position = piece.next_offset
        except Absent as absent:
            if absent.is_certain or absent.next_offset is None:
                raise
            now_ms = clock.monotonic_ms()
            if self._denied is None or self._denied[0] != position:
                self._denied = (position, now_ms)
            is_settled = now_ms - self._denied[1] >= self._settle_ms
            raise Absent(
                absent.reason, next_offset=absent.next_offset, is_certain=is_settled
            ) from absent
