"""Filters taken over: what is left is exactly the rows that pass, or Spark filters again."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rlm_spark.plan.options import parse_batch
from rlm_spark.source.pushdown import Bounds, FilteringReader, taken
from rlm_spark.source.pyspark_readers import TieredReader
from rlm_spark.source.schema import full_schema
from tests.tiered_reads.fake_tiers import FakeLog, FakePositions, FakeTiers, topic
from tiered_reads.values import TopicPartition

Row = tuple[str, int, int]


def _reader(positions: FakePositions, **options: str) -> FilteringReader:
    needed = {
        "subscribePattern": ".",
        "kafka.bootstrap.servers": "k",
        "readMode": "kafka_only",
        "pushdown": "true",
    }
    query = parse_batch({**needed, **options}, user="ann", read_text=str)
    return FilteringReader(query, full_schema(include_headers=False), FakeTiers(positions).tiers())


def _rows(reader: TieredReader) -> list[Row]:
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
            found += list(zip(*columns, strict=True))
    return sorted(found)


def _positions() -> FakePositions:
    return FakePositions(
        {
            **topic("a", FakeLog([1_000] * 5 + [2_000] * 5), FakeLog([3_000] * 4, start=6)),
            **topic("b", FakeLog([1_000, 5_000, 2_000])),
        }
    )


def _passes(row: Row, filters: list[Filter]) -> bool:
    """Spark's semantics of the filters used here."""
    values: dict[str, object] = dict(zip(("topic", "partition", "offset"), row, strict=True))
    return all(_one_passes(values[each.attribute[0]], each) for each in filters)  # type: ignore[attr-defined]


def _one_passes(value: object, each: Filter) -> bool:
    wanted = getattr(each, "value", None)
    match each:
        case EqualTo() | EqualNullSafe():
            return value == wanted
        case In():
            return value in each.value
        case IsNotNull():
            return value is not None
    assert isinstance(value, int)
    assert isinstance(wanted, int)
    match each:
        case GreaterThan():
            return value > wanted
        case GreaterThanOrEqual():
            return value >= wanted
        case LessThan():
            return value < wanted
        case LessThanOrEqual():
            return value <= wanted
        case _:
            raise AssertionError(each)


_NAMES = st.sampled_from(["a", "b", "c"])
_NUMBERS = st.integers(-1, 2)
_OFFSETS = st.integers(-2, 12)
_FILTERS = st.one_of(
    st.builds(EqualTo, st.just(("topic",)), _NAMES),
    st.builds(In, st.just(("topic",)), st.lists(_NAMES, max_size=2).map(tuple)),
    st.builds(EqualTo, st.just(("partition",)), _NUMBERS),
    st.builds(In, st.just(("partition",)), st.lists(_NUMBERS, max_size=2).map(tuple)),
    st.builds(IsNotNull, st.sampled_from([("topic",), ("partition",), ("offset",)])),
    *(
        st.builds(kind, st.just(("offset",)), _OFFSETS)
        for kind in (
            EqualTo,
            EqualNullSafe,
            GreaterThan,
            GreaterThanOrEqual,
            LessThan,
            LessThanOrEqual,
        )
    ),
)


@given(st.lists(_FILTERS, min_size=1, max_size=4), st.integers(1, 9), st.integers(0, 3))
def test_filters_taken_over_leave_exactly_the_rows_that_pass(
    filters: list[Filter], min_partitions: int, growth: int
) -> None:
    everything = _positions()
    for log in everything.logs.values():
        log.append(growth)
    wanted = [row for row in _rows(_reader(everything)) if _passes(row, filters)]
    positions = _positions()
    reader = _reader(positions, minPartitions=str(min_partitions))

    assert list(reader.pushFilters(filters)) == []
    partitions = reader.partitions()
    for log in positions.logs.values():
        log.append(growth)
    found = []
    for partition in partitions:
        for batch in reader.read(partition):
            columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
            found += list(zip(*columns, strict=True))

    assert sorted(found) == wanted


@pytest.mark.parametrize(
    "kept",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("value",)),
        IsNull(("topic",)),
        Not(EqualTo(("topic",), "a")),
        StringStartsWith(("topic",), "a"),
        EqualTo(("topic",), None),
        EqualNullSafe(("partition",), None),
        In(("partition",), (0, None)),
        GreaterThan(("partition",), 0),
        In(("offset",), (1, 2)),
        EqualTo(("offset",), None),
        EqualTo(("offset",), True),
        EqualTo(("topic", "x"), "a"),
        LessThan(("timestamp",), datetime(2020, 1, 1, tzinfo=UTC)),
        GreaterThan(("timestamp",), datetime(2020, 1, 1)),
        IsNotNull(("headers",)),
    ],
    ids=str,
)
def test_everything_else_is_handed_back_and_changes_nothing(kept: Filter) -> None:
    assert taken(Bounds(), kept) == (Bounds(), False)


def _at(millis: int, micros: int = 0) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC).replace(
        microsecond=millis % 1000 * 1000 + micros
    )


@pytest.mark.parametrize(
    ("wanted", "first_ms"),
    [
        (GreaterThanOrEqual(("timestamp",), _at(2_000)), 2_000),
        (GreaterThanOrEqual(("timestamp",), _at(2_000, 1)), 2_001),
        (GreaterThan(("timestamp",), _at(2_000)), 2_001),
        (GreaterThan(("timestamp",), _at(2_000, 999)), 2_001),
        (EqualTo(("timestamp",), _at(2_000)), 2_000),
    ],
)
def test_a_lower_bound_of_time_skips_and_is_handed_back(wanted: Filter, first_ms: int) -> None:
    bounds, is_done = taken(Bounds(), wanted)

    assert bounds.from_timestamp_ms == first_ms
    assert not is_done


def test_time_bounds_take_the_latest() -> None:
    bounds, _ = taken(Bounds(), GreaterThan(("timestamp",), _at(5_000)))
    bounds, _ = taken(bounds, GreaterThan(("timestamp",), _at(3_000)))

    assert bounds.from_timestamp_ms == 5_001


def test_what_lies_before_a_time_is_not_read_but_later_records_that_are_earlier_are() -> None:
    positions = _positions()
    reader = _reader(positions, minPartitions="7", endingOffsets="latest")
    late = GreaterThanOrEqual(("timestamp",), _at(2_000))

    assert list(reader.pushFilters([late])) == [late]

    assert _rows(reader) == [
        *(("a", 0, offset) for offset in range(5, 10)),
        *(("a", 1, offset) for offset in range(6, 10)),
        ("b", 0, 1),
        ("b", 0, 2),
    ]


def test_a_time_after_every_record_leaves_only_what_comes_later() -> None:
    positions = FakePositions(topic("t", FakeLog([1_000] * 5)))
    reader = _reader(positions)
    list(reader.pushFilters([GreaterThan(("timestamp",), _at(8_000))]))

    partitions = reader.partitions()
    positions.logs[TopicPartition("t", 0)].append(2, 9_000)

    rows = [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == [5, 6]


def test_a_fixed_end_and_a_time_after_every_record_is_an_empty_plan() -> None:
    positions = FakePositions(topic("t", FakeLog([1_000] * 5)))
    reader = _reader(positions, subscribePattern="t", endingOffsets='{"t":{"0":4}}')
    list(reader.pushFilters([GreaterThan(("timestamp",), _at(8_000))]))

    assert reader.partitions() == []


def test_the_reader_without_the_option_does_not_define_push_filters() -> None:
    """PySpark refuses a reader that does while its switch is off."""
    assert "pushFilters" not in vars(TieredReader)
    assert "pushFilters" in vars(FilteringReader)
