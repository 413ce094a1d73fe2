"""A bucket in Pinterest's form, made of a broker's real segments, reads equal to the broker.

It is imported, attached without Kafka, and read by every reader but Spark, which has
tests/spark/test_imported.py.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Wanted

from rlm_client import TieredStorageConsumer
from tests.builders.attached_process import AttachedReader, attached_reader
from tests.builders.opened import opened
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.imported import (
    ISOLATIONS,
    PARTITIONS,
    Theirs,
    imported,
    made_by_a_broker,
    offset_of_time,
    plugin_file,
)
from tests.scenarios.test_restore import without_offsets
from tests.store_servers import S3Server

pytestmark = pytest.mark.integration

COMMITTED = "read_committed"


def test_an_imported_bucket_reads_equal_to_its_broker(one: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    theirs = made_by_a_broker(one, fresh("theirs"), root)
    ours = {"plugin": "local", "rsm.config.root": str(tmp_path / "store")}
    (tmp_path / "store").mkdir()
    bucket_row = {"rsm.config.pinterest.root": str(root)}
    _read_by_everybody(one, theirs, theirs.settings({**ours, **bucket_row}), tmp_path)


@pytest.mark.long
def test_so_it_does_from_s3(one: Cluster, s3_server: S3Server, tmp_path: Path) -> None:
    ours, name = s3_server.bucket(), s3_server.bucket()
    theirs = made_by_a_broker(one, fresh("theirs"), s3_server.folder / "buckets" / name)
    rows = {"plugin": "s3", **s3_server.settings(ours), "rsm.config.prefix": "archive"}
    bucket_row = {"rsm.config.pinterest.bucket": name}
    _read_by_everybody(one, theirs, theirs.settings({**rows, **bucket_row}), tmp_path)


def _read_by_everybody(
    cluster: Cluster, theirs: Theirs, settings: dict[str, Any], folder: Path
) -> None:
    config = plugin_file(folder / "plugin.yaml", settings)
    imported(cluster, theirs, config)
    before = theirs.content()
    given = {"rsm.config.root": None, **settings}
    with attached_reader(folder, folder, settings=given, serves_kafka=True) as reader:
        _read_by_librdkafka(cluster, theirs, reader)
        asyncio.run(_read_by_aiokafka(cluster, theirs, reader))
        asyncio.run(_read_by_a_group(cluster, theirs, reader))
    _restored(cluster, theirs, config)
    assert theirs.content() == before


def _middle(theirs: Theirs, partition: int) -> Row:
    rows = [row for row in theirs.rows["read_uncommitted"] if row.partition == partition]
    return rows[len(rows) // 2]


def _read_by_librdkafka(cluster: Cluster, theirs: Theirs, reader: AttachedReader) -> None:
    """An unmodified client, from the first offset, from the middle, and from a timestamp."""
    for level in ISOLATIONS:
        options: dict[str, Any] = {"bootstrap": reader.kafka, "isolation.level": level}
        read = cluster.read_all(theirs.topic, end=theirs.ends, **options)
        assert_same(read, theirs.rows[level])
    middles = {one: _middle(theirs, one) for one in PARTITIONS}
    start = {one: row.offset for one, row in middles.items()}
    read = cluster.read_all(theirs.topic, end=theirs.ends, start=start, bootstrap=reader.kafka)
    assert_same(
        read,
        [one for one in theirs.rows["read_committed"] if one.offset >= start[one.partition]],
    )
    consumer = Consumer({"bootstrap.servers": reader.kafka, "group.id": "none"})
    try:
        for one, row in middles.items():
            assert consumer.get_watermark_offsets(Wanted(theirs.topic, one), timeout=120) == (
                0,
                theirs.ends[one],
            )
            (found,) = consumer.offsets_for_times(
                [Wanted(theirs.topic, one, row.timestamp_ms)], 120
            )
            expected = offset_of_time(cluster, theirs.topic, one, row.timestamp_ms)
            assert found.offset == expected
    finally:
        consumer.close()


async def _read_by_aiokafka(cluster: Cluster, theirs: Theirs, reader: AttachedReader) -> None:
    partitions = [TopicPartition(theirs.topic, one) for one in PARTITIONS]
    times = {one: _middle(theirs, one.partition).timestamp_ms for one in partitions}
    for level in ISOLATIONS:
        options: dict[str, Any] = {"bootstrap_servers": reader.kafka, "isolation_level": level}
        plain = AIOKafkaConsumer(auto_offset_reset="earliest", **options)
        tiered = TieredStorageConsumer(
            auto_offset_reset="earliest",
            tiered_storage_mode="remote_only",
            rlm_endpoints=reader.address,
            **options,
        )
        for consumer in (plain, tiered):
            consumer.assign(partitions)
            async with opened(consumer):
                assert await consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
                ends = await consumer.end_offsets(partitions)
                assert {one.partition: end for one, end in ends.items()} == theirs.ends
                assert_same(await _all_rows(consumer, ends), theirs.rows[level])
                found = await consumer.offsets_for_times(times)
                assert {one: at.offset for one, at in found.items()} == {
                    one: offset_of_time(cluster, theirs.topic, one.partition, at)
                    for one, at in times.items()
                }


async def _read_by_a_group(cluster: Cluster, theirs: Theirs, reader: AttachedReader) -> None:
    """Groups and commits are those of a cluster that has a topic with the id of the import."""
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.direct,
        "rlm_endpoints": reader.address,
        "tiered_storage_mode": "remote_only",
        "auto_offset_reset": "earliest",
        "isolation_level": COMMITTED,
        "group_id": fresh("group"),
        "enable_auto_commit": False,
        "session_timeout_ms": 60_000,
    }
    ends = {TopicPartition(theirs.topic, one): end for one, end in theirs.ends.items()}
    async with TieredStorageConsumer(theirs.topic, **options) as consumer:
        assert_same(await _all_rows(consumer, ends), theirs.rows[COMMITTED])
        await consumer.commit()
    async with TieredStorageConsumer(theirs.topic, **options) as consumer:
        assert {one: await consumer.committed(one) for one in ends} == ends


async def _all_rows(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> list[Row]:
    """Everything up to the ends; the limit is far above what it takes."""
    rows: list[Row] = []
    async with asyncio.timeout(120):
        while not await _is_at(consumer, ends):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                rows += [
                    Row(
                        partition=one.partition,
                        offset=one.offset,
                        timestamp_ms=one.timestamp,
                        key=one.key,
                        value=one.value,
                        headers=tuple(one.headers),
                    )
                    for one in records
                ]
    return rows


def _restored(cluster: Cluster, theirs: Theirs, config: Path) -> None:
    """`rlm restore` writes the committed records into a topic of a broker."""
    target = fresh("restored")
    options = (theirs.topic, "--to-topic", target, "--plugin-config", str(config))
    done = cluster.rlm_json("restore", *options, "--bootstrap", cluster.direct)
    assert done["is_complete"]
    level: dict[str, Any] = {"isolation.level": COMMITTED}
    read = cluster.read_all(target, bootstrap=cluster.direct, **level)
    assert without_offsets(read) == without_offsets(theirs.rows[COMMITTED])
    cluster.admin.delete_topics([target])[target].result(120)


async def _is_at(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    """A group has no positions before its assignment."""
    if consumer.assignment() != ends.keys():
        return False
    return all([await consumer.position(one) >= end for one, end in ends.items()])
