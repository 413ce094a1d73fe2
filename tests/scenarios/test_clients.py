"""Trimmed records of every kind, read by clients that know nothing of us, and all their positions.

One broker. What the broker itself no longer has is shown by its directory and its direct listener.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kafka_protocol.apis import API_VERSIONS, FETCH, LIST_OFFSETS, PRODUCE
from rlm_sandbox.sandbox import Sandbox
from tests.kip405.batch_builder import batch
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import LONG_ON_SERVERS, Cluster, Row, assert_same, fresh, row_of
from tests.scenarios.java import java_read
from tests.scenarios.mixed import STEP_MS, Load, Mixed, printed
from tests.scenarios.raw import (
    PATIENT_MS,
    connection,
    fetch,
    list_offset,
    proxy_of,
    topic_id,
)
from tests.scenarios.readers import aiokafka_read

pytestmark = pytest.mark.integration

OFFSET_OUT_OF_RANGE = 1
_PARTITIONS = 2
_SETTLED_READS = 3
_LIMIT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A topic whose oldest records only the remote store has, when nothing moves any more."""

    cluster: Cluster
    topic: str
    mixed: Mixed
    log_start: dict[int, int]
    log_end: dict[int, int]
    remote_end: dict[int, int]
    segments_before: set[str]


def partition_dir(cluster: Cluster, topic: str, partition: int = 0) -> Path:
    [found] = [path / f"{topic}-{partition}" for path in cluster.sandbox.log_dirs()]
    return found


def segment_files(cluster: Cluster, topic: str, partition: int = 0) -> set[str]:
    """`ls` of the partition directory."""
    return {path.name for path in partition_dir(cluster, topic, partition).glob("*.log")}


@pytest.fixture(scope="module")
def archive(one_broker: Sandbox) -> Iterator[Archive]:
    cluster = Cluster(one_broker)
    topic = fresh("mixed")
    cluster.create_topic(topic, partitions=_PARTITIONS)
    mixed = Load(cluster, topic, _PARTITIONS).run(mib=12)
    before = segment_files(cluster, topic)
    cluster.enable(topic)
    settled = _settle(cluster, topic)
    yield Archive(
        cluster=cluster,
        topic=topic,
        mixed=mixed,
        log_start={p: row["local_log_start_offset"] for p, row in settled.items()},
        log_end={p: cluster.log_end(topic, p) for p in range(_PARTITIONS)},
        remote_end={p: row["remote_next_offset"] for p, row in settled.items()},
        segments_before=before,
    )
    cluster.delete_topics()
    cluster.close()


def _settle(cluster: Cluster, topic: str) -> dict[int, dict[str, Any]]:
    """Wait until everything closed is remote and trimming has come to rest."""
    seen: list[dict[int, dict[str, Any]]] = []

    def settled() -> bool:
        rows = cluster.rlm_json("status", topic)["partitions"]
        seen.append({row.get("partition", 0): row for row in rows})
        last = seen[-_SETTLED_READS:]
        starts: list[dict[int, Any]] = [{p: cluster.log_start(topic, p) for p in seen[-1]}]
        starts += [{p: row.get("local_log_start_offset") for p, row in one.items()} for one in last]
        return (
            len(last) == _SETTLED_READS
            and all(one == starts[0] for one in starts)
            and all(start for start in starts[0].values())
            and all("all closed segments" in row["copy_reason"] for row in rows)
            and all(row["trim_reason"].startswith("all is within") for row in rows)
        )

    cluster.wait_for(settled, f"{topic} copied and trimmed")
    return seen[-1]


def test_the_old_segments_are_gone_from_the_brokers_directory(archive: Archive) -> None:
    first = "00000000000000000000.log"
    assert first in archive.segments_before
    for partition, start in archive.log_start.items():
        assert start > 0
        _wait_gone(archive, partition, start)


def _wait_gone(archive: Archive, partition: int, start: int) -> None:
    def gone() -> bool:
        files = segment_files(archive.cluster, archive.topic, partition)
        return min(int(Path(name).stem) for name in files) >= start

    archive.cluster.wait_for(gone, f"files of partition {partition} below {start} deleted")


@pytest.mark.parametrize("one_broker", LONG_ON_SERVERS, indirect=True)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_librdkafka_reads_every_record_once(archive: Archive, isolation: str) -> None:
    rows = archive.mixed.committed if isolation == "read_committed" else archive.mixed.all_rows
    config: dict[str, Any] = {"isolation.level": isolation}
    read = archive.cluster.read_all(archive.topic, **config)
    assert_same(read, rows)
    assert any(row.offset < archive.log_start[row.partition] for row in archive.mixed.all_rows)
    assert {p for p, _ in archive.mixed.aborted} == set(range(_PARTITIONS))


