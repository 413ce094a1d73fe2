"""What streams do besides reading: triggers, limits, checkpoints, new partitions."""

from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql import DataFrame

from tests.scenarios.cluster import fresh
from tests.spark.conftest import Twins
from tests.spark.lab import Lab, assert_equal, seen, start_available, texts
from tests.spark.test_relation import offsets, send

pytestmark = pytest.mark.integration


def _values(lab: Lab, folder: Path) -> list[int]:
    return texts(lab.written(folder).selectExpr("CAST(value AS STRING)"))


def test_a_checkpoint_goes_on_where_it_was_and_finds_new_partitions(
    either: Lab, folder: Path
) -> None:
    topic = fresh("goes-on")
    either.cluster.create_topic(topic, partitions=2)
    send(either.cluster, topic, range(10), 0)
    send(either.cluster, topic, range(10, 15), 1)
    from_the_fifth = {"startingOffsets": offsets(topic, {0: 5, 1: -2})}
    either.run_available(either.stream(topic, from_the_fifth), folder)
    assert _values(either, folder) == [*range(5, 15)]
    either.cluster.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(120)
    either.cluster.wait_for(lambda: either.cluster.leader(topic, 2) >= 0, "the new partition")
    send(either.cluster, topic, range(15, 20), 2)
    send(either.cluster, topic, range(20, 25), 0)
    either.run_available(either.stream(topic, {"startingOffsets": "latest"}), folder)
    assert _values(either, folder) == [*range(5, 25)]


def test_latest_begins_behind_what_is_there(either: Lab, folder: Path) -> None:
    topic = fresh("latest")
    either.cluster.create_topic(topic)
    send(either.cluster, topic, range(10), 0)
    latest = either.stream(topic, {"startingOffsets": "latest"})
    either.run_available(latest, folder)
    send(either.cluster, topic, range(10, 20), 0)
    either.run_available(latest, folder)
    assert _values(either, folder) == [*range(10, 20)]


def test_max_offsets_per_trigger_is_shared_in_proportion(either: Lab, folder: Path) -> None:
    topic = fresh("shared")
    either.cluster.create_topic(topic, partitions=2)
    send(either.cluster, topic, range(90), 0)
    send(either.cluster, topic, range(90, 100), 1)
    sizes: list[dict[int, int]] = []

    def note(batch: DataFrame, _number: int) -> None:
        counts = batch.groupBy("partition").count().collect()
        sizes.append({row.partition: row["count"] for row in counts})

    frame = either.stream(topic, {"maxOffsetsPerTrigger": "50"})
    query = (
        frame.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    assert [size for size in sizes if size] == [{0: 45, 1: 5}] * 2


@pytest.mark.parametrize("limit", ["7", None], ids=["several batches", "one batch"])
def test_available_now_ends_exactly_at_the_end(
    either: Lab, folder: Path, limit: str | None
) -> None:
    """What is written while it runs belongs to the next run."""
    topic = fresh("exact")
    either.cluster.create_topic(topic)
    send(either.cluster, topic, range(20), 0)
    frame = either.stream(topic, {} if limit is None else {"maxOffsetsPerTrigger": limit})
    late = iter([range(20, 30)])

    def disturb(batch: DataFrame, _number: int) -> None:
        for numbers in late:
            send(either.cluster, topic, numbers, 0)
        batch.write.mode("append").parquet(str(folder / "out"))

    for wanted in (20, 30):
        query = (
            frame.writeStream.foreachBatch(disturb)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
        assert _values(either, folder) == [*range(wanted)]


def test_a_stream_outlives_kill_9_of_the_service(lab: Lab, twins: Twins, folder: Path) -> None:
    frame = lab.stream(
        twins.tiered,
        {"includeHeaders": "true", "readMode": "remote_preferred", "maxOffsetsPerTrigger": "150"},
    )
    query = start_available(frame, folder)
    try:
        lab.cluster.wait_for(lambda: len(query.recentProgress) >= 2, "two batches", 200)
        lab.cluster.sandbox.kill("rlm:1")
        assert query.isActive, "it had ended before the kill"
        lab.cluster.sandbox.start("rlm:1", wait=False)
        assert query.awaitTermination(200), "the stream did not end"
    finally:
        query.stop()
    assert_equal(seen(lab.written(folder)), twins.expected())
