"""A topic is deleted and restored from the bucket alone, by a command that is killed on the way."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.scenarios.cluster import Cluster, Row, fresh, text_value
from tests.scenarios.objects import finished_segments

pytestmark = pytest.mark.integration

COMMITTED: dict[str, Any] = {"isolation.level": "read_committed"}
_LIMIT_S = 120
KILLED_AFTER = (2, 6)
"""So many reports of the killed command, of which the first of each partition is its begin."""


def fill(cluster: Cluster, topic: str) -> None:
    """Two partitions with all codecs, headers, tombstones, and transactions that were aborted and
    not, which lie within each other.
    """
    names = (f"{topic}-kept", f"{topic}-aborted")
    kept, aborted = (
        Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 600_000,
            }
        )
        for name in names
    )
    for producer in (kept, aborted):
        producer.init_transactions(_LIMIT_S)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for producer in (kept, aborted):
            producer.begin_transaction()
        rows = [(number % 2, b"key", text_value(4096)) for number in range(300)]
        cluster.produce(topic, rows, **{"compression.type": codec})
        for producer in (kept, aborted):
            for number in range(40):
                value = None if number == 7 else text_value()
                headers: list[tuple[str, str | bytes | None]] = [
                    ("a", b"%d" % number),
                    ("a", None),
                    ("", b""),
                ]
                producer.produce(topic, value, b"tx", number % 2, timestamp=number, headers=headers)
            assert producer.flush(_LIMIT_S) == 0
        kept.commit_transaction(_LIMIT_S)
        aborted.abort_transaction(_LIMIT_S)


def stored(cluster: Cluster, topic: str) -> list[Row]:
    """The committed records that the store has, without their offsets."""
    ends: dict[int, int] = {}
    for one in finished_segments(cluster, topic):
        number = one.topic_id_partition.partition
        ends[number] = max(ends.get(number, 0), one.next_offset)
    rows = cluster.read_all(topic, end=ends, **COMMITTED)
    return without_offsets(row for row in rows if row.offset < ends[row.partition])


def without_offsets(rows: Iterable[Row]) -> list[Row]:
    """By partition, in order."""
    return [
        replace(row, offset=0) for row in sorted(rows, key=lambda row: (row.partition, row.offset))
    ]


def restore_and_kill(cluster: Cluster, plugin_config: Path, topic: str, after: int) -> None:
    command = [sys.executable, "-m", "tests.scenarios.small_portions", str(plugin_config)]
    process = subprocess.Popen(
        [*command, cluster.direct, topic, topic], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for _ in range(after):
            assert process.stdout.readline(), "it ended too early"
    finally:
        process.kill()
        process.communicate()


def test_a_deleted_topic_comes_back_from_the_bucket(one: Cluster) -> None:
    topic = fresh("lost")
    one.create_topic(topic, partitions=2)
    fill(one, topic)
    one.rlm("topics", "enable", topic)
    for partition in (0, 1):
        one.wait_copied(topic, partition)
    expected = stored(one, topic)
    assert len(expected) > 1_000
    one.admin.delete_topics([topic])[topic].result(_LIMIT_S)
    one.wait_for(lambda: topic not in one.admin.list_topics(timeout=_LIMIT_S).topics, "it is gone")
    plugin_config = next(Path(one.sandbox.json["dir"]).rglob("plugin*.yaml"))
    for after in KILLED_AFTER:
        restore_and_kill(one, plugin_config, topic, after)
    options = (topic, "--to-topic", topic, "--plugin-config", str(plugin_config))
    done = one.rlm_json("restore", *options, "--bootstrap", one.direct)
    assert done["is_complete"]
    assert sum(row["records"] for row in done["partitions"]) == len(expected)
    read = one.read_all(topic, bootstrap=one.direct, **COMMITTED)
    assert without_offsets(read) == expected
