"""The four read modes on a real cluster: a topic whose head is remote only, with all codecs and
transactions, is read like by a plain consumer; a deleted head is reported.
"""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rlm_spark.decode import COLUMNS, arrow_schema, record_batches
from rlm_spark.plan.positions import open_positions
from tests.scenarios.cluster import Cluster, Row, fresh
from tests.scenarios.mixed import Load, Mixed
from tiered_reads import fetch_client, kafka_client
from tiered_reads.range_reader import read_range
from tiered_reads.values import (
    ConnectorOptions,
    DataLoss,
    Fetched,
    OffsetRange,
    ReadMode,
    ServiceConnection,
    TopicPartition,
)

pytestmark = pytest.mark.integration

FAILOVER_MODES = (ReadMode.KAFKA_PREFERRED, ReadMode.REMOTE_PREFERRED)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for shared in (fetch_client.SHARED, kafka_client.SHARED):
        shared.close_idle()
    left = set(threading.enumerate()) - before
    assert not [one.name for one in left if one.name.startswith("rlm-")]


@pytest.fixture(scope="module")
def history(one_sandbox: Any) -> tuple[TopicPartition, Mixed, int]:
    """A topic, what was written to it, and where Kafka's own log of it begins."""
    topic = fresh("range")
    with Cluster(one_sandbox) as cluster:
        cluster.create_topic(topic)
        mixed = Load(cluster, topic, 1).run(3)
        cluster.enable(topic, "--trim", "--local-retention-bytes", "1048576")
        cluster.wait_trimmed(topic, beyond=100)
        start = cluster.wait_settled(topic)
    assert 0 < start < mixed.all_rows[-1].offset
    return TopicPartition(topic, 0), mixed, start


def options(
    cluster: Cluster, mode: ReadMode, *, read_committed: bool = True, with_kafka: bool = True
) -> ConnectorOptions:
    services = [one["grpc"] for one in cluster.sandbox.json["brokers"]]
    return ConnectorOptions(
        read_mode=mode,
        # Past the proxy: only so is the head really gone from Kafka.
        kafka={"bootstrap.servers": cluster.direct} if with_kafka else {},
        service=ServiceConnection(endpoints=tuple(services), principal="test"),
        read_committed=read_committed,
        poll_timeout_ms=60_000,
    )


def edges(given: ConnectorOptions, topic_partition: TopicPartition) -> tuple[int, int]:
    with open_positions(given) as positions:
        return positions.earliest([topic_partition])[topic_partition], positions.latest(
            [topic_partition]
        )[topic_partition]


def read(
    given: ConnectorOptions, topic_partition: TopicPartition, start: int, end: int
) -> tuple[list[tuple[Any, ...]], list[DataLoss]]:
    """(offset, timestamp ms, key, value, headers) of every record, and what was lost."""
    wanted = OffsetRange(topic_partition=topic_partition, start_offset=start, end_offset=end)
    lost: list[DataLoss] = []
    pieces = list(read_range(given, wanted, lost.append))
    batches = record_batches(
        pieces, wanted, arrow_schema(list(COLUMNS)), read_committed=given.read_committed
    )
    rows = [
        (
            row["offset"],
            int(row["timestamp"].timestamp() * 1000 + 0.5),
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"] or ()),
        )
        for batch in batches
        for row in batch.to_pylist()
    ]
    if not lost:
        assert_seamless(pieces, start, end)
    return rows, lost


def assert_seamless(pieces: list[Fetched], start: int, end: int) -> None:
    assert pieces[0].start_offset == start
    assert pieces[-1].next_offset >= end
    assert all(a.next_offset == b.start_offset for a, b in itertools.pairwise(pieces))


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.offset, row.timestamp_ms, row.key, row.value, row.headers) for row in rows]


