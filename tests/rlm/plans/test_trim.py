"""The trim bound and everything that forbids trimming (G1, H1-H5, H11, H19, H27, H35)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.plans.freeze import Frozen
from rlm.plans.retention import LocalRetention
from rlm.plans.trim import (
    EndedPlan,
    Held,
    NoTrim,
    TrimPlan,
    plan_trim,
    retention_target,
    why_not_confirmed,
)
from tests.rlm.plans.views import GOOD_TOPIC, NOTHING_FORBIDS, guards, lineage, local, offsets

NOW_MS = 10_000
NO_LIMIT = LocalRetention(max_age_ms=None, max_bytes=None)


def plan(guard: dict[str, Any] | None = None, **changes: Any) -> TrimPlan | EndedPlan | Held:
    return plan_trim(guards(**(guard or {})), offsets(**changes), now_ms=NOW_MS, planned_at_ms=7)


def bound(**changes: Any) -> int | NoTrim:
    found = plan(**changes)
    return found.reason if isinstance(found, Held) else found.bound


def reason(guard: dict[str, Any], **changes: Any) -> NoTrim | None:
    found = plan(guard, **changes)
    return found.reason if isinstance(found, Held) else None


def test_everything_closed_copied_and_old_goes() -> None:
    found = plan()
    assert isinstance(found, TrimPlan)
    assert (found.bound, found.leader_epoch, found.planned_at_ms) == (300, 5, 7)


def test_the_bound_counts_only_what_is_contiguously_copied() -> None:
    assert bound(contiguous_end=200) == 200
    assert bound(contiguous_end=0) is NoTrim.NOTHING_COPIED


def test_h27_the_bound_ends_at_borders_of_the_leaders_segments() -> None:
    assert bound(contiguous_end=299) == 200
    assert bound(contiguous_end=99) is NoTrim.NOTHING_COPIED


def test_the_bound_passes_neither_lso_nor_high_watermark_nor_share_groups() -> None:
    assert bound(last_stable_offset=250) == 200
    assert bound(high_watermark=199) == 100
    assert bound(share_group_start=120) == 100


def test_the_active_segment_is_never_trimmed() -> None:
    assert bound(contiguous_end=350) == 300
    assert bound(segments=local(0), contiguous_end=350) is NoTrim.NOTHING_COPIED


def test_local_retention_by_age_keeps_young_segments() -> None:
    assert bound(retention=LocalRetention(max_age_ms=NOW_MS - 200, max_bytes=None)) == 100
    assert bound(retention=LocalRetention(max_age_ms=NOW_MS, max_bytes=None)) is (
        NoTrim.WITHIN_RETENTION
    )


def test_local_retention_by_size_keeps_at_least_the_limit() -> None:
    assert bound(retention=LocalRetention(max_age_ms=None, max_bytes=2_000)) == 200
    assert bound(retention=LocalRetention(max_age_ms=None, max_bytes=2_001)) == 100
    assert bound(retention=LocalRetention(max_age_ms=None, max_bytes=0)) == 300


def test_the_deletion_lag_keeps_what_was_copied_recently() -> None:
    assert bound(released_end=299) == 200
    assert bound(released_end=99) is NoTrim.DELETION_LAG


def test_g1_an_operators_size_replaces_retention_and_lag_and_nothing_else() -> None:
    found = plan(keep_local_bytes=2_000, released_end=0, retention=NO_LIMIT)
    assert isinstance(found, TrimPlan)
    assert (found.bound, found.keep_local_bytes) == (200, 2_000)
    assert bound(keep_local_bytes=0, contiguous_end=199) == 100
    assert bound(keep_local_bytes=0, share_group_start=100) == 100
    assert bound(keep_local_bytes=5_000) is NoTrim.WITHIN_RETENTION
    assert reason({"trim_on": False}, keep_local_bytes=0) is NoTrim.TRIM_OFF


def test_no_limit_means_no_trim() -> None:
    assert bound(retention=NO_LIMIT) is NoTrim.UNLIMITED


def test_segments_already_trimmed_but_still_on_disk_do_not_count_as_kept() -> None:
    by_size = LocalRetention(max_age_ms=None, max_bytes=2_000)
    assert bound(local_log_start_offset=100, retention=by_size) == 200
    assert bound(local_log_start_offset=200, retention=by_size) is NoTrim.WITHIN_RETENTION


LEDGER_PROBLEM = replace(NOTHING_FORBIDS, ledger_problem="recreated")
FROZEN = replace(NOTHING_FORBIDS, frozen=Frozen(reason="emptied"))


@pytest.mark.parametrize(
    ("guard", "wanted"),
    [
        ({"deletion": replace(NOTHING_FORBIDS, ready=False)}, NoTrim.SETTINGS_NOT_READY),
        ({"deletion": LEDGER_PROBLEM}, NoTrim.LEDGER_PROBLEM),
        ({"deletion": replace(NOTHING_FORBIDS, freeze_record="ops: why")}, NoTrim.FREEZE_RECORD),
        ({"deletion": FROZEN}, NoTrim.FROZEN),
        ({"mode_is_tier": False}, NoTrim.MODE_COPY),
        ({"trim_on": False}, NoTrim.TRIM_OFF),
        ({"retention_bounded": "retention.ms=1"}, NoTrim.RETENTION_BOUNDED),
        ({"retention_unknown": "broker 2: no answer"}, NoTrim.RETENTION_UNKNOWN),
        ({"live_nodes": frozenset({1, 2})}, NoTrim.NO_LIVE_SERVICE),
        ({"replicas": ()}, NoTrim.NO_LIVE_SERVICE),
        ({"namers": (1, 2, 3, 4)}, NoTrim.PAST_PROXIES),
        ({"replicas_short_ms": 10}, NoTrim.ISR_HOLD),
        ({"topic": replace(GOOD_TOPIC, cleanup_policy="compact,delete")}, NoTrim.TOPIC_REFUSED),
        ({"topic": replace(GOOD_TOPIC, enabled=False)}, NoTrim.TOPIC_REFUSED),
    ],
)
def test_what_forbids_a_trim(guard: dict[str, Any], wanted: NoTrim) -> None:
    assert reason(guard) is wanted


@pytest.mark.parametrize(
    ("guard", "wanted"),
    [
        ({"live_nodes": frozenset({1, 2})}, "beside broker 3"),
        ({"live_nodes": frozenset({2})}, "beside brokers 1, 3"),
        ({"replicas": ()}, ""),
        ({"namers": (1, 2, 3, 4)}, "beside broker 4"),
    ],
)
def test_the_brokers_without_a_service_are_named(guard: dict[str, Any], wanted: str) -> None:
    held = plan(guard)
    assert isinstance(held, Held) and held.detail == wanted


def test_h19_every_broker_that_names_brokers_needs_a_live_service() -> None:
    assert reason({"namers": (1, 2, 3)}) is None
    assert reason({"namers": (4,), "live_nodes": frozenset({1, 2, 3, 4})}) is None


def test_h27_the_hold_for_lagging_replicas_ends() -> None:
    assert reason({"replicas_short_ms": 3_599_999}) is NoTrim.ISR_HOLD
    assert reason({"replicas_short_ms": 3_600_000}) is None


@pytest.mark.parametrize(("short_ms", "words"), [(0, ""), (999, ""), (61_500, "for 61 s")])
def test_h27_a_wait_is_reported_once_it_has_lasted(short_ms: int, words: str) -> None:
    held = plan({"replicas_short_ms": short_ms})
    assert isinstance(held, Held)
    assert held.detail == words


def test_h02_what_ended_is_deleted_with_trim_off_and_without_copies() -> None:
    found = plan({"trim_on": False}, remote_log_start_offset=150, contiguous_end=0)
    assert isinstance(found, EndedPlan)
    assert found.bound == 150


def test_h02_what_ended_is_not_deleted_beyond_the_high_watermark() -> None:
    found = plan(remote_log_start_offset=900, high_watermark=350)
    assert isinstance(found, EndedPlan)
    assert found.bound == 349, "and one record stays (H8)"


@pytest.mark.parametrize(
    "guard",
    [
        {"deletion": FROZEN},
        {"deletion": LEDGER_PROBLEM},
        {"mode_is_tier": False},
    ],
)
def test_h02_a_freeze_stops_that_too(guard: dict[str, Any]) -> None:
    assert isinstance(plan(guard, remote_log_start_offset=150), Held)


@given(
    contiguous=st.integers(0, 400),
    stable=st.integers(0, 400),
    watermark=st.integers(0, 400),
    start=st.integers(0, 300),
    age=st.none() | st.integers(0, 10_500),
    size=st.none() | st.integers(0, 5_000),
)
def test_no_bound_is_ever_above_what_is_safe(
    contiguous: int, stable: int, watermark: int, start: int, age: int | None, size: int | None
) -> None:
    found = plan(
        contiguous_end=max(contiguous, start),
        last_stable_offset=min(stable, watermark),
        high_watermark=watermark,
        local_log_start_offset=start,
        retention=LocalRetention(max_age_ms=age, max_bytes=size),
    )
    if isinstance(found, TrimPlan):
        assert start < found.bound <= min(max(contiguous, start), stable, watermark, 300)
        assert found.bound % 100 == 0


@pytest.mark.parametrize("epochs", [{8: 0}, {5: 0, 8: 20}, {7: 0, 8: 900}])
@pytest.mark.parametrize("high_watermark", [60, 350, 2_000])
def test_h04_records_of_a_restarted_log_below_the_remote_start_have_not_ended(
    epochs: dict[int, int], high_watermark: int
) -> None:
    """Enabled at 1000 under epoch 5, then the disk was emptied: what is written at 0 is new, and
    no copy of it is asked for, neither below the start nor when copies begin behind it.
    """
    assert (
        bound(
            lineage=lineage(epochs),
            remote_log_start_offset=1_000,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            contiguous_end=max(1_000, high_watermark),
        )
        is NoTrim.RESTARTED
    )


def test_h02_what_ended_goes_whatever_epochs_came_later() -> None:
    found = plan(lineage=lineage({5: 0, 8: 150}), remote_log_start_offset=150)
    assert isinstance(found, EndedPlan)
    assert found.bound == 150


@pytest.mark.parametrize(
    ("change", "confirmed"),
    [
        ({}, True),
        ({"bound": 301}, True),
        ({"bound": 299}, False),
        ({"leader_epoch": 6}, False),
        ({"lineage": lineage({5: 0, 6: 10})}, False),
        ({"planned_at_ms": 9}, True),
    ],
)
def test_h05_a_plan_is_confirmed_by_one_of_the_same_history(
    change: dict[str, Any], confirmed: bool
) -> None:
    plan = TrimPlan(
        bound=300,
        local_log_start_offset=0,
        leader_epoch=5,
        lineage=lineage({5: 0}),
        planned_at_ms=0,
    )
    assert (why_not_confirmed(plan, replace(plan, **change)) is None) is confirmed


def test_h05_a_plan_of_another_kind_confirms_none() -> None:
    ended = EndedPlan(bound=300, leader_epoch=5, lineage=lineage({5: 0}), planned_at_ms=0)
    trim = TrimPlan(
        bound=300,
        local_log_start_offset=0,
        leader_epoch=5,
        lineage=lineage({5: 0}),
        planned_at_ms=0,
    )
    assert why_not_confirmed(trim, ended)
    assert why_not_confirmed(ended, trim)
    assert why_not_confirmed(ended, ended) is None


def test_local_retention_ends_at_the_first_segment_that_stays() -> None:
    """The one behind it is old enough, but nothing is trimmed from within a log."""
    first, second, third, *rest = local(0, 100, 200, 300)
    ages = (replace(first, max_timestamp_ms=0), replace(second, max_timestamp_ms=NOW_MS))
    segments = (*ages, replace(third, max_timestamp_ms=0), *rest)
    target = retention_target(
        segments,
        LocalRetention(max_age_ms=10, max_bytes=None),
        local_size_bytes=4_000,
        local_log_start_offset=0,
        now_ms=NOW_MS,
    )
    assert target == 100
