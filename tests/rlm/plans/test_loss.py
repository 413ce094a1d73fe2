"""When the broker's own retention deletes what is not remote (H15)."""

import pytest

from rlm.log_dir.scanner import Closed, LocalSegment
from rlm.plans.coverage import Cover, OffsetRange
from rlm.plans.loss import ComingLoss, LossView, coming_loss
from rlmm.settings_records import TotalRetention

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


def segment(base: int, end: int | None, *, age_h: int, size: int = 1_000) -> LocalSegment:
    return LocalSegment(
        base_offset=base,
        next_offset=end,
        closed=Closed.ACTIVE if end is None else Closed.CLOSED,
        size_bytes=size,
        inode=base,
        path=f"{base:020d}.log",
        max_timestamp_ms=NOW_MS - age_h * HOUR_MS,
    )


LOG = (
    segment(0, 100, age_h=3),
    segment(100, 200, age_h=2),
    segment(200, 300, age_h=1),
    segment(300, None, age_h=0),
)
"""It grows by 1,000 bytes an hour."""


def view(
    *,
    segments: tuple[LocalSegment, ...] = LOG,
    copied: int = 100,
    start: int = 0,
    age_h: int | None = None,
    most: int = -1,
    total_h: int | None = None,
) -> LossView:
    return LossView(
        segments=segments,
        covered=Cover.of([OffsetRange(start=0, next_offset=copied)]),
        start=start,
        retention=TotalRetention(
            retention_ms=-1 if age_h is None else age_h * HOUR_MS, retention_bytes=most
        ),
        total_ms=-1 if total_h is None else total_h * HOUR_MS,
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(
    ("given", "offsets", "in_h"),
    [
        (view(), None, None),
        (view(age_h=10), (100, 200), 8),
        (view(age_h=10, total_h=10), (100, 200), 8),
        (view(age_h=10, start=150), (150, 200), 8),
        (view(age_h=10, start=250), (250, 300), 9),
        (view(age_h=10, copied=0), (0, 100), 7),
        (view(age_h=2), (100, 200), 0),
        (view(age_h=1), (100, 200), 0),
        (view(most=5_000), (100, 200), 3),
        (view(most=2_000), (100, 200), 0),
        (view(most=1_000), (100, 200), 0),
        (view(age_h=10, most=5_000), (100, 200), 3),
        (view(age_h=4, most=50_000), (100, 200), 2),
        (view(copied=300, age_h=10), (300, None), 10),
        (view(copied=300, age_h=10, total_h=11), (300, None), 10),
        (view(copied=300, age_h=10, total_h=10), None, None),
        (view(copied=300, most=1), None, None),
        (view(segments=(), age_h=10), None, None),
        (view(segments=(segment(0, None, age_h=0, size=0),), copied=0, age_h=9), None, None),
    ],
)
def test_h15_the_first_loss(
    given: LossView, offsets: tuple[int, int | None] | None, in_h: int | None
) -> None:
    found = coming_loss(given)
    assert (None if found is None else (found.start_offset, found.next_offset)) == offsets
    assert (None if found is None else found.in_ms(NOW_MS)) == (
        None if in_h is None else in_h * HOUR_MS
    )


def test_a_segment_that_stays_keeps_those_behind_it() -> None:
    log = (segment(0, 100, age_h=0), segment(100, 200, age_h=9), segment(200, None, age_h=0))
    found = coming_loss(view(segments=log, age_h=10))
    assert found is not None
    assert found.in_ms(NOW_MS) == 10 * HOUR_MS


def test_h38_without_a_known_growth_no_time_is_made_up() -> None:
    log = (segment(0, 100, age_h=0), segment(100, None, age_h=0))
    assert coming_loss(view(segments=log, copied=0, most=5_000)) is None


@pytest.mark.parametrize(
    ("in_ms", "span_ms", "lead_ms", "expected"),
    [
        (10, 1_000, 100, True),
        (99, 1_000, 100, True),
        (100, 1_000, 100, False),
        (499, 1_000, 5_000, True),
        (500, 1_000, 5_000, False),
        (0, 2, 5_000, True),
        (-50, 1_000, 100, True),
    ],
)
def test_h15_a_loss_is_near_by_the_setting_or_by_half_of_what_the_broker_keeps(
    in_ms: int, span_ms: int, lead_ms: int, expected: bool
) -> None:
    loss = ComingLoss(
        start_offset=0, next_offset=10, size_bytes=1, at_ms=NOW_MS + in_ms, span_ms=span_ms
    )
    assert loss.is_near(NOW_MS, lead_ms) is expected
    assert "10" in loss.words(NOW_MS)
