"""How much retention is given back, of which topics, and when it ends (H18)."""

import pytest

from kip405.ids import Uuid
from rlm.plans.giveback import (
    FORGOTTEN_AFTER_MS,
    ReplicaLog,
    Step,
    give_back,
    may_have_ended,
    next_step,
)
from rlmm.settings_records import GivenBack

BIG, SMALL = Uuid(b"b" * 16), Uuid(b"s" * 16)
SIZES = (100, 100, 100, 100, 40)
"""The last one is active."""


def log(topic: Uuid = BIG, sizes: tuple[int, ...] = SIZES, beyond: int = 3) -> ReplicaLog:
    return ReplicaLog(topic_id=topic, sizes=sizes, beyond=beyond)


@pytest.mark.parametrize(
    ("limit", "freed"),
    [(440, 0), (341, 0), (340, 100), (240, 200), (239, 200), (140, 300), (40, 400), (1, 400)],
)
def test_a_broker_deletes_whole_segments_by_size_and_never_the_active_one(
    limit: int, freed: int
) -> None:
    assert log().freed(limit) == freed


@pytest.mark.parametrize(
    ("logs", "needed", "expected"),
    [
        ((), 500, {}),
        ((log(),), 0, {}),
        ((log(),), -5, {}),
        ((log(),), 1, {BIG: 340}),
        ((log(),), 100, {BIG: 340}),
        ((log(),), 101, {BIG: 240}),
        ((log(),), 300, {BIG: 140}),
        ((log(),), 10_000, {BIG: 140}),
        ((log(beyond=0),), 10_000, {}),
        ((log(), log(sizes=(100, 40), beyond=0)), 200, {BIG: 240}),
        ((log(), log(sizes=(100, 100, 100), beyond=0)), 300, {BIG: 300}),
        ((log(), log(SMALL, (50, 50, 10), 2)), 200, {BIG: 240}),
        ((log(SMALL, (50, 50, 10), 2), log()), 350, {BIG: 140, SMALL: 60}),
        ((log(SMALL, (50, 50, 10), 2), log()), 999, {BIG: 140, SMALL: 10}),
    ],
)
def test_h18_no_more_is_given_back_than_frees_enough_and_local_retention_stays(
    logs: tuple[ReplicaLog, ...], needed: int, expected: dict[Uuid, int]
) -> None:
    """A log of the same topic that is within local retention limits how far it goes."""
    assert give_back(logs, needed, {}) == expected


def test_h18_what_is_given_back_stays_so_and_only_gets_less() -> None:
    assert give_back([], 100, {BIG: 240}) == {BIG: 240}
    assert give_back([log()], 100, {BIG: 240}) == {BIG: 240}
    assert give_back([log()], 300, {BIG: 240}) == {BIG: 140}
    assert give_back([log()], 0, {BIG: 240}) == {BIG: 240}


NOW_MS = 10_000_000
ACTIVE = GivenBack(limits={"retention.bytes": "200"}, since_ms=5)
ENDED = GivenBack(
    limits={"retention.bytes": "200"}, since_ms=5, ended_ms=NOW_MS - FORGOTTEN_AFTER_MS
)
JUST_ENDED = GivenBack(limits={"retention.bytes": "200"}, since_ms=5, ended_ms=NOW_MS - 1)


@pytest.mark.parametrize(
    ("given", "wanted", "is_known", "step"),
    [
        (None, None, True, None),
        (None, 300, True, Step.BEGIN),
        (None, 300, False, Step.BEGIN),
        (ACTIVE, 300, True, None),
        (ACTIVE, 200, True, None),
        (ACTIVE, 199, True, Step.BEGIN),
        (ACTIVE, None, True, Step.END),
        (ACTIVE, None, False, None),
        (JUST_ENDED, None, True, None),
        (JUST_ENDED, 300, True, Step.BEGIN),
        (ENDED, None, True, Step.FORGET),
        (ENDED, 300, True, Step.BEGIN),
    ],
)
def test_h18_the_next_step(
    given: GivenBack | None, wanted: int | None, is_known: bool, step: Step | None
) -> None:
    found = next_step(given, wanted=wanted, is_led=True, is_known=is_known, now_ms=NOW_MS)
    assert found is step


@pytest.mark.parametrize(
    ("given", "wanted", "step"),
    [
        (None, 300, None),
        (ACTIVE, 300, None),
        (ACTIVE, 199, None),
        (JUST_ENDED, 300, None),
        (ACTIVE, None, Step.END),
        (ENDED, None, Step.FORGET),
    ],
)
def test_h18_the_next_step_while_a_partition_has_no_leader_with_a_live_service(
    given: GivenBack | None, wanted: int | None, step: Step | None
) -> None:
    assert next_step(given, wanted=wanted, is_led=False, is_known=True, now_ms=NOW_MS) is step


def test_h18_what_an_earlier_limit_will_free_is_not_freed_by_another_topic_too() -> None:
    """A broker checks its retention every five minutes; the order of the topics changes."""
    logs = (log(BIG, (100, 100, 100, 40), 2), log(SMALL, (110, 110, 110, 40), 2))
    assert give_back(logs, 100, {BIG: 240}) == {BIG: 240}
    assert give_back(logs, 150, {BIG: 240}) == {BIG: 240, SMALL: 260}
    assert give_back(logs[:1], 150, {BIG: 240}) == {BIG: 140}


SEGMENTS = ((200, 100), (300, 100), (400, 40))


@pytest.mark.parametrize(
    ("limit", "former", "log_start_offset", "expected"),
    [
        ("240", None, 200, True),
        ("241", None, 200, False),
        ("241", "200", 200, True),
        ("200", "241", 200, True),
        ("1", None, 201, False),
        ("1", None, 300, False),
        (None, None, 200, False),
    ],
)
def test_h26_a_limit_ends_a_log_at_a_segment_and_leaves_as_much(
    limit: str | None, former: str | None, log_start_offset: int, expected: bool
) -> None:
    given = GivenBack(
        limits={} if limit is None else {"retention.bytes": limit},
        former_limits={} if former is None else {"retention.bytes": former},
        since_ms=1,
    )
    assert may_have_ended(given, SEGMENTS, log_start_offset) == expected
    assert not may_have_ended(given, (), log_start_offset)
