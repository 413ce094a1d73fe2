"""Which chunks of a segment are read with one request."""

import pytest

from rlm.reading.source import runs


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([4], [range(4, 5)]),
        ([1, 2, 3], [range(1, 4)]),
        ([1, 2, 3, 7, 8, 10], [range(1, 4), range(7, 9), range(10, 11)]),
    ],
)
def test_a_run_of_chunks_ends_at_a_gap(numbers: list[int], expected: list[range]) -> None:
    assert list(runs(numbers)) == expected
