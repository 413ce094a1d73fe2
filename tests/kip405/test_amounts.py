"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.amounts import parse_duration_ms, parse_size_bytes
from kip405.errors import Invalid


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