@pytest.mark.parametrize("one_broker", LONG_ON_SERVERS, indirect=True)
async def test_aiokafka_reads_every_record_once(archive: Archive) -> None:
    for isolation, rows in (
        ("read_committed", archive.mixed.committed),
        ("read_uncommitted", archive.mixed.all_rows),
    ):
        read = await aiokafka_read(archive.cluster, archive.topic, archive.log_end, isolation)
        assert_same(read, rows)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_a_log_that_ends_with_a_marker_is_read_to_its_end(
    one: Cluster, isolation: str
) -> None:
    """Brokers write markers after they answered the commit, perhaps behind what was sent since: a
    client is given nothing of them, and its position moves on all the same.
    """
    topic = fresh("marked")
    one.create_topic(topic)
    one.enable(topic)
    rows = await asyncio.to_thread(one.fill, topic, mib=3)
    rows += await asyncio.to_thread(_committed, one, topic)
    end = rows[-1].offset + 2
    await asyncio.to_thread(one.wait_for, lambda: one.log_end(topic) == end, "the marker")
    await asyncio.to_thread(one.wait_trimmed, topic)
    assert_same(await aiokafka_read(one, topic, {0: end}, isolation), rows)
    config: dict[str, Any] = {"isolation.level": isolation}
    assert_same(await asyncio.to_thread(one.read_all, topic, **config), rows)


def _committed(cluster: Cluster, topic: str) -> list[Row]:
    """Ten records of one transaction, which is the last thing in the log."""
    rows: list[Row] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        rows.append(row_of(message))

    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(_LIMIT_S)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(topic, b"value-%d" % number, partition=0, on_delivery=delivered)
    producer.commit_transaction(_LIMIT_S)
    return rows


@pytest.mark.parametrize("one_broker", LONG_ON_SERVERS, indirect=True)
def test_java_reads_every_record_once(archive: Archive) -> None:
    def read(partition: int) -> list[tuple[int, int, bytes]]:
        count = sum(row.partition == partition for row in archive.mixed.committed)
        return java_read(archive.cluster, archive.topic, count, partition=partition)[0]

    with ThreadPoolExecutor(_PARTITIONS) as threads:
        found = [row for rows in threads.map(read, range(_PARTITIONS)) for row in rows]
    assert found == printed(archive.mixed.committed)


async def _versions(client: RawClient, api_key: int) -> range:
    answer = await client.call(API_VERSIONS, 0, {})
    [found] = [row for row in answer["api_keys"] if row["api_key"] == api_key]
    return range(found["min_version"], found["max_version"] + 1)


async def test_offset_0_is_out_of_range_past_the_proxy_and_data_through_it(
    archive: Archive,
) -> None:
    cluster, topic = archive.cluster, archive.topic
    async with connection(proxy_of(cluster, 1)) as proxy, connection(cluster.direct) as direct:
        id_of_topic = await topic_id(direct, topic)
        for version in await _versions(proxy, FETCH.key):
            beside = await fetch(direct, version, topic, 0, id_of_topic=id_of_topic)
            assert beside["error_code"] == OFFSET_OUT_OF_RANGE, version
            through = await fetch(
                proxy, version, topic, 0, id_of_topic=id_of_topic, max_wait_ms=PATIENT_MS
            )
            assert through["error_code"] == 0, version
            assert through["high_watermark"] == archive.log_end[0], version
            assert int.from_bytes(through["records"][:8], "big") == 0, version


