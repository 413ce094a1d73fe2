"""The other ways to the same rows: `rlm_spark.read`, a schema of the user's, filters taken over."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

import rlm_spark
from tests.scenarios.cluster import Row
from tests.spark.conftest import Twins
from tests.spark.lab import COMMITTED, Lab, assert_equal, failure, seen

pytestmark = pytest.mark.integration

_SWITCH = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def filters(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(_SWITCH, "true")
    yield
    spark.conf.unset(_SWITCH)


def test_read_without_a_data_source_equals_the_twin(lab: Lab, twins: Twins) -> None:
    """What Spark 3.5 has; here on the Spark that is installed."""
    options = {**lab.connection(), **COMMITTED, "subscribe": twins.tiered}

    frame = rlm_spark.read(lab.spark, includeHeaders=True, minPartitions=5, **options)
    values = rlm_spark.read(lab.spark, schema="offset bigint, value binary", **options)

    assert_equal(seen(frame), twins.expected(committed=True))
    assert values.columns == ["offset", "value"]
    assert values.count() == len(twins.committed_rows)


def test_a_users_schema_is_read_and_nothing_else(lab: Lab, twins: Twins) -> None:
    reader = lab.spark.read.format(lab.source).options(
        **{**lab.connection(), "subscribe": twins.tiered}
    )

    rows = reader.schema("value binary, offset bigint").load().collect()

    wanted = sorted((row.offset, row.value or b"") for row in twins.rows)
    assert sorted((row.offset, bytes(row.value or b"")) for row in rows) == wanted
    said = failure(lambda: reader.schema("offset int").load())
    assert "column 'offset' is bigint, not int" in said


@pytest.mark.usefixtures("filters")
def test_filters_taken_over_leave_the_rows_that_pass(lab: Lab, twins: Twins) -> None:
    frame = lab.read(twins.tiered, {"pushdown": "true"})
    middle = sorted(row.offset for row in twins.rows)[len(twins.rows) // 2]
    late_ms = sorted(row.timestamp_ms for row in twins.rows)[len(twins.rows) // 3]
    late = datetime.fromtimestamp(late_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    def offsets(condition: str) -> list[tuple[int, int]]:
        rows = frame.filter(condition).select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    def topic_partitions(rows: list[Row]) -> list[tuple[int, int]]:
        return sorted((row.partition, row.offset) for row in rows)

    some = list(twins.rows)
    assert offsets(
        f"topic = '{twins.tiered}' and partition = 0 and offset >= {middle}"
    ) == topic_partitions([row for row in some if row.partition == 0 and row.offset >= middle])
    assert offsets(f"partition in (1, 2) and offset < {middle} and offset > 3") == topic_partitions(
        [row for row in some if row.partition in (1, 2) and 3 < row.offset < middle]
    )
    assert offsets(f"timestamp >= timestamp'{late}'") == topic_partitions(
        [row for row in some if row.timestamp_ms >= late_ms]
    )
    assert offsets(f"timestamp > timestamp'{late}'") == topic_partitions(
        [row for row in some if row.timestamp_ms > late_ms]
    )
    assert offsets("topic = 'another'") == []


def test_pushdown_without_sparks_switch_says_which(lab: Lab, twins: Twins) -> None:
    assert _SWITCH.lower() in failure(lambda: lab.read(twins.tiered, {"pushdown": "true"}))
