"""Which uncopied segments are held open first while the brokers' own retention is bounded (H14).

Not all can be: open files are limited. A broker deletes the oldest segments of a partition first,
and by age none before all below it are too old. So the oldest of all partitions are chosen; of each
partition always the first ones, without a gap. Pure.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from kip405.ids import PartitionKey
from rlm.log_dir.scanner import LocalSegment


def oldest(
    uncopied: Mapping[PartitionKey, Sequence[LocalSegment]], room: int
) -> dict[PartitionKey, frozenset[int]]:
    """Base offsets of at most `room` of these segments (ascending for each partition)."""
    by_age = sorted(
        (
            (newest_ms, key, segment.base_offset)
            for key, segments in uncopied.items()
            for newest_ms, segment in zip(
                accumulate((one.max_timestamp_ms for one in segments), max), segments, strict=True
            )
        ),
        key=lambda row: row[0],
    )
    chosen: dict[PartitionKey, set[int]] = {}
    for _, key, base_offset in by_age[: max(room, 0)]:
        chosen.setdefault(key, set()).add(base_offset)
    return {key: frozenset(bases) for key, bases in chosen.items()}
