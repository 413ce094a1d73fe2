"""Retention values by Kafka's rules (LogConfig)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import Invalid
from rlm.plans.retention import (
    LocalRetention,
    Retention,
    effective_local_retention,
    parse_duration_ms,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("180d", 180 * 86_400_000),
        ("12h", 12 * 3_600_000),
        ("1.5h", 5_400_000),
        ("30m", 1_800_000),
        ("45s", 45_000),
        (" 2 w ", 14 * 86_400_000),
        ("250ms", 250),
        ("604800000", 604_800_000),
        ("-1", -1),
        ("-2", -2),
    ],
)
def test_durations(text: str, wanted: int) -> None:
    assert parse_duration_ms(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("2TiB", 2 << 40), ("10MB", 10_000_000), ("1.5gib", 3 << 29), ("77", 77), ("-1", -1)],
)
def test_sizes(text: str, wanted: int) -> None:
    assert parse_size_bytes(text) == wanted


@pytest.mark.parametrize("text", ["", "d", "10x", "-3", "-1d", "1e3", "ten", "1 2"])
def test_what_is_no_value_is_refused(text: str) -> None:
    for parse in (parse_duration_ms, parse_size_bytes):
        with pytest.raises(Invalid):
            parse(text)


@given(st.integers(min_value=0, max_value=2**62))
def test_plain_numbers_are_themselves(number: int) -> None:
    assert parse_duration_ms(str(number)) == parse_size_bytes(str(number)) == number


@pytest.mark.parametrize(("total", "local"), [(100, 101), (100, -1), (-2, -2), (100, -3)])
def test_what_log_config_refuses_is_refused(total: int, local: int) -> None:
    with pytest.raises(Invalid, match=r"retention\.ms"):
        Retention(total_ms=total, total_bytes=-1, local_ms=local)
    with pytest.raises(Invalid, match=r"retention\.bytes"):
        Retention(total_ms=-1, total_bytes=total, local_bytes=local)


@pytest.mark.parametrize(
    ("total", "local", "wanted"),
    [(100, -2, 100), (100, 40, 40), (100, 100, 100), (-1, -2, None), (-1, -1, None), (-1, 7, 7)],
)
def test_effective_local_retention(total: int, local: int, wanted: int | None) -> None:
    found = effective_local_retention(
        Retention(total_ms=total, total_bytes=total, local_ms=local, local_bytes=local)
    )
    assert found == LocalRetention(max_age_ms=wanted, max_bytes=wanted)
    assert found.is_unlimited == (wanted is None)
