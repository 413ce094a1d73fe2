"""A foreign bound is reverted twice in 15 minutes, then left; trims wait for 15 quiet minutes."""

import pytest

from rlm.plans.retention_contests import CONTEST_MS, RetentionContests

TOPIC = "orders"
SECOND_MS = 1_000
MINUTE_MS = 60_000


def fought(every_ms: int, times: int) -> tuple[RetentionContests, list[bool], int]:
    """Somebody bounds the retention at this interval; whether each bound was reverted."""
    contests, reverted = RetentionContests(), []
    now_ms = 0
    for number in range(times):
        now_ms = number * every_ms
        contests.bounded(TOPIC, "retention.ms=60000", now_ms)
        reverts = not contests.is_given_up(TOPIC, now_ms)
        if reverts:
            contests.reverted(TOPIC, now_ms)
        reverted.append(reverts)
    return contests, reverted, now_ms


@pytest.mark.parametrize(
    ("every_ms", "reverts"),
    [
        (5 * SECOND_MS, [True, True, False, False, False]),
        (3 * MINUTE_MS, [True, True, False, False, False]),
        (450 * SECOND_MS, [True, True, False, False, False]),
        (451 * SECOND_MS, [True, True, True, True, True]),
        (60 * MINUTE_MS, [True, True, True, True, True]),
    ],
)
def test_h14_a_tool_that_insists_is_not_fought_after_two_reverts(
    every_ms: int, reverts: list[bool]
) -> None:
    assert fought(every_ms, 5)[1] == reverts


def test_h14_a_bound_that_stays_is_left_for_as_long_as_it_stays() -> None:
    """Also when the reverts themselves are long past."""
    contests, reverted, now_ms = fought(30 * SECOND_MS, 100)
    assert reverted == [True, True] + [False] * 98
    assert now_ms > 2 * CONTEST_MS
    assert contests.is_given_up(TOPIC, now_ms + CONTEST_MS)
    assert not contests.is_given_up(TOPIC, now_ms + CONTEST_MS + 1)
    contests.bounded(TOPIC, "retention.ms=1", now_ms + CONTEST_MS + 1)
    assert not contests.is_given_up(TOPIC, now_ms + CONTEST_MS + 1)


def test_g1_trims_wait_until_nobody_has_bounded_it_for_15_minutes() -> None:
    contests = RetentionContests()
    assert contests.words(TOPIC, 0) is None
    contests.bounded(TOPIC, "retention.bytes=5", 1_000)
    contests.reverted(TOPIC, 1_000)
    assert contests.words(TOPIC, 41_999) == "somebody bounded it 40 s ago (retention.bytes=5)"
    assert contests.words("payments", 41_999) is None
    assert contests.words(TOPIC, 1_000 + CONTEST_MS) is not None
    assert contests.words(TOPIC, 1_001 + CONTEST_MS) is None


def test_h14_a_revert_without_a_bound_counts_for_nothing() -> None:
    """An operator's own command sets the retention back, too."""
    contests = RetentionContests()
    for now_ms in range(4):
        contests.reverted(TOPIC, now_ms)
    contests.bounded(TOPIC, "retention.ms=60000", 4)
    assert not contests.is_given_up(TOPIC, 4)
