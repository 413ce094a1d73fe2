"""The oldest uncopied segments of all partitions are held first (H14)."""

from dataclasses import replace

from kip405.ids import PartitionKey
from rlm.log_dir.scanner import Closed, LocalSegment
from rlm.plans.holds import oldest
from tests.builders.log_dir import TOPIC_ID

SOME, OTHER = PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 1)
SEGMENT = LocalSegment(
    base_offset=0,
    next_offset=10,
    closed=Closed.CLOSED,
    size_bytes=1,
    inode=1,
    path="/d/00000000000000000000.log",
    max_timestamp_ms=0,
)


def segments(*newest_ms: int) -> list[LocalSegment]:
    return [
        replace(SEGMENT, base_offset=number * 10, max_timestamp_ms=at)
        for number, at in enumerate(newest_ms)
    ]


def test_h14_the_oldest_of_all_partitions_come_first() -> None:
    uncopied = {SOME: segments(1, 5, 9), OTHER: segments(2, 3)}
    assert oldest(uncopied, 3) == {SOME: {0}, OTHER: {0, 10}}
    assert oldest(uncopied, 9) == {SOME: {0, 10, 20}, OTHER: {0, 10}}


def test_h14_of_a_partition_the_first_ones_without_a_gap() -> None:
    """A broker deletes by age up to the first segment that is not too old."""
    uncopied = {SOME: segments(9, 1, 2), OTHER: segments(5)}
    assert oldest(uncopied, 1) == {OTHER: {0}}
    assert oldest(uncopied, 3) == {OTHER: {0}, SOME: {0, 10}}


def test_g10_without_room_nothing_is_held() -> None:
    assert oldest({SOME: segments(1)}, 0) == {}
    assert oldest({SOME: segments(1)}, -1) == {}
