"""A client that goes back to its last commit may do so; one that skips or goes further may not."""

import pytest

from tests.scenarios.cluster import Row
from tests.scenarios.repeats import Commit, Repeat, repeats_of


def row(offset: int, partition: int = 0) -> Row:
    return Row(partition=partition, offset=offset, timestamp_ms=0, key=None, value=None, headers=())


def rows(*offsets: int) -> list[Row | Commit]:
    return [row(offset) for offset in offsets]


def test_nothing_is_repeated_where_each_record_comes_once() -> None:
    events = [*rows(7, 8), row(0, 1), Commit(0, 9), *rows(9), row(1, 1), Commit(1, 2)]
    assert repeats_of(events, {0: 7, 1: 0}) == []


def test_what_is_read_after_the_last_commit_may_come_again() -> None:
    events = [*rows(0, 1, 2), Commit(0, 2), *rows(3, 4, 2, 3, 4, 5)]
    assert repeats_of(events, {0: 0}) == [Repeat(0, 2, 5)]


def test_all_may_come_again_where_nothing_is_committed() -> None:
    events = [*rows(5, 6), row(0, 1), *rows(5), row(1, 1), *rows(6, 7)]
    assert repeats_of(events, {0: 5, 1: 0}) == [Repeat(0, 5, 7)]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param(rows(0, 2), "partition 0: 2 came instead of 1", id="left out"),
        pytest.param(rows(1, 0), "partition 0: 1 came instead of 0", id="out of order"),
        pytest.param(rows(0, 1, 0, 2), "partition 0: 2 came instead of 1", id="left out again"),
        pytest.param(
            [*rows(0, 1, 2), Commit(0, 2), *rows(1)],
            "partition 0: 1 came again, but 2 is committed",
            id="before the last commit",
        ),
    ],
)
def test_a_record_that_is_left_out_or_was_committed_is_seen(
    events: list[Row | Commit], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        repeats_of(events, {0: 0})
