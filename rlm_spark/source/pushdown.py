"""Applies filters on topic, partition, offset and timestamp by reading fewer offsets.

Spark does not repeat a filter that this module accepts, so it accepts only filters for which the
ranges then contain exactly the matching rows: equality and IN of topic and partition, comparisons
of offset, NOT NULL of columns that are never null. A lower bound of timestamp only skips records
before the first one at that time, and Spark filters again. All other filters are returned to Spark.

`FilteringReader` is a class of its own because PySpark refuses any reader with `pushFilters` while
spark.sql.python.filterPushdown.enabled is off.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.options import BatchQuery
from rlm_spark.plan.planning import PlannedRange, plan_batch
from rlm_spark.source.pyspark_readers import TieredReader
from rlm_spark.source.reading import Tiers
from tiered_reads.values import TopicPartition

_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NO_OFFSET: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The offsets and values that the filters taken so far allow; None: any."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    before_offset: int = _NO_OFFSET
    from_timestamp_ms: int | None = None

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition can hold rows that pass."""
        return (self.topics is None or topic_partition.topic in self.topics) and (
            self.partitions is None or topic_partition.partition in self.partitions
        )


def taken(bounds: Bounds, wanted: Filter) -> tuple[Bounds, bool]:
    """The bounds with `wanted` in them, and whether Spark need not apply the filter again."""
    if isinstance(wanted, IsNotNull):
        return bounds, len(wanted.attribute) == 1 and wanted.attribute[0] in _NEVER_NULL
    column = getattr(wanted, "attribute", ())
    match column:
        case ("topic",):
            return _topic(bounds, wanted)
        case ("partition",):
            return _partition(bounds, wanted)
        case ("offset",):
            return _offset(bounds, wanted)
        case ("timestamp",):
            return _timestamp(bounds, wanted), False
        case _:
            return bounds, False


def trimmed(
    plan: Iterable[PlannedRange], bounds: Bounds, positions: Positions
) -> list[PlannedRange]:
    """The plan with only what `bounds` leaves; ranges whose end may still move stay, cut."""
    kept = [each for each in (_cut(each, bounds) for each in plan) if each is not None]
    if bounds.from_timestamp_ms is None or not kept:
        return kept
    wanted_ms = {each.topic_partition: bounds.from_timestamp_ms for each in kept}
    first = positions.for_timestamps(wanted_ms)
    late = [
        _from(each, first[each.topic_partition]) if each.topic_partition in first else each
        for each in kept
    ]
    return [each for each in late if each.wanted.size > 0 or each.to_latest]


class FilteringReader(TieredReader):
    """A batch read that applies filters itself."""

    def __init__(self, query: BatchQuery, schema: StructType, tiers: Tiers | None = None) -> None:
        super().__init__(query, schema, tiers)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Takes the filters that offsets can express; yields those that Spark must apply itself."""
        for wanted in filters:
            self._bounds, is_done = taken(self._bounds, wanted)
            if not is_done:
                yield wanted

    def _plan(self) -> list[PlannedRange]:
        with self._tiers.open_positions(self._query.connector) as positions:
            return trimmed(plan_batch(self._query, positions), self._bounds, positions)


def _topic(bounds: Bounds, wanted: Filter) -> tuple[Bounds, bool]:
    values = _values(wanted)
    if values is None or not all(isinstance(value, str) for value in values):
        return bounds, False
    names = frozenset(str(value) for value in values)
    topics = names if bounds.topics is None else names & bounds.topics
    return replace(bounds, topics=topics), True


def _partition(bounds: Bounds, wanted: Filter) -> tuple[Bounds, bool]:
    values = _values(wanted)
    if values is None:
        return bounds, False
    numbers = frozenset(
        value for value in values if isinstance(value, int) and not isinstance(value, bool)
    )
    if len(numbers) != len(values):
        return bounds, False
    partitions = numbers if bounds.partitions is None else numbers & bounds.partitions
    return replace(bounds, partitions=partitions), True


def _offset(bounds: Bounds, wanted: Filter) -> tuple[Bounds, bool]:
    value = getattr(wanted, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return bounds, False
    match wanted:
        case EqualTo() | EqualNullSafe():
            first, before = value, value + 1
        case GreaterThan():
            first, before = value + 1, _NO_OFFSET
        case GreaterThanOrEqual():
            first, before = value, _NO_OFFSET
        case LessThan():
            first, before = 0, value
        case LessThanOrEqual():
            first, before = 0, value + 1
        case _:
            return bounds, False
    return (
        replace(
            bounds,
            from_offset=max(bounds.from_offset, first),
            before_offset=min(bounds.before_offset, before),
        ),
        True,
    )


def _timestamp(bounds: Bounds, wanted: Filter) -> Bounds:
    """Only lower bounds: later records may be earlier in time."""
    value = getattr(wanted, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return bounds
    micros = (value - _EPOCH) // _MICROSECOND
    match wanted:
        case EqualTo() | EqualNullSafe() | GreaterThanOrEqual():
            first_ms = -(-micros // 1000)
        case GreaterThan():
            first_ms = micros // 1000 + 1
        case _:
            return bounds
    if first_ms <= 0:
        return bounds
    return replace(bounds, from_timestamp_ms=max(first_ms, bounds.from_timestamp_ms or 0))


def _values(wanted: Filter) -> set[object] | None:
    """The values that the filter allows for the column; None if it is another kind of filter."""
    match wanted:
        case EqualTo() | EqualNullSafe():
            return {wanted.value}
        case In():
            return set(wanted.value)
        case _:
            return None


def _cut(planned: PlannedRange, bounds: Bounds) -> PlannedRange | None:
    if not bounds.admits(planned.topic_partition):
        return None
    start = max(planned.wanted.start_offset, bounds.from_offset)
    end = min(planned.wanted.end_offset, bounds.before_offset)
    may_grow = planned.to_latest and end < bounds.before_offset
    if start >= end and not may_grow:
        return None
    return replace(
        planned,
        wanted=replace(planned.wanted, start_offset=start, end_offset=max(start, end)),
        to_latest=may_grow,
        before_offset=bounds.before_offset if may_grow else None,
    )


def _from(planned: PlannedRange, first_offset: int | None) -> PlannedRange:
    """The range from `first_offset` on; None if all of it lies before."""
    start, end = planned.wanted.start_offset, planned.wanted.end_offset
    start = end if first_offset is None else min(max(first_offset, start), end)
    return replace(planned, wanted=replace(planned.wanted, start_offset=start))
