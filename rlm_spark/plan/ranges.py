"""Divides offset ranges into tasks, and shares a limit between partitions.

The rules are those of Spark's KafkaOffsetRangeCalculator (minPartitions, maxRecordsPerPartition)
and of KafkaMicroBatchStream.rateLimit, in whole numbers. Spark computes shares as doubles, which is
the same for every size where doubles are exact. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rlm_spark.values import OffsetRange, TopicPartition

_MAX_OFFSET: Final = (1 << 63) - 1


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """The ranges of the tasks; empty and backward ranges are dropped, order is kept.

    First no range has more than `max_records_per_partition` offsets; then, where these are fewer
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
        place: offset - start[place]
        for place, offset in end.items()
        if place in start and offset > start[place]
    }
    total = sum(sizes.values())
    if total < 1:
        return dict(end)
    return {
        place: (
            min(offset, start[place] + _share(limit, sizes[place], total), _MAX_OFFSET)
            if place in sizes
            else offset
        )
        for place, offset in end.items()
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
    """`parts` ranges of one size; what the division leaves over goes to the last ones."""
    divided = []
    start = whole.start_offset
    for left in range(parts, 0, -1):
        end = start + (whole.end_offset - start) // left
        if end > start:
            divided.append(OffsetRange(place=whole.place, start_offset=start, end_offset=end))
        start = end
    return divided


def _share(limit: int, size: int, total: int) -> int:
    share = limit * size
    return min(share, 1) if share < total else share // total
