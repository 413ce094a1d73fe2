"""Reads one range of one partition as pieces of whole record batches, by the query's read mode.

There are two tier readers of a partition: one for Kafka's own log, one for the fetch API. Both
return whole batches; the pieces state the exact offsets that count, and a reader raises Absent for
offsets that its tier does not have. The read mode orders them, and `failover` decides when the next
one is read. A thread fetches ahead while the caller decodes. This module must not know records or
Spark.
"""

import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.batches import cut_batches
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, ErrorKind
from rlm.v1 import fetch_pb2 as pb
from tiered_reads import clock, fetch_client, kafka_client
from tiered_reads.ahead import Ahead
from tiered_reads.errors import (
    ConnectorError,
    DecodeError,
    KafkaClientError,
    ServiceError,
    TopicChangedError,
)
from tiered_reads.failover import SETTLE_MS, Absent, Order, PieceIterator, TierReader
from tiered_reads.fetch_client import (
    MESSAGE_BYTES,
    Answer,
    BelowLogStart,
    BeyondLogEnd,
    FetchAsk,
    FetchClient,
)
from tiered_reads.kafka_client import KafkaClient, TopicGone
from tiered_reads.kafka_options import kafka_settings
from tiered_reads.kafka_requests import NO_TOPIC_ID, FetchedPartition
from tiered_reads.stopping import Stop
from tiered_reads.values import (
    ConnectorOptions,
    DataLoss,
    Fetched,
    OffsetRange,
    ReadMode,
    TopicPartition,
)

_BASE_OFFSET = struct.Struct(">q")
REMOTE = "remote tier"
_MOST_SURPRISES = 5
"""Out-of-range answers in a row that the log's bounds do not explain."""


