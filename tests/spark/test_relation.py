"""The cases of Spark's KafkaRelationSuite, by their names there, on `kafka_tiered`.

`make long` runs them on Spark's own source too: a case that only ours passes is no case of theirs.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.scenarios.cluster import Cluster, fresh
from tests.spark.lab import COMMITTED, TIERED, Lab, failure, texts

pytestmark = pytest.mark.integration

EARLIEST, LATEST = -2, -1
_LIMIT_S = 120


def send(cluster: Cluster, topic: str, numbers: Iterable[int], partition: int, **more: Any) -> None:
    """The numbers as text."""
    producer = Producer({"bootstrap.servers": cluster.direct})
    for number in numbers:
        producer.produce(topic, value=str(number).encode(), partition=partition, **more)
    assert producer.flush(_LIMIT_S) == 0


def three_partitions(cluster: Cluster) -> str:
    """0 to 9, 10 to 19, and 20."""
    topic = fresh("relation")
    cluster.create_topic(topic, partitions=3)
    for partition, numbers in enumerate((range(10), range(10, 20), [20])):
        send(cluster, topic, numbers, partition)
    return topic


def offsets(topic: str, by_partition: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(one): offset for one, offset in by_partition.items()}})


def test_default_and_explicit_earliest_to_latest_offsets_bind_late(either: Lab) -> None:
    topic = three_partitions(either.cluster)
    default = either.values(topic)
    explicit = either.values(topic, {"startingOffsets": "earliest", "endingOffsets": "latest"})
    assert texts(default) == texts(explicit) == [*range(21)]
    send(either.cluster, topic, range(21, 30), 2)
    assert texts(explicit.select("value")) == [*range(30)]


def test_explicit_offsets(either: Lab) -> None:
    topic = three_partitions(either.cluster)
    frame = either.values(
        topic,
        {
            "startingOffsets": offsets(topic, {0: EARLIEST, 1: EARLIEST, 2: 0}),
            "endingOffsets": offsets(topic, {0: LATEST, 1: LATEST, 2: 1}),
        },
    )
    assert texts(frame) == [*range(21)]
    send(either.cluster, topic, range(31, 40), 2)
    send(either.cluster, topic, range(21, 31), 1)
    assert texts(frame.select("value")) == [*range(31)]


def test_headers(either: Lab) -> None:
    topic = fresh("headers")
    either.cluster.create_topic(topic, partitions=3)
    send(either.cluster, topic, [1], 0, headers=[])
    send(either.cluster, topic, [2], 1, headers=[("a", b"b"), ("c", None)])
    send(either.cluster, topic, [3], 2, headers=[("e", b"f"), ("e", b"g")])
    rows = either.read(topic, {"includeHeaders": "true"}).collect()
    found = {
        int(row.value): row.headers and [(h.key, h.value) for h in row.headers] for row in rows
    }
    assert found == {1: None, 2: [("a", b"b"), ("c", None)], 3: [("e", b"f"), ("e", b"g")]}
    assert "headers" not in either.read(topic).columns


def test_reuse_same_dataframe_in_query(either: Lab) -> None:
    topic = fresh("union")
    either.cluster.create_topic(topic)
    send(either.cluster, topic, range(11), 0)
    frame = either.values(topic)
    assert texts(frame.union(frame)) == sorted([*range(11), *range(11)])


def test_late_binding_start_offsets(either: Lab) -> None:
    topic = fresh("late")
    either.cluster.create_topic(topic)
    send(either.cluster, topic, range(10), 0)
    frame = either.values(topic, {"startingOffsets": "earliest", "endingOffsets": "latest"})
    assert texts(frame) == [*range(10)]
    _delete_up_to(either.cluster, topic, 10)
    send(either.cluster, topic, range(10, 20), 0)
    assert texts(frame.select("value")) == [*range(10, 20)]


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"startingOffsets": "latest"}, ["starting offset can't be latest for batch queries"]),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'},
            ["startingoffsets for t-0 can't be latest for batch queries on kafka"],
        ),
        ({"endingOffsets": "earliest"}, ["ending offset can't be earliest for batch queries"]),
        (
            {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
            ["ending offset for t-0 can't be earliest for batch queries on kafka"],
        ),
        ({}, ["options must be specified", "subscribe", "subscribepattern"]),
        ({"subscribe": "t", "subscribePattern": "t.*"}, ["only one", "options can be specified"]),
        ({"subscribe": "t", "assign": '{"a":[0]}'}, ["only one", "options can be specified"]),
        ({"assign": ""}, ["no topicpartitions to assign"]),
        ({"subscribe": ""}, ["no topics to subscribe"]),
        ({"subscribePattern": ""}, ["pattern to subscribe is empty"]),
        (
            {
                "subscribe": "test",
                "startingOffsets": '{"test":{"0":1,"1":1,"2":1}}',
                "endingOffsets": '{"test":{"0":0,"1":0}}',
            },
            ["the specified start offset and end offset should have the same topic-partitions."],
        ),
        (
            {
                "subscribe": "test",
                "startingOffsets": '{"test":{"0":1,"1":1,"2":1}}',
                "endingOffsets": '{"test":{"0":0,"1":0,"2":0}}',
            },
            ["the specified start offset 1 is greater than the end offset 0 for"],
        ),
    ],
)
def test_bad_batch_query_options(either: Lab, options: dict[str, str], messages: list[str]) -> None:
    said = failure(lambda: either.bare({**either.connection(), **options}))
    for message in messages:
        assert message in said


def test_resolved_start_offset_greater_than_end_offset(either: Lab) -> None:
    topic = fresh("crossed")
    either.cluster.create_topic(topic, partitions=3, configs={"retention.ms": "-1"})
    for partition in range(3):
        send(either.cluster, topic, [0], partition, timestamp=1_000)
        send(either.cluster, topic, [0], partition, timestamp=2_000)
    three = offsets(topic, dict.fromkeys(range(3), 3))
    by_timestamp = offsets(topic, dict.fromkeys(range(3), 2_000))
    without_latest = {"startingOffsets": three, "endingOffsetsByTimestamp": by_timestamp}
    said = failure(lambda: either.read(topic, without_latest))
    assert "the resolved start offset 3 is greater than the resolved end offset 1 for" in said
    said = failure(lambda: either.read(topic, {"startingOffsets": three}))
    assert "the resolved start offset 3 is greater than the resolved end offset 2 for" in said


@pytest.mark.parametrize("committed", [True, False], ids=["read_committed", "read_uncommitted"])
def test_read_kafka_transactional_messages(either: Lab, *, committed: bool) -> None:
    topic = fresh("transactions")
    cluster = either.cluster
    cluster.create_topic(topic)
    settings = {"bootstrap.servers": cluster.direct, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(_LIMIT_S)
    level = COMMITTED if committed else {"kafka.isolation.level": "read_uncommitted"}
    frame = either.values(topic, level)

    def write(numbers: range, *, end: int, abort: bool = False) -> None:
        for number in numbers:
            producer.produce(topic, value=str(number).encode())
        assert producer.flush(_LIMIT_S) == 0  # an abort drops what was not sent yet
        (producer.abort_transaction if abort else producer.commit_transaction)(_LIMIT_S)
        cluster.wait_for(lambda: cluster.log_end(topic) == end, f"{topic} ends at {end}")

    producer.begin_transaction()
    for number in range(1, 6):
        producer.produce(topic, value=str(number).encode())
    assert producer.flush(_LIMIT_S) == 0
    assert texts(frame.select("value")) == ([] if committed else [*range(1, 6)])
    write(range(0), end=6)
    producer.begin_transaction()
    write(range(6, 11), end=12, abort=True)
    producer.begin_transaction()
    write(range(11, 16), end=18)
    wanted = [*range(1, 6), *range(11, 16)] if committed else [*range(1, 16)]
    assert texts(frame.select("value")) == wanted


def test_min_partitions_and_max_records_per_partition(either: Lab) -> None:
    topic = three_partitions(either.cluster)
    frame = either.values(topic, {"minPartitions": "6"})
    assert frame.rdd.getNumPartitions() >= 6
    assert texts(frame) == [*range(21)]
    send(either.cluster, topic, range(21, 31), 0)
    assert texts(frame.select("value")) == [*range(31)]
    bounded = either.values(topic, {"maxRecordsPerPartition": "7"})
    assert texts(bounded) == [*range(31)]
    if either.source == TIERED:  # Spark 4.2's own batch heeds it only beside minPartitions
        assert bounded.rdd.getNumPartitions() == 3 + 2 + 1  # of 20, 10 and 1


def test_subscribe_pattern_assign_and_two_topics(either: Lab) -> None:
    one, other = three_partitions(either.cluster), fresh("relation-other")
    either.cluster.create_topic(other)
    send(either.cluster, other, [100], 0)
    connection = either.connection()

    def values(**options: str) -> list[int]:
        frame = either.bare({**connection, **options})
        return texts(frame.selectExpr("CAST(value AS STRING)"))

    assert values(subscribe=f"{one},{other}") == [*range(21), 100]
    assert values(subscribePattern=f"{one[:-2]}.*|{other}") == [*range(21), 100]
    assert values(assign=json.dumps({one: [1, 2], other: [0]})) == [*range(10, 21), 100]


def _delete_up_to(cluster: Cluster, topic: str, offset: int) -> None:
    topic_partition = TopicPartition(topic, 0, offset)
    cluster.admin.delete_records([topic_partition])[topic_partition].result(120)
