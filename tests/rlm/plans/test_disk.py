"""When a log directory is under pressure, how fast it fills, and what no trim may delete (H18)."""

import pytest

from rlm.plans.disk import (
    LogDirReport,
    SpaceSample,
    disk_findings,
    full_in_ms,
    growth_bytes_per_second,
    under_pressure,
    untrimmable_bytes,
    with_sample,
)
from rlm.plans.problems import ProblemKind
from rlm.plans.trim import NoTrim

FLOOR = 1_000
HOUR_MS = 3_600_000


def samples(*rows: tuple[int, int]) -> tuple[SpaceSample, ...]:
    found: tuple[SpaceSample, ...] = ()
    for minute, free in rows:
        found = with_sample(found, SpaceSample(at_ms=minute * 60_000, free_bytes=free))
    return found


@pytest.mark.parametrize(
    ("before", "free", "expected"),
    [
        (False, 1_000, False),
        (False, 999, True),
        (True, 1_000, True),
        (True, 1_499, True),
        (True, 1_500, False),
        (True, None, True),
        (False, None, False),
    ],
)
def test_h18_pressure_begins_below_the_floor_and_ends_well_above_it(
    before: bool, free: int | None, expected: bool
) -> None:
    assert under_pressure(before, free, FLOOR) is expected


@pytest.mark.parametrize("before", [True, False])
def test_without_a_floor_there_is_no_pressure(before: bool) -> None:
    assert not under_pressure(before, 0, 0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), None),
        (((0, 9_000),), None),
        (((0, 9_000), (9, 3_600)), None),
        (((0, 9_000), (10, 3_000)), 10.0),
        (((0, 9_000), (5, 12_000), (10, 3_000)), 10.0),
        (((0, 3_000), (10, 9_000)), -10.0),
        (((0, 99_000), (30, 5_000), (60, 3_200)), 1.0),
    ],
)
def test_growth_is_that_of_the_last_hour(
    rows: tuple[tuple[int, int], ...], expected: float | None
) -> None:
    assert growth_bytes_per_second(samples(*rows)) == expected


@pytest.mark.parametrize(
    ("free", "growth", "expected"),
    [(5_000, 10.0, 500_000), (5_000, 0.0, None), (5_000, -1.0, None), (5_000, None, None)],
)
def test_a_disk_that_does_not_grow_is_never_full(
    free: int, growth: float | None, expected: int | None
) -> None:
    assert full_in_ms(free, growth) == expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (None, 130),
        (NoTrim.WITHIN_RETENTION, 130),
        (NoTrim.NOTHING_COPIED, 130),
        (NoTrim.UNLIMITED, 130),
        (NoTrim.NO_LIVE_SERVICE, 1_000),
        (NoTrim.FREEZE_RECORD, 1_000),
    ],
)
def test_what_no_trim_may_delete(held: NoTrim | None, expected: int) -> None:
    found = untrimmable_bytes(held, size_bytes=1_000, active_bytes=30, lag_bytes=100)
    assert found == expected


@pytest.mark.parametrize(
    ("free", "is_low", "full", "kind"),
    [
        (5_000, False, None, None),
        (5_000, False, HOUR_MS, None),
        (5_000, False, HOUR_MS - 1, ProblemKind.LOG_DIR_FILLS),
        (500, True, HOUR_MS - 1, ProblemKind.LOG_DIR_LOW),
        (None, True, None, ProblemKind.LOG_DIR_UNKNOWN),
    ],
)
def test_h18_h38_what_is_wrong_with_a_log_directory(
    free: int | None, is_low: bool, full: int | None, kind: ProblemKind | None
) -> None:
    report = LogDirReport(
        path="/data",
        size_bytes=10_000,
        free_bytes=free,
        growth_bytes_per_second=None,
        full_in_ms=full,
        under_pressure=is_low,
        error="" if free is not None else "Input/output error",
        untrimmable_bytes=2_048,
        unmeasured_partitions=3,
    )
    found = list(disk_findings([report], floor_bytes=FLOOR, warn_ms=HOUR_MS))
    assert [one.kind for one in found] == ([] if kind is None else [kind])
    for one in found:
        assert one.subject == "log dir /data"
        if free is None:
            assert "Input/output error" in one.text
        else:
            assert "may delete 2.0 KiB of it, and an unknown part of 3 more" in one.text
