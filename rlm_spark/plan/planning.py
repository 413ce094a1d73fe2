"""Plans a query: turns topics and offsets into the ranges that tasks read.

The driver plans at each execution. Spark keeps the plan of a DataFrame that is executed twice, so
a range that begins at the earliest or ends at the latest offset is flagged, and the task asks for
that offset again (late binding, as in Spark's getOffsetRangesFromUnresolvedOffsets).

Ranges are divided by the rules of Spark's KafkaOffsetRangeCalculator (minPartitions,
maxRecordsPerPartition), and a limit is shared between partitions by those of
KafkaMicroBatchStream.rateLimit, both in whole numbers. Spark computes shares as doubles, which is
the same for every size where doubles are exact. Pure except for `Positions`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rlm_spark.plan import offsets
from rlm_spark.plan.offset_specs import EARLIEST, LATEST
from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.options import BatchQuery, Query
from tiered_reads.values import OffsetRange, TopicPartition


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
    def topic_partition(self) -> TopicPartition:
        return self.wanted.topic_partition


def plan_batch(query: BatchQuery, positions: Positions) -> list[PlannedRange]:
    """The ranges of `query` now, by topic, partition and offset.

    A partition without records gets a range only where its end may move. Errors: OptionError,
    OffsetError (start after end, partitions named that are not there).
    """
    topic_partitions = offsets.assigned(query.subscription, positions, must_exist=True)
    start = offsets.bound(query.starting, topic_partitions, positions, starting=True)
    end = offsets.bound(query.ending, topic_partitions, positions, starting=False)
    first, last = offsets.resolved(start, positions), offsets.resolved(end, positions)
    whole: list[PlannedRange] = []
    for topic_partition in sorted(first.keys() & last.keys()):
        from_earliest = start[topic_partition] == EARLIEST
        if not from_earliest:
            offsets.check_resolved(topic_partition, first[topic_partition], last[topic_partition])
        whole.append(
            PlannedRange(
                wanted=OffsetRange(
                    topic_partition=topic_partition,
                    start_offset=first[topic_partition],
                    end_offset=max(first[topic_partition], last[topic_partition]),
                ),
                from_earliest=from_earliest,
                to_latest=end[topic_partition] == LATEST,
            )
        )
    return split(whole, query)


def split(whole: Iterable[PlannedRange], query: Query) -> list[PlannedRange]:
    """Divides ranges, at most one a partition, as the query says; moving edges stay at the ends."""
    by_topic_partition = {each.topic_partition: each for each in whole}
    divided: dict[TopicPartition, list[OffsetRange]] = {
        topic_partition: [] for topic_partition in by_topic_partition
    }
    for part in divide(
        (each.wanted for each in by_topic_partition.values()),
        min_partitions=query.min_partitions,
        max_records_per_partition=query.max_records_per_partition,
    ):
        divided[part.topic_partition].append(part)
    return [
        planned
        for topic_partition, each in by_topic_partition.items()
        for planned in _with_edges(each, divided[topic_partition])
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


_MAX_OFFSET: Final = (1 << 63) - 1


def divide(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """The ranges of the tasks; empty and backward ranges are dropped, order is kept.

    First, no range keeps more than `max_records_per_partition` offsets; then, where these are fewer
    than `min_partitions`, the large ones are divided further, in proportion to their size: about
    `min_partitions`, not exactly.
    """
    wanted = [each for each in ranges if each.size > 0]
    if max_records_per_partition is not None:
        wanted = [
            part
            for each in wanted
            for part in _divided(each, -(-each.size // max_records_per_partition))
        ]
    if min_partitions is None or len(wanted) >= min_partitions:
        return wanted
    return _spread(wanted, min_partitions)


def rate_limited(
    limit: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """End offsets that lie about `limit` offsets after `start` in all, each partition by its share.

    A partition with less than one offset as its share gets one, so that none starves; no end is
    passed. A partition without a start is given its end. `start` must hold the earliest offset of
    partitions that are new.
    """
    sizes = {
        topic_partition: offset - start[topic_partition]
        for topic_partition, offset in end.items()
        if topic_partition in start and offset > start[topic_partition]
    }
    total = sum(sizes.values())
    if total < 1:
        return dict(end)
    return {
        topic_partition: (
            min(
                offset,
                start[topic_partition] + _share(limit, sizes[topic_partition], total),
                _MAX_OFFSET,
            )
            if topic_partition in sizes
            else offset
        )
        for topic_partition, offset in end.items()
    }


def _spread(ranges: Sequence[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    total = sum(each.size for each in ranges)
    small = [_parts(each.size, total, min_partitions) == 1 for each in ranges]
    left = total - sum(each.size for each, alone in zip(ranges, small, strict=True) if alone)
    left_partitions = max(min_partitions - sum(small), 1)
    return [
        part
        for each, alone in zip(ranges, small, strict=True)
        for part in _divided(each, 1 if alone else _parts(each.size, left, left_partitions))
    ]


def _parts(size: int, total: int, min_partitions: int) -> int:
    """`size * min_partitions / total` rounded half up, at least 1."""
    return max((2 * size * min_partitions + total) // (2 * total), 1)


def _divided(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of equal size; the last ones take the remainder."""
    divided = []
    start = whole.start_offset
    for left in range(parts, 0, -1):
        end = start + (whole.end_offset - start) // left
        if end > start:
            divided.append(
                OffsetRange(
                    topic_partition=whole.topic_partition, start_offset=start, end_offset=end
                )
            )
        start = end
    return divided


def _share(limit: int, size: int, total: int) -> int:
    share = limit * size
    return min(share, 1) if share < total else share // total
