"""Finds the earliest and latest offsets of partitions by read mode, for the driver's plan.

Implements `offsets.Positions`. The earliest offset is the lowest one that any tier of the mode has;
the latest is the end of what the mode may read. The rules are those of `range_reader`, so that a
planned range can be read. This module must not know Spark or ranges.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, Protocol, Self, TypeVar

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.errors import ErrorKind
from rlm.v1 import fetch_pb2 as pb
from tiered_reads import clock, fetch_client, kafka_client
from tiered_reads.errors import ConnectorError, ServiceError
from tiered_reads.fetch_client import NO_TOPIC_PARTITION, FetchClient
from tiered_reads.kafka_client import KafkaClient, TopicGone
from tiered_reads.kafka_options import kafka_settings
from tiered_reads.stopping import Stop
from tiered_reads.values import ConnectorOptions, ReadMode, TopicPartition

_ASKED_AT_ONCE: Final = 8
"""Calls to the fetch API under way for one question; it answers per partition."""

Offsets = dict[TopicPartition, int | None]
T = TypeVar("T")


class _Source(Protocol):
    """Positions in one tier; offsets as of KafkaClient, without partitions that do not exist."""

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]: ...

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets: ...


class TieredPositions:
    """See offsets.Positions. `tail` has the newest records, `remote` (None: none) the oldest."""

    def __init__(
        self,
        options: ConnectorOptions,
        tail: _Source,
        remote: "RemotePositions | None",
        leases: ExitStack,
    ) -> None:
        self._options = options
        self._tail = tail
        self._remote = remote
        self._leases = leases

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._leases.close()

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        """Partitions by topic; None: all. ConnectorError."""
        return self._retried(lambda: self._tail.topics(names))

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The lowest offset that a tier of the mode has. ConnectorError."""
        found = self._lowest(dict.fromkeys(topic_partitions, EARLIEST_TIMESTAMP))
        return {topic_partition: offset or 0 for topic_partition, offset in found.items()}

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermark or LSO; of remote_only the remote end. ConnectorError."""
        found = self._retried(
            lambda: self._tail.offsets(dict.fromkeys(topic_partitions, LATEST_TIMESTAMP))
        )
        return {topic_partition: offset or 0 for topic_partition, offset in found.items()}

    def for_timestamps(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The earliest offset of any tier with at least that timestamp. ConnectorError.

        Timestamps before 1970 count as 1970: negative ones are special in Kafka's protocol.
        """
        return self._lowest(
            {topic_partition: max(0, at) for topic_partition, at in timestamps_ms.items()}
        )

    def _lowest(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        found = self._retried(lambda: self._tail.offsets(wanted))
        remote = self._remote
        if remote is not None:
            there = {topic_partition: wanted[topic_partition] for topic_partition in found}
            begins = found if set(there.values()) == {EARLIEST_TIMESTAMP} else self._begins(there)
            older = self._retried(lambda: remote.older(there, begins))
            for topic_partition, offset in older.items():
                known = [each for each in (found[topic_partition], offset) if each is not None]
                found[topic_partition] = min(known, default=None)
        return found

    def _begins(self, topic_partitions: Iterable[TopicPartition]) -> Offsets:
        return self._retried(
            lambda: self._tail.offsets(dict.fromkeys(topic_partitions, EARLIEST_TIMESTAMP))
        )

    def _retried(self, ask: Callable[[], T]) -> T:
        """Retries as often as Spark does, unless the attempts have taken the poll timeout."""
        begun = clock.monotonic_ms()
        for _ in range(self._options.fetch_offset_retries - 1):
            try:
                return ask()
            except ConnectorError:
                if clock.monotonic_ms() - begun >= self._options.poll_timeout_ms // 2:
                    raise  # the clients have already retried
                clock.sleep_ms(self._options.fetch_offset_retry_interval_ms)
        return ask()


def open_positions(options: ConnectorOptions) -> TieredPositions:
    """The positions of the read mode; a context manager. ConnectorError: the options cannot be
    met.
    """
    with ExitStack() as leases:
        tail, remote = _sources(options, leases)
        return TieredPositions(options, tail, remote, leases.pop_all())


def _sources(
    options: ConnectorOptions, leases: ExitStack
) -> "tuple[_Source, RemotePositions | None]":
    mode = options.read_mode
    kafka: _Source | None = None
    if options.has_kafka and mode is not ReadMode.REMOTE_ONLY:
        client = kafka_client.leased_client(kafka_settings(options.kafka), options.poll_timeout_ms)
        kafka = KafkaPositions(leases.enter_context(client), options.read_committed)
    if mode is ReadMode.KAFKA_ONLY:
        if kafka is None:
            raise ConnectorError("readMode kafka_only needs kafka.bootstrap.servers")
        return kafka, None
    if options.service is None:
        raise ConnectorError(f"readMode {mode.value} needs rlm.endpoints: the fetch API")
    service = leases.enter_context(
        fetch_client.leased_client(options.service, options.poll_timeout_ms)
    )
    if mode is ReadMode.REMOTE_ONLY:
        return RemotePositions(service, is_alone=True), None
    if kafka is None:
        return ServicePositions(service, options.read_committed), None
    return kafka, RemotePositions(service, is_alone=False)


class KafkaPositions:
    """Positions by the connector's own consumer."""

    def __init__(self, client: KafkaClient, read_committed: bool) -> None:
        self._client = client
        self._read_committed = read_committed

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        found = self._client.topics(names, Stop())
        return {name: tuple(sorted(topic.leaders)) for name, topic in found.items()}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        there = (
            self.topics(sorted({topic_partition.topic for topic_partition in wanted}))
            if wanted
            else {}
        )
        asked = {
            topic_partition: timestamp
            for topic_partition, timestamp in wanted.items()
            if topic_partition.partition in there.get(topic_partition.topic, ())
        }
        if not asked:
            return {}
        try:
            return self._client.offsets(asked, read_committed=self._read_committed, stop=Stop())
        except TopicGone as gone:
            raise ConnectorError(f"{gone}: it was deleted just now") from gone


class RemotePositions:
    """Positions of the remote tier alone: enabled topics and their segments in the store."""

    def __init__(self, service: FetchClient, *, is_alone: bool) -> None:
        self._service = service
        self._is_alone = is_alone

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        return {
            topic.topic: tuple(sorted(row.partition for row in topic.partitions))
            for topic in self._described(names)
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        return self._offsets(wanted, self._rows(wanted))

    def older(self, wanted: Mapping[TopicPartition, int], begins: Offsets) -> Offsets:
        """As `offsets`, for tiers below a Kafka log that has just been seen to begin at `begins`.

        If the reported remote tier ends below that, its service may be behind the ledger (H17).
        Then the leader's service is asked, because it confirms its answers by barriers.
        """
        rows = self._rows(wanted)
        open_ones = {
            topic_partition: wanted[topic_partition]
            for topic_partition, row in rows.items()
            if topic_partition in wanted
            and _has_data(row)
            and row.remote_next_offset < (begins.get(topic_partition) or 0)
        }
        settled = {
            topic_partition: at
            for topic_partition, at in wanted.items()
            if topic_partition not in open_ones
        }
        return self._offsets(settled, rows) | _asked(
            self._service, open_ones, remote_only=False, read_committed=True
        )

    def _rows(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, pb.TieredPartition]:
        return {
            TopicPartition(topic.topic, row.partition): row
            for topic in self._described(
                sorted({topic_partition.topic for topic_partition in wanted})
            )
            for row in topic.partitions
        }

    def _offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        rows: Mapping[TopicPartition, pb.TieredPartition],
    ) -> Offsets:
        found: Offsets = {}
        dated: dict[TopicPartition, int] = {}
        for topic_partition, timestamp in wanted.items():
            row = rows.get(topic_partition)
            if row is None:
                continue
            if timestamp < 0:
                found[topic_partition] = self._edge(row, timestamp)
            elif _has_data(row):
                dated[topic_partition] = timestamp
            else:
                found[topic_partition] = None
        return found | _asked(self._service, dated, remote_only=True, read_committed=True)

    def _edge(self, row: pb.TieredPartition, which: int) -> int | None:
        """Where the remote data begins or ends. Without any: one offset, or None where the edges
        of another tier must not be moved by it.
        """
        start = max(0, row.remote_log_start_offset)
        if _has_data(row):
            return start if which == EARLIEST_TIMESTAMP else row.remote_next_offset
        return start if self._is_alone else None

    def _described(self, names: Sequence[str] | None) -> tuple[pb.TieredTopic, ...]:
        if names is not None and not names:
            return ()
        return self._service.describe_topics(tuple(names or ()), NO_TOPIC_PARTITION, Stop())


class ServicePositions:
    """Positions over all tiers by the leader's service, for queries without Kafka's address."""

    def __init__(self, service: FetchClient, read_committed: bool) -> None:
        self._service = service
        self._read_committed = read_committed
        self._remote = RemotePositions(service, is_alone=True)

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        return self._remote.topics(names)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        return _asked(self._service, wanted, remote_only=False, read_committed=self._read_committed)


def _has_data(row: pb.TieredPartition) -> bool:
    return row.remote_next_offset > max(0, row.remote_log_start_offset)


def _asked(
    service: FetchClient,
    wanted: Mapping[TopicPartition, int],
    *,
    remote_only: bool,
    read_committed: bool,
) -> Offsets:
    """Makes one call per partition, some at once; partitions that do not exist are left out."""

    def ask(topic_partition: TopicPartition) -> Iterator[tuple[TopicPartition, int | None]]:
        try:
            offset = service.list_offset(
                topic_partition,
                wanted[topic_partition],
                remote_only=remote_only,
                read_committed=read_committed,
                stop=Stop(),
            )
        except ServiceError as error:
            if error.kind != ErrorKind.NOT_FOUND.name:
                raise
            return
        yield topic_partition, offset

    if not wanted:
        return {}
    with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(wanted)), "rlm-positions") as pool:
        answers = pool.map(lambda topic_partition: dict(ask(topic_partition)), wanted)
        return {
            topic_partition: offset
            for answer in answers
            for topic_partition, offset in answer.items()
        }