def _expected_positions(archive: Archive, version: int) -> dict[int, int]:
    """Question -> offset of partition 0, as far as this version of ListOffsets can ask it."""
    rows = [row for row in archive.mixed.all_rows if row.partition == 0]
    first_remote, in_remote = rows[0].timestamp_ms, rows[len(rows) // 3].timestamp_ms
    local = next(row for row in rows if row.offset >= archive.remote_end[0])
    known = {-1: archive.log_end[0], -2: 0}
    known |= {row: _offset_at(rows, row) for row in (0, first_remote, in_remote, in_remote - 1)}
    known |= {local.timestamp_ms: local.offset, rows[-1].timestamp_ms + STEP_MS: -1}
    if version >= 7:
        known[-3] = rows[-1].offset
    if version >= 8:
        known[-4] = archive.log_start[0]
    if version >= 9:
        known[-5] = archive.remote_end[0] - 1
    if version >= 11:
        known[-6] = archive.remote_end[0]
    return known


def _offset_at(rows: list[Row], timestamp_ms: int) -> int:
    return next(row.offset for row in rows if row.timestamp_ms >= timestamp_ms)


async def test_list_offsets_in_every_version_knows_both_tiers(archive: Archive) -> None:
    async with connection(proxy_of(archive.cluster, 1)) as client:
        versions = await _versions(client, LIST_OFFSETS.key)
        assert 11 in versions
        for version in versions:
            for asked, offset in _expected_positions(archive, version).items():
                answer = await list_offset(client, version, archive.topic, asked)
                assert (answer["error_code"], answer["offset"]) == (0, offset), (version, asked)


@pytest.mark.parametrize("in_full", [False, pytest.param(True, marks=pytest.mark.long)])
def test_javas_get_offset_shell_knows_both_tiers(archive: Archive, in_full: bool) -> None:
    expected = _expected_positions(archive, 11)

    def shell(asked: int) -> int:
        done = archive.cluster.sandbox.dist.run_tool(
            "org.apache.kafka.tools.GetOffsetShell",
            *("--bootstrap-server", archive.cluster.bootstrap),
            *("--topic-partitions", f"{archive.topic}:0", "--time", str(asked)),
        )
        name, _, rest = done.stdout.strip().partition(":")
        assert name == archive.topic, done.stdout + done.stderr
        return int(rest.partition(":")[2])

    asked = [-2, -4, -5, max(one for one in expected if one > 0 and expected[one] >= 0)]
    asked += [-1, -3, min(one for one in expected if one > 0)] if in_full else []
    with ThreadPoolExecutor(2) as threads:
        found = dict(zip(asked, threads.map(shell, asked), strict=True))
    assert found == {one: expected[one] for one in asked}


async def test_h22_log_start_is_the_remote_one_in_every_answer(archive: Archive) -> None:
    cluster, topic = archive.cluster, archive.topic
    tail = archive.log_end[0] - 1
    async with connection(proxy_of(cluster, 1)) as proxy, connection(cluster.direct) as direct:
        id_of_topic = await topic_id(proxy, topic)
        for version in await _versions(proxy, FETCH.key):
            if version < 5:
                continue  # no such field
            for offset in (0, tail):
                answer = await fetch(proxy, version, topic, offset, id_of_topic=id_of_topic)
                assert (answer["error_code"], answer["log_start_offset"]) == (0, 0), version
            beside = await fetch(direct, version, topic, tail, id_of_topic=id_of_topic)
            assert beside["log_start_offset"] == archive.log_start[0] > 0


async def test_h22_produce_answers_say_the_remote_log_start(one: Cluster) -> None:
    topic = fresh("produced")
    one.create_topic(topic)
    one.enable(topic)
    await asyncio.to_thread(one.fill, topic, mib=4)
    start = await asyncio.to_thread(one.wait_trimmed, topic)
    async with connection(proxy_of(one, 1)) as proxy, connection(one.direct) as direct:
        id_of_topic = await topic_id(proxy, topic)
        for version in await _versions(proxy, PRODUCE.key):
            if version >= 5:
                assert await _produced_log_start(proxy, version, topic, id_of_topic) == 0
        assert await _produced_log_start(direct, 8, topic, id_of_topic) >= start


async def _produced_log_start(
    client: RawClient, version: int, topic: str, id_of_topic: bytes
) -> int:
    key = {"name": topic} if version <= 12 else {"topic_id": id_of_topic}
    data = [{"index": 0, "records": batch(0, 1, first_ms=int(time.time() * 1000))}]
    body = {"acks": -1, "timeout_ms": 60_000, "topic_data": [{**key, "partition_data": data}]}
    answer = await client.call(PRODUCE, version, body)
    [partition] = answer["responses"][0]["partition_responses"]
    assert partition["error_code"] == 0, (version, partition)
    return int(partition["log_start_offset"])


def test_h22_librdkafkas_low_watermark_does_not_flip_between_the_tiers(archive: Archive) -> None:
    lows: set[int] = set()
    topic_partition = TopicPartition(archive.topic, 0, 0)
    consumer = Consumer(
        {
            "bootstrap.servers": archive.cluster.bootstrap,
            "group.id": fresh("lows"),
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: lows.update(_lows(json.loads(text), archive.topic)),
        }
    )
    consumer.assign([topic_partition])
    try:
        while True:
            message = consumer.poll(_LIMIT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
        assert consumer.get_watermark_offsets(topic_partition)[0] == 0
        assert lows <= {0}
    finally:
        consumer.close()


def _lows(statistics: Any, topic: str) -> Iterator[int]:
    partition = statistics["topics"].get(topic, {}).get("partitions", {}).get("0", {})
    if partition.get("lo_offset", -1) >= 0:
        yield partition["lo_offset"]
