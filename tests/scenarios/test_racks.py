"""Rack-aware clients (KIP-392): old data from the leader, local data from the replica near by."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.scenarios.cluster import Cluster, Row, assert_same, fresh, row_of
from tests.scenarios.java import java_read, printable
from tests.scenarios.replicas import trimmed_topic, wait_isr

pytestmark = pytest.mark.integration

_DEBUG_LOG = """\
status=error
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%p %m (%c)%n
logger.consumer.name=org.apache.kafka.clients.consumer.internals
logger.consumer.level=debug
rootLogger.level=warn
rootLogger.appenderRef.err.ref=err
"""


class RackReader:
    """librdkafka in a rack; knows from its statistics which brokers it fetched from."""

    def __init__(self, cluster: Cluster, topic: str, rack: str) -> None:
        self.fetched_from: set[int] = set()
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"rack-{topic}",
                "client.rack": rack,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "statistics.interval.ms": 20,
                "stats_cb": self._stats,
                # Small and slow, so that the statistics see every broker it goes to.
                "fetch.message.max.bytes": 65_536,
                "queued.max.messages.kbytes": 256,
                "fetch.queue.backoff.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _stats(self, text: str) -> None:
        for topic in json.loads(text)["topics"].values():
            found = topic["partitions"].get("0", {})
            if found.get("fetch_state") == "active" and found["broker"] >= 0:
                self.fetched_from.add(found["broker"])

    def seek(self, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, 0, offset))

    def read_up_to(self, end: int) -> list[Row]:
        """An end of the partition in between is one that a producer has moved since."""
        rows: list[Row] = []
        while not rows or rows[-1].offset < end - 1:
            message: Any = self._consumer.poll(120)
            assert message is not None, f"does not advance behind {rows[-1:]}"
            if message.error() is None:
                rows.append(row_of(message))
                continue
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        return rows

    def has_fetched_from(self, brokers: set[int]) -> bool:
        """Statistics come while it is polled; it stays at the broker that it read from last."""
        message: Any = self._consumer.poll(0.1)
        if message is not None:
            assert message.error() is not None, row_of(message)
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        return self.fetched_from == brokers

    def close(self) -> None:
        self._consumer.close()


def test_librdkafka_reads_local_data_from_its_rack(three: Cluster) -> None:
    """And goes back to the leader for old data, from wherever it is."""
    topic = fresh("racks")
    rows = trimmed_topic(three, topic, [1, 2, 3], mib=6)
    wait_isr(three, topic, {1, 2, 3})
    reader = RackReader(three, topic, "rack-2")
    try:
        assert_same(reader.read_up_to(len(rows)), rows)
        three.wait_for(lambda: reader.has_fetched_from({1, 2}), "data of both brokers")
        reader.seek(5)
        assert_same(reader.read_up_to(len(rows)), rows[5:])
        rows += three.fill(topic, mib=3)
        assert_same(reader.read_up_to(len(rows)), rows[6 * 1024 :])
        three.wait_trimmed(topic, beyond=6 * 1024)
        reader.seek(0)
        assert_same(reader.read_up_to(len(rows)), rows)
    finally:
        reader.close()


def test_java_reads_local_data_from_its_rack(three: Cluster, tmp_path: Path) -> None:
    topic = fresh("racks-java")
    rows = trimmed_topic(three, topic, [1, 2, 3], mib=5)
    wait_isr(three, topic, {1, 2, 3})  # else the leader names no replica near by
    log4j = tmp_path / "log4j2.properties"
    log4j.write_text(_DEBUG_LOG)
    printed, said = java_read(
        three, topic, len(rows), config={"client.rack": "rack-3"}, log4j=log4j
    )
    assert printed == printable(rows)
    assert "preferred read replica" in said.lower(), said[-2000:]
    assert "Resetting offset" not in said