@pytest.mark.parametrize("read_committed", [True, False])
@pytest.mark.parametrize("with_kafka", [True, False])
@pytest.mark.parametrize("mode", FAILOVER_MODES)
def test_both_tiers_as_one(
    cluster: Cluster,
    history: tuple[TopicPartition, Mixed, int],
    mode: ReadMode,
    with_kafka: bool,
    read_committed: bool,
) -> None:
    topic_partition, mixed, _ = history
    given = options(cluster, mode, read_committed=read_committed, with_kafka=with_kafka)
    start, end = edges(given, topic_partition)
    assert (start, end) == (0, cluster.log_end(topic_partition.topic))
    written = mixed.committed if read_committed else mixed.all_rows
    rows, lost = read(given, topic_partition, start, end)
    assert lost == []
    assert rows == plain(written)


def test_a_plain_consumer_reads_the_same(
    cluster: Cluster, history: tuple[TopicPartition, Mixed, int]
) -> None:
    topic_partition, mixed, log_start = history
    given = options(cluster, ReadMode.KAFKA_PREFERRED)
    start, end = log_start - 70, log_start + 70
    config: dict[str, Any] = {"isolation.level": "read_committed"}
    consumed = cluster.read_all(topic_partition.topic, start={0: start}, end={0: end}, **config)
    assert read(given, topic_partition, start, end)[0] == plain(consumed)
    assert consumed == [row for row in mixed.committed if start <= row.offset < end]


def test_every_start_around_the_border_of_the_tiers(
    cluster: Cluster, history: tuple[TopicPartition, Mixed, int]
) -> None:
    topic_partition, mixed, log_start = history
    for mode in FAILOVER_MODES:
        given = options(cluster, mode, read_committed=False)
        for start in range(log_start - 6, log_start + 6):
            rows, _ = read(given, topic_partition, start, log_start + 9)
            expected = [row for row in mixed.all_rows if start <= row.offset < log_start + 9]
            assert rows == plain(expected)


def test_remote_only_is_what_is_in_the_store(
    cluster: Cluster, history: tuple[TopicPartition, Mixed, int]
) -> None:
    topic_partition, mixed, log_start = history
    given = options(cluster, ReadMode.REMOTE_ONLY, with_kafka=False)
    start, end = edges(given, topic_partition)
    assert start == 0
    assert log_start <= end <= cluster.log_end(topic_partition.topic)
    rows, lost = read(given, topic_partition, start, end)
    assert lost == []
    assert rows == plain([row for row in mixed.committed if row.offset < end])


def test_kafka_only_says_what_it_does_not_have(
    cluster: Cluster, history: tuple[TopicPartition, Mixed, int]
) -> None:
    topic_partition, mixed, log_start = history
    given = options(cluster, ReadMode.KAFKA_ONLY)
    start, end = edges(given, topic_partition)
    assert (start, end) == (log_start, cluster.log_end(topic_partition.topic))
    rows, [loss] = read(given, topic_partition, log_start - 10, end)
    assert (loss.start_offset, loss.end_offset) == (log_start - 10, log_start)
    assert rows == plain([row for row in mixed.committed if row.offset >= log_start])


def test_a_kafka_that_is_reached_through_the_proxy_has_both_tiers(
    cluster: Cluster, history: tuple[TopicPartition, Mixed, int]
) -> None:
    topic_partition, mixed, _ = history
    given = replace(
        options(cluster, ReadMode.KAFKA_ONLY), kafka={"bootstrap.servers": cluster.bootstrap}
    )
    start, end = edges(given, topic_partition)
    rows, lost = read(given, topic_partition, start, end)
    assert (start, lost) == (0, [])
    assert rows == plain(mixed.committed)


@pytest.mark.parametrize("mode", [*FAILOVER_MODES, ReadMode.REMOTE_ONLY])
def test_offsets_of_timestamps(
    cluster: Cluster, history: tuple[TopicPartition, Mixed, int], mode: ReadMode
) -> None:
    topic_partition, mixed, _ = history
    rows = mixed.all_rows
    with open_positions(options(cluster, mode)) as positions:
        for row in (rows[0], rows[len(rows) // 3]):
            assert positions.for_timestamps({topic_partition: row.timestamp_ms}) == {
                topic_partition: row.offset
            }
        beyond = rows[-1].timestamp_ms + 1
        assert positions.for_timestamps({topic_partition: beyond}) == {topic_partition: None}
        assert positions.topics([topic_partition.topic, "unknown"]) == {topic_partition.topic: (0,)}
