"""When a closed segment of 0 bytes is proven to hold no records."""

from dataclasses import replace
from typing import Any

import pytest

from rlm.log_dir.scanner import PartitionLog
from rlm.plans.coverage import Cover, OffsetRange, doubtful_segments, empty_ranges
from rlmm.ledger import Hole
from tests.rlm.plans.views import lineage, local

EMPTY = OffsetRange(start=100, next_offset=200)


def partition_log(*, indexes_size_bytes: int | None = 0, **changes: Any) -> PartitionLog:
    """[0, 100) with records, [100, 200) of 0 bytes, the rest active; all flushed and cleaned."""
    first, second, active = local(0, 100, 200)
    log = PartitionLog(
        topic="orders",
        partition=0,
        topic_id=None,
        directory="/data/orders-0",
        segments=(
            first,
            replace(second, size_bytes=0, indexes_size_bytes=indexes_size_bytes),
            active,
        ),
        lineage=lineage({0: 0}),
        recovery_point=200,
        cleaned_up_to=200,
    )
    return replace(log, **changes)


def test_what_the_cleaner_has_emptied_holds_no_records() -> None:
    assert empty_ranges(partition_log()) == (EMPTY,)
    assert doubtful_segments(partition_log(), 0) == ()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"indexes_size_bytes": 12}, "indexes are not empty"),
        ({"indexes_size_bytes": None}, "indexes are not empty"),
        ({"recovery_point": None}, "flushed only up to None"),
        ({"recovery_point": 199}, "flushed only up to 199"),
        ({"cleaned_up_to": None}, "cleaner has not worked"),
        ({"cleaned_up_to": 199}, "cleaner has not worked"),
    ],
)
def test_a_file_that_may_have_lost_its_bytes_is_not_taken_for_empty(
    changes: dict[str, Any], why: str
) -> None:
    log = partition_log(**changes)
    assert empty_ranges(log) == ()
    (found,) = doubtful_segments(log, 0)
    assert (found.base_offset, found.next_offset) == (100, 200)
    assert why in found.why
    assert doubtful_segments(log, 200) == ()


def test_h15_an_accepted_loss_stands_for_the_proof_if_it_covers_the_segment() -> None:
    log = partition_log(cleaned_up_to=None)
    whole = [Hole(start=90, end=200, cause="accepted")]
    assert empty_ranges(log, whole) == (EMPTY,)
    assert doubtful_segments(log, 0, whole) == ()
    part = [Hole(start=100, end=199, cause="accepted")]
    assert empty_ranges(log, part) == ()
    assert len(doubtful_segments(log, 0, part)) == 1


def copies(*ranges: tuple[int, int]) -> Cover:
    return Cover.of(OffsetRange(start=start, next_offset=end) for start, end in ranges)


@pytest.mark.parametrize(
    ("copied", "hole", "empty"),
    [
        ((0, 150), (150, 200), (150, 200)),
        ((150, 250), (90, 160), (100, 150)),
        ((0, 250), (100, 101), None),
    ],
)
def test_h15_what_an_accepted_loss_leaves_a_copy_has(
    copied: tuple[int, int], hole: tuple[int, int], empty: tuple[int, int] | None
) -> None:
    """The copy was found again, and its part is on record as lost no longer."""
    log = partition_log(cleaned_up_to=None)
    holes = [Hole(start=hole[0], end=hole[1], cause="accepted")]
    expected = (OffsetRange(start=empty[0], next_offset=empty[1]),) if empty else ()
    assert doubtful_segments(log, 0, holes, lambda: copies(copied)) == ()
    assert empty_ranges(log, holes, lambda: copies(copied)) == expected
    assert len(doubtful_segments(log, 0, holes)) == 1


@pytest.mark.parametrize(("copied", "hole"), [((0, 150), (151, 200)), ((0, 149), (150, 200))])
def test_h15_what_neither_has_keeps_the_segment_in_doubt(
    copied: tuple[int, int], hole: tuple[int, int]
) -> None:
    log = partition_log(cleaned_up_to=None)
    holes = [Hole(start=hole[0], end=hole[1], cause="accepted")]
    assert len(doubtful_segments(log, 0, holes, lambda: copies(copied))) == 1
    assert empty_ranges(log, holes, lambda: copies(copied)) == ()


def test_copies_are_asked_only_where_a_segment_has_no_bytes() -> None:
    def never() -> Cover:
        raise AssertionError("decodes every segment of the ledger")

    log = partition_log(segments=local(0, 100))
    assert empty_ranges(log, (), never) == ()
    assert doubtful_segments(log, 0, (), never) == ()


def test_the_active_segment_is_not_empty_but_new() -> None:
    first, active = local(0, 100)
    log = partition_log(segments=(first, replace(active, size_bytes=0)))
    assert empty_ranges(log) == ()
    assert doubtful_segments(log, 0) == ()