class Identity:
    """The topic's id, which must be the same in every tier for the whole range (H6)."""

    def __init__(self, topic: str, planned: bytes | None = None) -> None:
        self._topic = topic
        self._topic_id = planned or NO_TOPIC_ID
        self._from = "the plan"

    @property
    def topic_id(self) -> bytes | None:
        """The id that a tier reported; None before the first report."""
        return None if self._topic_id == NO_TOPIC_ID else self._topic_id

    def saw(self, topic_id: bytes, where: str) -> None:
        """TopicChangedError where another id was seen before."""
        if topic_id == NO_TOPIC_ID:
            return
        if self._topic_id == NO_TOPIC_ID:
            self._topic_id, self._from = topic_id, where
        elif topic_id != self._topic_id:
            raise TopicChangedError(
                self._topic,
                f"{self._from} knows it by id {self._topic_id.hex()}, {where} by "
                f"{topic_id.hex()}: it was deleted and recreated",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The read, as both tier readers need it. `max_bytes`: of one message of a service."""

    topic_partition: TopicPartition
    identity: Identity
    read_committed: bool
    poll_timeout_ms: int
    max_bytes: int = MESSAGE_BYTES


class KafkaReader:
    """Reads Kafka's own log with the connector's consumer."""

    name = "Kafka"

    def __init__(self, client: KafkaClient, reading: Reading) -> None:
        self._client = client
        self._reading = reading

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """See TierReader. KafkaClientError: also where nothing comes for the poll timeout, which
        does not prove a loss (Spark's KafkaDataConsumer times out there). TopicChangedError.
        DecodeError: the bytes are not batches.
        """
        try:
            yield from self._read(start_offset, end_offset, stop)
        except TopicGone as gone:
            raise Absent(str(gone)) from gone

    def _read(self, position: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        reading = self._reading
        topic_id = self._client.topic(reading.topic_partition.topic, stop).topic_id
        reading.identity.saw(topic_id, "Kafka")
        idle_since_ms = clock.monotonic_ms()
        surprises = 0
        while position < end_offset:
            answer = self._client.fetch(
                reading.topic_partition,
                topic_id,
                position,
                read_committed=reading.read_committed,
                stop=stop,
            )
            if answer is None:
                self._explain_out_of_range(position, stop)
                surprises += 1
                if surprises > _MOST_SURPRISES:
                    raise Absent(f"offset {position} is out of range", is_certain=False)
                continue
            piece = cut(answer, reading.topic_partition, position, end_offset)
            if piece is not None:
                yield piece
                position, surprises = piece.next_offset, 0
                idle_since_ms = clock.monotonic_ms()
            elif clock.monotonic_ms() - idle_since_ms >= reading.poll_timeout_ms:
                raise KafkaClientError(
                    f"{reading.topic_partition}: nothing came at offset {position} in "
                    f"{reading.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs), its log ends at "
                    f"{_end_of(answer, reading.read_committed)}"
                )
            else:
                stop.wait(1)

    def _explain_out_of_range(self, position: int, stop: Stop) -> None:
        """Raises Absent with the log's bounds; returns where the offset is in range by now."""
        topic_partition = self._reading.topic_partition
        earliest = self._offset(EARLIEST_TIMESTAMP, stop)
        if position < earliest:
            raise Absent(f"its log of {topic_partition} begins at {earliest}", next_offset=earliest)
        latest = self._offset(LATEST_TIMESTAMP, stop)
        if position > latest:
            raise Absent(
                f"its log of {topic_partition} ends at {latest}, below the offset asked for: it "
                "was cut (unclean leader election?)",
                is_final=True,
            )

    def _offset(self, which: int, stop: Stop) -> int:
        topic_partition = self._reading.topic_partition
        found = self._client.offsets({topic_partition: which}, read_committed=False, stop=stop)
        return found[topic_partition] or 0


class ServiceReader:
    """Reads the fetch API: the remote tier alone, or (`remote_only` False) all tiers of the leader.

    `is_authoritative`: an offset that this reader does not have is in no tier. A service whose view
    of the ledger is behind may not know the newest segments, or the topic, yet.
    """

    def __init__(
        self,
        client: FetchClient,
        reading: Reading,
        topic_id: bytes | None,
        *,
        remote_only: bool,
        is_authoritative: bool,
    ) -> None:
        self.name = REMOTE if remote_only else "fetch API"
        self._client = client
        self._reading = reading
        self._topic_id = topic_id
        self._remote_only = remote_only
        self._is_authoritative = is_authoritative

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """See TierReader. ServiceError: also where nothing comes for the poll timeout."""
        position, idle_since_ms, waits = start_offset, clock.monotonic_ms(), 0
        while position < end_offset:
            for piece in self._stream(position, end_offset, stop):
                yield piece
                position, idle_since_ms, waits = piece.next_offset, clock.monotonic_ms(), 0
            if position >= end_offset:
                return
            if self._remote_only:
                raise Absent(f"ends at {position} as its service knows it", is_certain=False)
            if clock.monotonic_ms() - idle_since_ms >= self._reading.poll_timeout_ms:
                raise ServiceError(
                    ErrorKind.UNAVAILABLE.name,
                    f"{self._reading.topic_partition}: nothing came at offset {position} in "
                    f"{self._reading.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)",
                )
            stop.wait(clock.backoff_ms(waits, most_ms=1_000))
            waits += 1

    def _stream(self, position: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        topic_partition = self._reading.topic_partition
        wanted = OffsetRange(
            topic_partition=topic_partition, start_offset=position, end_offset=end_offset
        )
        ask = FetchAsk(
            wanted=wanted,
            remote_only=self._remote_only,
            read_committed=self._reading.read_committed,
            topic_id=self._topic_id or self._reading.identity.topic_id,
            max_bytes=self._reading.max_bytes,
        )
        try:
            for answer in self._client.fetch(ask, stop):
                yield from self._before_gap(answer, end_offset)
        except BelowLogStart as below:
            raise Absent(
                below.what, next_offset=below.log_start_offset, is_final=not self._remote_only
            ) from below
        except BeyondLogEnd:
            return
        except ServiceError as error:
            if error.kind != ErrorKind.NOT_FOUND.name:
                raise
            raise Absent(error.reason, is_certain=self._is_authoritative) from error

    def _before_gap(self, answer: Answer, end_offset: int) -> Iterator[Fetched]:
        """The answer up to its first missing offset; raises Absent there."""
        piece = answer.piece
        for start, end in sorted(answer.missing):
            if end <= piece.start_offset or start >= min(end_offset, piece.next_offset):
                continue
            if start > piece.start_offset:
                batches = _below(piece, start, self._reading.topic_partition)
                yield replace(piece, batches=batches, next_offset=start)
            raise Absent(
                f"it does not have offsets [{start}, {end})",
                next_offset=end,
                is_certain=self._is_authoritative,
                is_final=not self._remote_only,
            )
        yield piece


class NotTieredReader:
    """The reader of the remote tier of a topic that is not tiered."""

    name = REMOTE

    def __init__(self, *, is_authoritative: bool) -> None:
        self._is_authoritative = is_authoritative

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """Always raises Absent."""
        raise Absent("the topic is not enabled for tiering", is_certain=self._is_authoritative)


def cut(
    answer: FetchedPartition, topic_partition: TopicPartition, position: int, end_offset: int
) -> Fetched | None:
    """The whole batches of a broker's answer that belong to [position, end_offset).

    None where the answer has no such batch and does not prove that there is none.
    """
    records = answer.records
    try:
        start, end, next_offset = cut_batches(records, position, len(records), True, end_offset)
    except Corrupt as error:
        raise DecodeError(
            topic_partition.topic, topic_partition.partition, position, str(error)
        ) from error
    if len(records) - end >= _BASE_OFFSET.size:
        (base_offset,) = _BASE_OFFSET.unpack_from(records, end)
        if base_offset >= end_offset:
            next_offset = max(next_offset, end_offset)
    if next_offset <= position:
        return None
    is_whole = start == 0 and end == len(records)
    return Fetched(
        batches=records if is_whole else records[start:end],
        start_offset=position,
        next_offset=next_offset,
        aborted=answer.aborted,
    )


def _below(piece: Fetched, offset: int, topic_partition: TopicPartition) -> ByteBuffer:
    """The piece's batches that begin below an offset."""
    batches = piece.batches
    try:
        start, end, _ = cut_batches(batches, piece.start_offset, len(batches), True, offset)
    except Corrupt as error:
        raise DecodeError(
            topic_partition.topic, topic_partition.partition, piece.start_offset, str(error)
        ) from error
    return batches[start:end]


def _end_of(answer: FetchedPartition, read_committed: bool) -> int:
    return answer.last_stable_offset if read_committed else answer.high_watermark


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
    identity = Identity(wanted.topic_partition.topic, topic_id)
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
        topic_partition=wanted.topic_partition,
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
    topic_partition = reading.topic_partition
    topics = service.describe_topics((topic_partition.topic,), topic_partition, stop)
    if not topics:
        return NotTieredReader(is_authoritative=is_authoritative), 0, None
    topic_id = topics[0].topic_id
    reading.identity.saw(topic_id, "the fetch API")
    reader = ServiceReader(
        service, reading, topic_id, remote_only=True, is_authoritative=is_authoritative
    )
    return reader, _remote_end(topics[0], topic_partition.partition), topic_id


def _remote_end(topic: pb.TieredTopic, partition: int) -> int:
    found = (row.remote_next_offset for row in topic.partitions if row.partition == partition)
    return max(0, next(found, 0))
