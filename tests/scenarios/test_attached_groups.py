"""Consumer groups of unmodified clients that read a lost cluster at an attached reader."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Wanted

from rlm_client import TieredStorageConsumer
from tests.builders.attached_process import AttachedReader, attached_reader
from tests.builders.opened import opened
from tests.scenarios.cluster import Cluster, Row, fresh
from tests.scenarios.faults import store_dir
from tests.scenarios.java import java_read
from tests.waiting import until

pytestmark = pytest.mark.integration

_FIRST_PART = 100
_LIMIT_S = 120
_PARTITIONS = (0, 1)
Offsets = list[tuple[int, int]]


@pytest.mark.long
def test_groups_share_partitions_and_go_on_where_they_were_after_a_kill(
    one: Cluster, tmp_path: Path
) -> None:
    """By aiokafka, the consumer for Python and librdkafka; each record once."""
    topic, rows = _copied(one)
    with attached_reader(tmp_path, store_dir(one), serves_kafka=True, is_killed=True) as reader:
        expected = _remote(reader, topic, rows)
        read = asyncio.run(_aiokafka(AIOKafkaConsumer, reader, topic, _FIRST_PART))
        reader.process.kill()
    with attached_reader(tmp_path, store_dir(one), serves_kafka=True) as reader:
        left = len(expected) - len(read)
        read += asyncio.run(_aiokafka(TieredStorageConsumer, reader, topic, left))
        assert sorted(read) == expected
        assert _two_of_librdkafka(reader, topic, expected) == set(expected)


@pytest.mark.long
def test_so_does_kafkas_own_console_consumer(one: Cluster, tmp_path: Path) -> None:
    topic, rows = _copied(one)
    with attached_reader(tmp_path, store_dir(one), serves_kafka=True, is_killed=True) as reader:
        expected = _remote(reader, topic, rows)
        read = _java(one, reader, topic, _FIRST_PART)
        reader.process.kill()
    with attached_reader(tmp_path, store_dir(one), serves_kafka=True) as reader:
        read += _java(one, reader, topic, len(expected) - _FIRST_PART)
        assert sorted(read) == expected


def _copied(cluster: Cluster) -> tuple[str, list[Row]]:
    topic = fresh("grouped")
    cluster.create_topic(topic, partitions=len(_PARTITIONS))
    cluster.enable(topic)
    rows: list[Row] = []
    for partition in _PARTITIONS:
        rows += cluster.fill(topic, mib=1, partition=partition)
    for partition in _PARTITIONS:
        cluster.wait_copied(topic, partition)
    return topic, rows


def _remote(reader: AttachedReader, topic: str, rows: Iterable[Row]) -> Offsets:
    """What of the rows is in the store."""
    consumer = Consumer({"bootstrap.servers": reader.kafka, "group.id": "unused"})
    try:
        ends = {
            one: consumer.get_watermark_offsets(Wanted(topic, one), timeout=_LIMIT_S)[1]
            for one in _PARTITIONS
        }
    finally:
        consumer.close()
    found = sorted((row.partition, row.offset) for row in rows if row.offset < ends[row.partition])
    assert len(found) > 2 * _FIRST_PART
    assert {partition for partition, _ in found} == set(_PARTITIONS)
    return found


def _java(cluster: Cluster, reader: AttachedReader, topic: str, count: int) -> Offsets:
    config = {"group.id": "java", "auto.offset.reset": "earliest"}
    found, said = java_read(
        cluster, topic, count, partition=None, bootstrap=reader.kafka, config=config
    )
    assert len(found) == count, said
    return [(partition, offset) for partition, offset, _ in found]


async def _aiokafka(kind: Any, reader: AttachedReader, topic: str, count: int) -> Offsets:
    """So many records, one by one, and no more of them are committed."""
    options: dict[str, Any] = {
        "bootstrap_servers": reader.kafka,
        "group_id": "python",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    if kind is TieredStorageConsumer:
        options |= {"tiered_storage_mode": "remote_only", "rlm_endpoints": reader.address}
    found: Offsets = []
    async with opened(kind(topic, **options)) as consumer, asyncio.timeout(_LIMIT_S):
        while len(found) < count:
            record = await consumer.getone()
            found.append((record.partition, record.offset))
        await consumer.commit()
        for partition in {number for number, _ in found}:
            last = max(offset for number, offset in found if number == partition)
            assert await consumer.committed(TopicPartition(topic, partition)) == last + 1
    return found


@contextmanager
def _members(reader: AttachedReader, topic: str) -> Iterator[list[Consumer]]:
    """One for each partition; those that are taken out of the list are the caller's to close."""
    config: dict[str, Any] = {
        "bootstrap.servers": reader.kafka,
        "group.id": "librdkafka",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    members = [Consumer(config) for _ in _PARTITIONS]
    try:
        for one in members:
            one.subscribe([topic])
        yield members
    finally:
        for one in members:
            one.close()


def _two_of_librdkafka(
    reader: AttachedReader, topic: str, expected: Offsets
) -> set[tuple[int, int]]:
    """Two members that have a partition each, of which one leaves: the other one takes over."""
    found: set[tuple[int, int]] = set()
    with _members(reader, topic) as members:

        def are_all_read() -> bool:
            for one in members:
                message = one.poll(0.1)
                if message is not None:
                    if message.error():
                        raise KafkaException(message.error())
                    found.add((message.partition() or 0, message.offset() or 0))
            return len(found) >= len(expected)

        def are_shared() -> bool:
            are_all_read()
            return all(len(one.assignment()) == 1 for one in members)

        asyncio.run(until(are_shared, _LIMIT_S))
        assert {one.assignment()[0].partition for one in members} == set(_PARTITIONS)
        members.pop().close()
        asyncio.run(until(are_all_read, _LIMIT_S))
        assert {one.partition for one in members[0].assignment()} == set(_PARTITIONS)
    return found
