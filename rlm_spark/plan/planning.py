"""Plans a batch query: turns its topics and offsets into the ranges that tasks read.

The driver plans at each execution. Spark keeps the plan of a DataFrame that is executed twice, so
a range that begins at the earliest or ends at the latest offset is marked, and the task asks for
that offset again (late binding, as in Spark's getOffsetRangesFromUnresolvedOffsets). Pure except
for `Positions`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rlm_spark.plan import offsets, ranges
from rlm_spark.plan.offset_specs import EARLIEST, LATEST
from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.options import BatchQuery, Query
from rlm_spark.values import OffsetRange, TopicPartition

__all__ = ["PlannedRange", "Positions", "plan_batch", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """What one task reads: `wanted` as it was when planned, and which of its edges move.

    `from_earliest`: offsets that are gone at its start are no data loss. `to_latest`: what has
    come since planning belongs to it, up to `before_offset` where a filter gives one.
    """

    wanted: OffsetRange
    from_earliest: bool = False
    to_latest: bool = False
    before_offset: int | None = None

    @property
    def place(self) -> TopicPartition:
        return self.wanted.place


def plan_batch(query: BatchQuery, positions: Positions) -> list[PlannedRange]:
    """The ranges of `query` now, by topic, partition and offset.

    A partition without records gets a range only where its end may move. Errors: OptionError,
    OffsetError (start after end, partitions named that are not there).
    """
    places = offsets.assigned(query.subscription, positions, must_exist=True)
    start = offsets.bound(query.starting, places, positions, starting=True)
    end = offsets.bound(query.ending, places, positions, starting=False)
    first, last = offsets.resolved(start, positions), offsets.resolved(end, positions)
    whole: list[PlannedRange] = []
    for place in sorted(first.keys() & last.keys()):
        from_earliest = start[place] == EARLIEST
        if not from_earliest:
            offsets.check_resolved(place, first[place], last[place])
        whole.append(
            PlannedRange(
                wanted=OffsetRange(
                    place=place,
                    start_offset=first[place],
                    end_offset=max(first[place], last[place]),
                ),
                from_earliest=from_earliest,
                to_latest=end[place] == LATEST,
            )
        )
    return split(whole, query)


def split(whole: Iterable[PlannedRange], query: Query) -> list[PlannedRange]:
    """At most one range a partition, divided as the query says; moving edges stay at the ends."""
    by_place = {each.place: each for each in whole}
    parts: dict[TopicPartition, list[OffsetRange]] = {place: [] for place in by_place}
    for part in ranges.split(
        (each.wanted for each in by_place.values()),
        min_partitions=query.min_partitions,
        max_records_per_partition=query.max_records_per_partition,
    ):
        parts[part.place].append(part)
    return [
        planned for place, each in by_place.items() for planned in _with_edges(each, parts[place])
    ]


def _with_edges(whole: PlannedRange, parts: list[OffsetRange]) -> list[PlannedRange]:
    if not parts:
        return [whole] if whole.to_latest else []
    last = len(parts) - 1
    return [
        replace(
            whole,
            wanted=part,
            from_earliest=whole.from_earliest and number == 0,
            to_latest=whole.to_latest and number == last,
            before_offset=whole.before_offset if number == last else None,
        )
        for number, part in enumerate(parts)
    ]
