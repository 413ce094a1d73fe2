"""Unmodified clients, each reading one partition from offset 0: all of them give the same rows.

No reader may reset its position: each is configured to fail instead.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.builders.opened import opened
from tests.scenarios.cluster import Cluster, Row, fresh

_LIMIT_S = 180
_FIRST_POLL_S = 120


async def aiokafka_read(
    cluster: Cluster, topic: str, ends: Mapping[int, int], isolation: str = "read_uncommitted"
) -> list[Row]:
    """Everything up to the log ends, by position: behind the last record may lie a marker."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=isolation,
    )
    async with opened(consumer):
        topic_partitions = {AioPartition(topic, p): end for p, end in ends.items()}
        consumer.assign(list(topic_partitions))
        await consumer.seek_to_beginning(*topic_partitions)
        rows: list[Row] = []
        deadline = time.monotonic() + _LIMIT_S
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                rows += map(_row, records)
            positions = {
                topic_partition: await consumer.position(topic_partition)
                for topic_partition in topic_partitions
            }
            if all(
                positions[topic_partition] >= end
                for topic_partition, end in topic_partitions.items()
            ):
                return rows
            assert time.monotonic() < deadline, (
                f"{len(rows)} rows, {positions=} of {topic_partitions}"
            )


def first_by_reset(cluster: Cluster, topic: str) -> int:
    """The offset of the first record that a group with auto.offset.reset=earliest gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": fresh("reset"),
            "auto.offset.reset": "earliest",
            # So long a proxy may find out whether it is out of range; else it is asked again.
            "fetch.wait.max.ms": 10_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message: Any = consumer.poll(_FIRST_POLL_S)
        assert message is not None
        assert message.error() is None
        return int(message.offset())
    finally:
        consumer.close()


def first_error(config: dict[str, Any], topic: str) -> str | None:
    """The name of the error that a consumer gets for the first offset; None where it reads it."""
    consumer = Consumer({**config, "group.id": fresh("group"), "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(_FIRST_POLL_S)
        assert message is not None
        error: KafkaError | None = message.error()
        return None if error is None else str(error.name())
    finally:
        consumer.close()


def kafka_python_read(
    cluster: Cluster,
    topic: str,
    count: int,
    *,
    on_row: Callable[[int], None] | None = None,
    **config: Any,
) -> list[Row]:
    """By this environment's kafka-python, which sends the epoch that it fetched last (H37), and of
    all codecs knows gzip only.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads its schemas in a deprecated way
        from kafka import KafkaConsumer
        from kafka import TopicPartition as KafkaPythonPartition

        consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap.split(","),
            auto_offset_reset="none",
            enable_auto_commit=False,
            **config,
        )
        try:
            topic_partition = KafkaPythonPartition(topic, 0)
            consumer.assign([topic_partition])
            consumer.seek(topic_partition, 0)
            rows: list[Row] = []
            deadline = time.monotonic() + _LIMIT_S
            while len(rows) < count:
                assert time.monotonic() < deadline, f"{len(rows)} of {count} rows, then nothing"
                for records in consumer.poll(timeout_ms=1_000).values():
                    for record in records:
                        rows.append(_row(record))
                        if on_row is not None:
                            on_row(len(rows))
            return rows
        finally:
            consumer.close()


def _row(record: Any) -> Row:
    """A row of a record of aiokafka or kafka-python, which have the same attributes."""
    return Row(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
