"""Whose copies come first, and when a partition with a backlog lets others copy."""

import pytest

from rlm.plans.copy_turns import gives_way, is_backlog, is_turn_of_last


def test_what_is_copied_at_a_time_is_no_backlog() -> None:
    assert not is_backlog(16)
    assert is_backlog(17)


@pytest.mark.parametrize(
    ("first_wait", "last_wait", "first_in_a_row", "is_last"),
    [
        (True, True, 0, False),
        (True, True, 2, False),
        (True, True, 3, True),
        (True, False, 9, False),
        (False, True, 0, True),
    ],
)
def test_a_backlog_comes_last_but_gets_its_share(
    first_wait: bool, last_wait: bool, first_in_a_row: int, is_last: bool
) -> None:
    chosen = is_turn_of_last(
        first_wait=first_wait, last_wait=last_wait, first_in_a_row=first_in_a_row
    )
    assert chosen is is_last


@pytest.mark.parametrize(
    ("pending_segments", "ran_ms", "others_wait", "ends"),
    [
        (17, 10_000, True, True),
        (17, 9_999, True, False),
        (17, 10_000, False, False),
        (16, 10_000, True, False),
    ],
)
def test_a_turn_ends_when_others_wait(
    pending_segments: int, ran_ms: int, others_wait: bool, ends: bool
) -> None:
    found = gives_way(pending_segments=pending_segments, ran_ms=ran_ms, others_wait=others_wait)
    assert found is ends
