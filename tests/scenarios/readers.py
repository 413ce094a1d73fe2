"""Unmodified clients, each reading one partition from offset 0: all of them give the same rows.

No reader may reset its position: each is configured to fail instead.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.cluster import Cluster, Row, fresh

PROGRAMS = Path(__file__).parent / "clients"
_LIMIT_S = 60
_INSTALL_LIMIT_S = 600
_USUAL_GO = "/usr/local/go/bin/go"
KAFKA_PYTHON = metadata.version("kafka-python")
# 2.0.2 carries a `six` that Python 3.12 cannot import; 2.0.6 is the same client without it.
KAFKA_PYTHON_2 = "2.0.2" if sys.version_info < (3, 12) else "2.0.6"


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
    await consumer.start()
    try:
        topic_partitions = {AioPartition(topic, p): end for p, end in ends.items()}
        consumer.assign(list(topic_partitions))
        await consumer.seek_to_beginning(*topic_partitions)
        rows: list[Row] = []
        deadline = time.monotonic() + 60
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
    finally:
        await consumer.stop()


def first_by_reset(cluster: Cluster, topic: str) -> int:
    """The offset of the first record that a group with auto.offset.reset=earliest gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": fresh("reset"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message: Any = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return int(message.offset())
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


def kafka_python(version: str, folder: Path) -> list[str]:
    """The command of a reader by a kafka-python that knows zstd: pip fetches both; skips where it
    cannot.
    """
    wanted = [f"kafka-python=={version}", "zstandard"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    done = subprocess.run(
        [*command, "--target", str(folder), *wanted],
        capture_output=True,
        text=True,
        timeout=_INSTALL_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"pip cannot get {' '.join(wanted)}: {done.stderr.strip()[-300:]}")
    first = f"import sys; sys.path.insert(0, {str(folder)!r}); "
    run = "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    return [sys.executable, "-I", "-c", first + run, str(PROGRAMS / "kafka_python.py")]


def sarama(folder: Path) -> list[str]:
    """The command of a reader by sarama, which Go builds; skips where there is no Go or module."""
    go = shutil.which("go") or shutil.which(_USUAL_GO)
    if go is None:
        pytest.skip("there is no Go to build the reader with")
    source, program = folder / "source", folder / "reader"
    shutil.copytree(PROGRAMS / "sarama", source)
    done = subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(program), "."],
        cwd=source,
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=_INSTALL_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"Go cannot build the reader: {done.stderr.strip()[-300:]}")
    return [str(program)]


def read_by(command: list[str], cluster: Cluster, topic: str, count: int) -> list[Row]:
    """The rows that a reader in a process of its own prints, without headers."""
    done = subprocess.run(
        [*command, cluster.bootstrap, topic, str(count)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return [
        Row(
            partition=0,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=_data(key),
            value=_data(value),
            headers=(),
        )
        for offset, timestamp_ms, key, value in map(json.loads, done.stdout.splitlines())
    ]


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
