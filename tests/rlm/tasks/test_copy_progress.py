"""Progress of a backlog: rate of the last minute, time left, and how often it is logged."""

import pytest

from rlm.service.gauges import copy_gauges
from rlm.tasks.copy_progress import Copying, CopyProgress, Progress


def after(*copied: tuple[int, int]) -> CopyProgress:
    """Segments of so many bytes, each copied at its second."""
    progress = CopyProgress()
    for second, size_bytes in copied:
        progress.is_due(second * 1000, size_bytes)
    return progress


def test_the_rate_is_that_of_the_last_minute() -> None:
    progress = after(*((second, 1_000 if second < 100 else 50_000) for second in range(0, 200, 10)))
    assert progress.of(190_000, 7, 100_001) == Progress(
        segments_left=7, bytes_left=100_001, bytes_per_second=5_000, left_ms=20_001
    )


@pytest.mark.parametrize("copied", [[], [(0, 1_000)], [(5, 1_000), (5, 1_000)]])
def test_h38_before_two_copies_the_rate_is_unknown(copied: list[tuple[int, int]]) -> None:
    assert after(*copied).of(5_000, 1, 1_000) == Progress(
        segments_left=1, bytes_left=1_000, bytes_per_second=None, left_ms=None
    )


def test_large_segments_have_a_rate_though_none_ends_within_a_minute() -> None:
    progress = after((0, 9), (100, 400), (200, 600), (300, 400))
    assert progress.of(310_000, 1, 400).bytes_per_second == 4


@pytest.mark.parametrize(
    ("second", "rate", "left_ms"),
    [(30, 100, 10_000), (40, 100, 10_000), (60, 50, 20_000), (6_000, 0, None)],
)
def test_while_nothing_is_copied_the_rate_falls(second: int, rate: int, left_ms: int) -> None:
    found = after((0, 1_000), (10, 1_000), (20, 1_000), (30, 1_000)).of(second * 1000, 1, 1_000)
    assert (found.bytes_per_second, found.left_ms) == (rate, left_ms)


def test_h38_what_is_not_known_has_no_sample() -> None:
    progress = after((0, 1_000), (10, 1_000))
    found = Copying(
        progress=progress.of(10_000, 2, 500), unmeasured_partitions=0, limit_bytes_per_second=150
    )
    assert copy_gauges(found) == {
        "rlm_copy_left_bytes": {(): 500},
        "rlm_copy_unmeasured_partitions": {(): 0},
        "rlm_copy_limit_bytes_per_second": {(): 150},
        "rlm_copy_bytes_per_second": {(): 100},
        "rlm_copy_left_seconds": {(): 5.0},
    }
    found = Copying(
        progress=after().of(0, 0, 0), unmeasured_partitions=3, limit_bytes_per_second=150
    )
    assert copy_gauges(found) == {
        "rlm_copy_left_bytes": {(): 0},
        "rlm_copy_unmeasured_partitions": {(): 3},
        "rlm_copy_limit_bytes_per_second": {(): 150},
    }


def test_it_is_logged_every_half_minute_of_copies_and_not_when_they_begin() -> None:
    progress = CopyProgress()
    copied_s = [*range(0, 100, 5), 500, 505, 535]
    assert [at for at in copied_s if progress.is_due(at * 1000, 1)] == [30, 60, 90, 535]
