"""Which rule says how much of the past a client is shown, and where a window of it begins."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.history import FULL, LOCAL, History, HistoryRule
from rlm.plans.client_history import FoundStart, HistoryRules, window_start

WEEK, DAY = History(604_800_000), History(86_400_000)
RULES = HistoryRules(
    LOCAL,
    (
        HistoryRule(history=FULL, client_ids="replay-.*"),
        HistoryRule(history=WEEK, principals="etl-.*"),
        HistoryRule(history=DAY, principals="User:(audit|CN=audit,O=x)"),
        HistoryRule(history=FULL, principals="etl-old|ops"),
        HistoryRule(history=DAY, client_ids="replay-now"),
    ),
)


@pytest.mark.parametrize(
    ("principal", "client_id", "shown"),
    [
        (None, None, LOCAL),
        (None, "replay-1", FULL),
        (None, "replay-now", FULL),
        (None, "a replay-1", LOCAL),
        ("etl-1", "c", WEEK),
        ("etl-1", "replay-1", WEEK),
        ("etl-old", "c", WEEK),
        ("audit", None, DAY),
        ("CN=audit,O=x", None, DAY),
        ("ops", "c", FULL),
        ("opsy", "c", LOCAL),
        ("someone", "replay-1", FULL),
        ("someone", "c", LOCAL),
        ("User:etl-1", "c", LOCAL),
    ],
)
def test_the_principal_decides_then_the_client_id_then_the_listener(
    principal: str | None, client_id: str | None, shown: History
) -> None:
    assert RULES.history(principal, client_id) == shown


def test_rules_reach_a_worker_as_they_are() -> None:
    content = json.loads(json.dumps(RULES.content()))
    content["rules"][0]["later"] = 1
    found = HistoryRules.of(content)
    assert found == RULES
    assert found.history("etl-1", None) == WEEK
    assert RULES.windows_ms == (DAY, WEEK)


def test_what_limits_nobody_is_full() -> None:
    assert HistoryRules().is_full
    assert HistoryRules(FULL, (HistoryRule(history=FULL, client_ids="x"),)).is_full
    assert not RULES.is_full
    assert not HistoryRules(FULL, (HistoryRule(history=LOCAL, client_ids="x"),)).is_full
    assert HistoryRules().windows_ms == ()


@dataclass(frozen=True)
class Segment:
    start_offset: int
    max_timestamp_ms: int


SEGMENTS = (Segment(0, 100), Segment(10, 300), Segment(20, 200), Segment(30, 400))


def found(
    now_ms: int, *segments: Segment, start: int = 0, local: int = 35, window_ms: int = 100
) -> FoundStart:
    return window_start(
        segments or SEGMENTS,
        window_ms=window_ms,
        now_ms=now_ms,
        remote_log_start_offset=start,
        local_log_start_offset=local,
    )


@pytest.mark.parametrize(
    ("now_ms", "offset", "until_ms"),
    [
        (150, 0, 200),
        (200, 0, 200),  # to the millisecond
        (201, 10, 400),
        (400, 10, 400),
        (401, 30, 500),
        (501, 35, None),
    ],
)
def test_a_window_begins_with_the_first_segment_whose_newest_record_is_young_enough(
    now_ms: int, offset: int, until_ms: int | None
) -> None:
    assert found(now_ms) == FoundStart(offset=offset, until_ms=until_ms)


def test_it_is_never_above_the_brokers_log_nor_below_the_remote_log_start() -> None:
    assert found(401, local=25).offset == 25
    assert found(150, start=5).offset == 5
    assert found(10_000, start=40, local=35).offset == 40  # as without a limit


def test_a_segment_without_timestamps_is_not_old() -> None:
    assert found(10_000, Segment(0, 5), Segment(10, -1), Segment(20, 5)) == FoundStart(
        offset=10, until_ms=None
    )


@given(
    st.lists(st.integers(-1, 1_000), max_size=8),
    st.integers(0, 90),
    st.integers(0, 90),
    st.lists(st.integers(0, 2_000), min_size=2, max_size=5).map(sorted),
)
def test_starts_only_move_up_with_the_time_and_stay_between_the_logs(
    newest: list[int], start: int, local: int, times: list[int]
) -> None:
    segments = [Segment(10 * at, one) for at, one in enumerate(newest)] or [Segment(99, 0)]
    offsets = [found(now, *segments, start=start, local=local).offset for now in times]
    assert offsets == sorted(offsets)
    assert all(start <= one <= max(start, local) for one in offsets)
