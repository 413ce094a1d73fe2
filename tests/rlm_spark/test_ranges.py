"""The exact vectors of Spark's KafkaOffsetRangeCalculatorSuite, and of its rate limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_spark.plan.planning import divide, rate_limited
from tiered_reads.values import OffsetRange, TopicPartition

T1 = TopicPartition("t1", 1)
T2 = TopicPartition("t2", 1)
T3 = TopicPartition("t3", 1)
Row = tuple[TopicPartition, int, int]


def _ranges(*rows: Row) -> list[OffsetRange]:
    return [
        OffsetRange(topic_partition=topic_partition, start_offset=start, end_offset=end)
        for topic_partition, start, end in rows
    ]


# name, minPartitions, maxRecordsPerPartition, ranges, tasks. Locations are left out: the Python
# API has none.
VECTORS: list[tuple[str, int | None, int | None, list[Row], list[Row]]] = [
    ("no minPartition: N to N", None, None, [(T1, 1, 2)], [(T1, 1, 2)]),
    (
        "no minPartition: empty ranges ignored",
        None,
        None,
        [(T1, 1, 2), (T2, 1, 1)],
        [(T1, 1, 2)],
    ),
    (
        "N TopicPartitions to N offset ranges",
        3,
        None,
        [(T1, 1, 2), (T2, 1, 2), (T3, 1, 2)],
        [(T1, 1, 2), (T2, 1, 2), (T3, 1, 2)],
    ),
    (
        "1 TopicPartition to N offset ranges",
        4,
        None,
        [(T1, 1, 5)],
        [(T1, 1, 2), (T1, 2, 3), (T1, 3, 4), (T1, 4, 5)],
    ),
    (
        "N skewed TopicPartitions to M offset ranges",
        4,
        None,
        [(T1, 1, 5), (T2, 1, 21)],
        [(T1, 1, 5), (T2, 1, 7), (T2, 7, 14), (T2, 14, 21)],
    ),
    (
        "SPARK-30656: ignore empty ranges and split the rest",
        4,
        None,
        [(T1, 1, 1), (T2, 1, 21)],
        [(T2, 1, 6), (T2, 6, 11), (T2, 11, 16), (T2, 16, 21)],
    ),
    (
        "SPARK-30656: N very skewed TopicPartitions to M offset ranges",
        4,
        None,
        [(T1, 1, 2), (T2, 1, 1001)],
        [(T1, 1, 2), (T2, 1, 334), (T2, 334, 667), (T2, 667, 1001)],
    ),
    (
        "SPARK-30656: minPartitions less than the length of topic partitions",
        1,
        None,
        [(T1, 1, 5), (T2, 1, 21)],
        [(T1, 1, 5), (T2, 1, 21)],
    ),
    (
        "range inexact multiple of minPartitions",
        3,
        None,
        [(T1, 1, 11)],
        [(T1, 1, 4), (T1, 4, 7), (T1, 7, 11)],
    ),
    (
        "empty ranges ignored",
        4,
        None,
        [(T1, 1, 5), (T2, 1, 21), (T3, 1, 1)],
        [(T1, 1, 5), (T2, 1, 7), (T2, 7, 14), (T2, 14, 21)],
    ),
    (
        "SPARK-28489: never drop offsets",
        6,
        None,
        [(T1, 0, 10), (T2, 0, 10), (T3, 0, 1)],
        [
            (T1, 0, 3),
            (T1, 3, 6),
            (T1, 6, 10),
            (T2, 0, 3),
            (T2, 3, 6),
            (T2, 6, 10),
            (T3, 0, 1),
        ],
    ),
    (
        "SPARK-36576: 0 small unsplit ranges and 3 large split ranges",
        9,
        None,
        [(T1, 0, 10000), (T2, 0, 15000), (T3, 0, 20000)],
        [
            (T1, 0, 5000),
            (T1, 5000, 10000),
            (T2, 0, 5000),
            (T2, 5000, 10000),
            (T2, 10000, 15000),
            (T3, 0, 5000),
            (T3, 5000, 10000),
            (T3, 10000, 15000),
            (T3, 15000, 20000),
        ],
    ),
    (
        "SPARK-36576: 1 small unsplit range and 2 large split ranges",
        6,
        None,
        [(T1, 0, 500), (T2, 0, 12000), (T3, 0, 15001)],
        [
            (T1, 0, 500),
            (T2, 0, 6000),
            (T2, 6000, 12000),
            (T3, 0, 5000),
            (T3, 5000, 10000),
            (T3, 10000, 15001),
        ],
    ),
    (
        "SPARK-36576: 2 small unsplit ranges and 1 large split range",
        6,
        None,
        [(T1, 0, 1), (T2, 0, 1), (T3, 0, 10000)],
        [
            (T1, 0, 1),
            (T2, 0, 1),
            (T3, 0, 2500),
            (T3, 2500, 5000),
            (T3, 5000, 7500),
            (T3, 7500, 10000),
        ],
    ),
    (
        "SPARK-46798: ranges unsplit",
        3,
        None,
        [(T1, 0, 1), (T2, 0, 1), (T3, 0, 1)],
        [(T1, 0, 1), (T2, 0, 1), (T3, 0, 1)],
    ),
    (
        "SPARK-46798: ranges split",
        4,
        None,
        [(T1, 0, 1), (T2, 0, 1), (T3, 0, 2)],
        [(T1, 0, 1), (T2, 0, 1), (T3, 0, 1), (T3, 1, 2)],
    ),
    ("SPARK-49259: at the maximum", None, 4, [(T1, 1, 5)], [(T1, 1, 5)]),
    ("SPARK-49259: below the maximum", None, 4, [(T1, 1, 2)], [(T1, 1, 2)]),
    ("SPARK-49259: above the maximum", None, 4, [(T1, 1, 6)], [(T1, 1, 3), (T1, 3, 6)]),
    (
        "SPARK-49259: N TopicPartition to N offset ranges",
        None,
        20,
        [(T1, 1, 40), (T2, 1, 50), (T3, 1, 60)],
        [
            (T1, 1, 20),
            (T1, 20, 40),
            (T2, 1, 17),
            (T2, 17, 33),
            (T2, 33, 50),
            (T3, 1, 20),
            (T3, 20, 40),
            (T3, 40, 60),
        ],
    ),
    (
        "SPARK-49259: 1 TopicPartition with low minPartitions value",
        1,
        20,
        [(T1, 1, 40)],
        [(T1, 1, 20), (T1, 20, 40)],
    ),
    (
        "SPARK-49259: 1 TopicPartition with high minPartitions value",
        4,
        20,
        [(T1, 1, 40)],
        [(T1, 1, 10), (T1, 10, 20), (T1, 20, 30), (T1, 30, 40)],
    ),
]


@pytest.mark.parametrize(
    ("min_partitions", "max_records", "given_rows", "wanted"),
    [vector[1:] for vector in VECTORS],
    ids=[vector[0] for vector in VECTORS],
)
def test_split_gives_the_ranges_of_sparks_suite(
    min_partitions: int | None, max_records: int | None, given_rows: list[Row], wanted: list[Row]
) -> None:
    tasks = divide(
        _ranges(*given_rows),
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
    )

    assert tasks == _ranges(*wanted)


def test_a_backward_range_is_dropped() -> None:
    assert divide(_ranges((T1, 5, 2), (T2, 0, 1))) == _ranges((T2, 0, 1))


@given(
    st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 40)), min_size=1, max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1 << 36, 1 << 41),
)
def test_every_offset_is_in_exactly_one_task(
    starts_and_sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    wanted = [
        OffsetRange(
            topic_partition=TopicPartition("t", number), start_offset=start, end_offset=start + size
        )
        for number, (start, size) in enumerate(starts_and_sizes)
    ]

    tasks = divide(wanted, min_partitions=min_partitions, max_records_per_partition=max_records)

    assert all(task.size > 0 for task in tasks)
    if max_records is not None:
        assert all(task.size <= max_records for task in tasks)
    for whole in wanted:
        parts = [task for task in tasks if task.topic_partition == whole.topic_partition]
        reached = whole.start_offset
        for part in parts:
            assert part.start_offset == reached
            reached = part.end_offset
        assert reached == whole.end_offset


def test_rate_limit_shares_in_proportion_and_starves_none() -> None:
    """KafkaMicroBatchSourceSuite, maxOffsetsPerTrigger 10: 101, 11 and 1 records."""
    ends = {T1: 101, T2: 11, T3: 1}

    first = rate_limited(10, {T1: 0, T2: 0, T3: 0}, ends)
    second = rate_limited(10, first, ends)

    assert first == {T1: 8, T2: 1, T3: 1}
    assert second == {T1: 17, T2: 2, T3: 1}


def test_rate_limit_takes_all_where_the_limit_is_larger() -> None:
    assert rate_limited(100, {T1: 5}, {T1: 20}) == {T1: 20}


def test_rate_limit_of_nothing_new_is_the_end() -> None:
    assert rate_limited(10, {T1: 5, T2: 9}, {T1: 5, T2: 7}) == {T1: 5, T2: 7}


def test_rate_limit_does_not_overflow_a_long() -> None:
    """SPARK-26718."""
    biggest = (1 << 63) - 1

    assert rate_limited(biggest, {T1: 0}, {T1: biggest}) == {T1: biggest}
    assert rate_limited(biggest, {T1: 10, T2: 0}, {T1: 15, T2: 1}) == {T1: 15, T2: 1}


def test_rate_limit_is_exact_where_a_double_is_not() -> None:
    """29 % of 100 is 28.999999999999996 in doubles."""
    assert rate_limited(100, {T1: 0, T2: 0}, {T1: 290, T2: 710}) == {T1: 29, T2: 71}


def test_rate_limit_zero_takes_nothing() -> None:
    assert rate_limited(0, {T1: 3}, {T1: 20}) == {T1: 3}
