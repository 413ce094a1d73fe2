"""Reads one range of one partition as pieces of whole record batches, by the query's read mode.

A thread fetches ahead while the caller decodes. This module chooses the tier readers of a read
mode; `failover` decides when the next one is read. It must not know records or Spark.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

from rlm.v1 import fetch_pb2 as pb
from rlm_spark.errors import ConnectorError
from rlm_spark.stopping import Stop
from rlm_spark.tiers import fetch_client, kafka_client
from rlm_spark.tiers.ahead import Ahead
from rlm_spark.tiers.failover import SETTLE_MS, Order, PieceIterator, TierReader
from rlm_spark.tiers.fetch_client import FetchClient
from rlm_spark.tiers.kafka_options import kafka_settings
from rlm_spark.tiers.readers import (
    REMOTE,
    Identity,
    KafkaReader,
    NotTieredReader,
    Reading,
    ServiceReader,
)
from rlm_spark.values import ConnectorOptions, DataLoss, Fetched, OffsetRange, ReadMode

_LOSS_BYTES = 0


def read_range(
    options: ConnectorOptions,
    wanted: OffsetRange,
    on_loss: Callable[[DataLoss], None],
    *,
    topic_id: bytes | None = None,
    stopped_by: Stop | None = None,
) -> Generator[Fetched, None, None]:
    """Pieces of `wanted` in offset order; no two of them overlap (see Fetched).

    `topic_id`: the topic that the offsets belong to, where it is known (H6: TopicChangedError).
    `on_loss` is called in the caller's thread, between the pieces around the loss. When it returns,
    reading continues after the loss. Raises ConnectorError, and what `on_loss` raises. Closing the
    generator ends the fetching thread and its calls. `stopped_by` does the same from any thread;
    the pieces then end as if there were no more.
    """
    if wanted.size <= 0:
        return
    stop = Stop()
    identity = Identity(wanted.place.topic, topic_id)
    with ExitStack() as open_now:
        if stopped_by is not None:
            open_now.enter_context(stopped_by.running(stop.set))
        ahead = Ahead(lambda: _items(options, wanted, identity, stop), stop, _size_of)
        for item in open_now.enter_context(ahead):
            if isinstance(item, DataLoss):
                on_loss(item)
            else:
                yield item


def _size_of(item: Fetched | DataLoss) -> int:
    return len(item.batches) if isinstance(item, Fetched) else _LOSS_BYTES


def _items(
    options: ConnectorOptions, wanted: OffsetRange, identity: Identity, stop: Stop
) -> Generator[Fetched | DataLoss, None, None]:
    with ExitStack() as leases:
        reading = _reading(options, wanted, identity)
        yield from PieceIterator(wanted, _order(options, reading, leases, stop), stop)


def _reading(options: ConnectorOptions, wanted: OffsetRange, identity: Identity) -> Reading:
    return Reading(
        place=wanted.place,
        identity=identity,
        read_committed=options.read_committed,
        poll_timeout_ms=options.poll_timeout_ms,
    )


def _order(options: ConnectorOptions, reading: Reading, leases: ExitStack, stop: Stop) -> Order:
    mode = options.read_mode
    kafka: TierReader | None = None
    if options.has_kafka and mode is not ReadMode.REMOTE_ONLY:
        settings = kafka_settings(options.kafka)
        client = kafka_client.leased_client(settings, options.poll_timeout_ms)
        kafka = KafkaReader(leases.enter_context(client), reading)
    if mode is ReadMode.KAFKA_ONLY:
        if kafka is None:
            raise ConnectorError("readMode kafka_only needs kafka.bootstrap.servers")
        return Order(readers=(kafka,))
    if options.service is None:
        raise ConnectorError(f"readMode {mode.value} needs rlm.endpoints: the fetch API")
    service = leases.enter_context(
        fetch_client.leased_client(options.service, options.poll_timeout_ms)
    )
    settle_ms = min(SETTLE_MS, options.poll_timeout_ms)
    if mode is ReadMode.KAFKA_PREFERRED and kafka is not None:
        leader = ServiceReader(service, reading, None, remote_only=False, is_authoritative=True)
        readers = (kafka, LazyRemoteReader(service, reading))
        return Order(readers=readers, authoritative=leader, settle_ms=settle_ms)
    is_alone = mode is ReadMode.REMOTE_ONLY
    remote, remote_end, topic_id = _remote_reader(service, reading, stop, is_authoritative=is_alone)
    if is_alone:
        return Order(readers=(remote,), settle_ms=options.poll_timeout_ms)
    leader = ServiceReader(service, reading, topic_id, remote_only=False, is_authoritative=True)
    return Order(
        readers=(remote, kafka or leader),
        authoritative=leader,
        remote_end=remote_end,
        settle_ms=settle_ms,
    )


class LazyRemoteReader:
    """Reads the remote tier; asks a service about the topic only when the tier is first read."""

    name = REMOTE

    def __init__(self, service: FetchClient, reading: Reading) -> None:
        self._service = service
        self._reading = reading
        self._reader: TierReader | None = None

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """See TierReader."""
        if self._reader is None:
            self._reader, _, _ = _remote_reader(
                self._service, self._reading, stop, is_authoritative=False
            )
        yield from self._reader.read(start_offset, end_offset, stop)


def _remote_reader(
    service: FetchClient, reading: Reading, stop: Stop, *, is_authoritative: bool
) -> tuple[TierReader, int, bytes | None]:
    """The reader of the partition's remote tier, the tier's present end, and the topic's id."""
    place = reading.place
    topics = service.describe_topics((place.topic,), place, stop)
    if not topics:
        return NotTieredReader(is_authoritative=is_authoritative), 0, None
    topic_id = topics[0].topic_id
    reading.identity.saw(topic_id, "the fetch API")
    reader = ServiceReader(
        service, reading, topic_id, remote_only=True, is_authoritative=is_authoritative
    )
    return reader, _remote_end(topics[0], place.partition), topic_id


def _remote_end(topic: pb.TieredTopic, partition: int) -> int:
    found = (row.remote_next_offset for row in topic.partitions if row.partition == partition)
    return max(0, next(found, 0))
