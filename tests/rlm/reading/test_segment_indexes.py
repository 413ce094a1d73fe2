"""Where an offset may be before the indexes are known; which chunks hold which bytes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.segments import RemoteLogSegmentMetadata
from rlm.reading.segment_indexes import chunk_numbers, guessed_numbers
from tests.builders.ledger import metadata


def segment(size_bytes: int = 16_000, records: int = 1_000) -> RemoteLogSegmentMetadata:
    return replace(metadata(1, 500, 500 + records, {0: 0}), segment_size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("offset", "wanted", "expected"),
    [
        (0, 100, range(0, 1)),
        (500, 100, range(0, 1)),
        (500, 1_500, range(0, 2)),
        (1_000, 100, range(7, 10)),  # in the middle, and a chunk to spare on both sides
        (1_499, 100, range(14, 16)),
        (9_999, 100, range(14, 16)),
    ],
)
def test_the_guess(offset: int, wanted: int, expected: range) -> None:
    assert guessed_numbers(segment(), offset, 1_000, wanted) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(0, 2), st.integers(1, 10**5))
def test_with_records_of_one_size_the_guess_is_right(
    size: int, records: int, spread: int, chunk: int
) -> None:
    offset = 500 + records * spread // 3
    position = size * (offset - 500) // records
    numbers = guessed_numbers(segment(size, records), offset, chunk, 1)
    assert position // chunk in numbers
    assert len(numbers) <= 4
    assert 0 <= numbers.start < numbers.stop <= -(-size // chunk)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 20))
def test_chunks_cover_the_positions_and_no_more(start: int, length: int, chunk: int) -> None:
    size = 100
    end = start + length
    numbers = chunk_numbers(start, end, chunk, -(-size // chunk))
    wanted = {position // chunk for position in range(start, min(end, size))}
    assert set(numbers) >= wanted
    assert len(numbers) <= len(wanted) + 1
