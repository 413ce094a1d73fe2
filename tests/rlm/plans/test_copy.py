"""Which segments are copied, in which order, and the reason shown when none is (G2, H35)."""

from dataclasses import replace
from typing import Any

import pytest

from rlm.log_dir.scanner import Closed
from rlm.plans.copy import NeedsFlush, WhyNot, needed_recovery_point, plan_copy, with_missing
from rlm.plans.coverage import Cover, cover
from rlm.plans.freeze import Frozen
from rlmm.ledger import UsableSegment
from tests.builders.ledger import metadata
from tests.rlm.plans.views import GOOD_TOPIC, copy_view, covered, local


def bases(**changes: Any) -> list[int]:
    return [one.base_offset for one in plan_copy(copy_view(**changes)).segments]


def test_every_closed_segment_oldest_first_never_the_active_one() -> None:
    plan = plan_copy(copy_view())
    assert [one.base_offset for one in plan.segments] == [0, 100, 200]
    assert plan.reason is WhyNot.CAUGHT_UP


def test_nothing_above_the_last_stable_offset() -> None:
    plan = plan_copy(copy_view(last_stable_offset=299))
    assert [one.base_offset for one in plan.segments] == [0, 100]
    assert plan.reason is WhyNot.LAST_STABLE_OFFSET
    assert "299" in plan.detail
    assert bases(last_stable_offset=300) == [0, 100, 200]


def test_copied_segments_are_not_copied_again() -> None:
    assert bases(covered=covered((0, 200))) == [200]
    assert bases(covered=covered((0, 300))) == []


def test_a_segment_copied_in_part_is_uploaded_whole() -> None:
    assert bases(covered=covered((0, 150))) == [100, 200]


def test_a_gap_in_the_copies_is_filled() -> None:
    assert bases(covered=covered((0, 100), (200, 300))) == [100]


def test_copying_starts_with_the_segment_that_holds_the_log_start() -> None:
    assert bases(local_log_start_offset=150) == [100, 200]
    assert bases(remote_log_start_offset=200) == [200]
    assert bases(local_log_start_offset=100) == [100, 200]
    assert bases(local_log_start_offset=99) == [0, 100, 200]
    assert bases(local_log_start_offset=150, covered=covered((150, 200))) == [200]


def test_order_is_kept_when_a_snapshot_is_late() -> None:
    first, second, *rest = local(0, 100, 200, 300)
    late = (first, replace(second, closed=Closed.SNAPSHOT_MISSING), *rest)
    plan = plan_copy(copy_view(segments=late))
    assert [one.base_offset for one in plan.segments] == [0]
    assert plan.reason is WhyNot.SNAPSHOT_MISSING


def test_a_segment_that_has_ended_holds_nobody_up() -> None:
    """Its last offset is right below the start; that its snapshot is missing is no matter."""
    first, *rest = local(0, 100, 200, 300)
    late = (replace(first, closed=Closed.SNAPSHOT_MISSING), *rest)
    assert bases(segments=late, remote_log_start_offset=100) == [100, 200]
    assert bases(segments=late, remote_log_start_offset=99) == []


def test_h35_with_one_replica_only_what_is_flushed() -> None:
    plan = plan_copy(copy_view(recovery_point=200))
    assert [one.base_offset for one in plan.segments] == [0, 100]
    assert plan.reason is WhyNot.RECOVERY_POINT


@pytest.mark.parametrize(
    ("needs", "replicas", "recovery_point", "found"),
    [
        (NeedsFlush.ONE_REPLICA, 1, 200, 200),
        (NeedsFlush.ONE_REPLICA, 1, None, 0),
        (NeedsFlush.ONE_REPLICA, 0, 200, 200),
        (NeedsFlush.ONE_REPLICA, 2, 200, None),
        (NeedsFlush.ALWAYS, 3, 200, 200),
        (NeedsFlush.ALWAYS, 3, None, 0),
        (NeedsFlush.NEVER, 1, 200, None),
    ],
)
def test_h35_what_is_not_flushed_is_copied_as_the_setting_says(
    needs: NeedsFlush, replicas: int, recovery_point: int | None, found: int | None
) -> None:
    known = needed_recovery_point(needs, replicas=replicas, recovery_point=recovery_point)
    assert known == found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"enabled": False}, WhyNot.NOT_ENABLED),
        ({"internal": True}, WhyNot.INTERNAL),
        ({"cleanup_policy": "compact"}, WhyNot.CLEANUP_POLICY),
        ({"cleanup_policy": "compact,delete"}, WhyNot.CLEANUP_POLICY),
        ({"cleanup_policy": ""}, WhyNot.CLEANUP_POLICY),
        ({"native_tiering": True}, WhyNot.NATIVE_TIERING),
    ],
)
def test_h35_a_topic_that_must_not_be_copied(change: dict[str, Any], reason: WhyNot) -> None:
    plan = plan_copy(copy_view(topic=replace(GOOD_TOPIC, **change)))
    assert (plan.segments, plan.reason) == ((), reason)


def test_h04_nothing_of_a_frozen_partition() -> None:
    plan = plan_copy(copy_view(frozen=Frozen(reason="the log restarted")))
    assert (plan.segments, plan.reason, plan.detail) == ((), WhyNot.FROZEN, "the log restarted")


def test_cover_joins_what_touches_and_knows_what_is_missing() -> None:
    found = covered((50, 60), (0, 20), (10, 30), (30, 50), (80, 90), (90, 90))
    assert [(one.start, one.next_offset) for one in found.ranges] == [(0, 60), (80, 90)]
    assert found.end_from(0) == found.end_from(59) == 60
    assert found.end_from(60) == 60
    assert found.end_from(85) == 90
    assert found.holds(10, 60)
    assert not found.holds(10, 61)
    assert not Cover().holds(0, 1)


@pytest.mark.parametrize(
    "held",
    [
        {"last_stable_offset": 150},
        {"recovery_point": 100},
        {"frozen": Frozen(reason="contradiction")},
        {"topic": replace(GOOD_TOPIC, cleanup_policy="compact")},
        {},
    ],
)
def test_h38_the_lag_is_all_that_is_not_remote_whatever_holds_it(held: dict[str, Any]) -> None:
    lag = plan_copy(copy_view(covered=covered((0, 100)), **held)).lag
    assert (lag.segments, lag.size_bytes) == (2, 2_000)


def test_h38_what_has_ended_or_is_empty_or_is_open_is_no_lag() -> None:
    first, second, *rest = local(0, 100, 200, 300)
    emptied = (first, replace(second, size_bytes=0), *rest)
    view = copy_view(segments=emptied, remote_log_start_offset=100)
    assert plan_copy(view).lag.segments == 1
    assert plan_copy(copy_view(covered=covered((0, 300)))).lag.segments == 0


def test_a_gap_of_one_offset_is_a_gap() -> None:
    assert not covered((0, 10), (11, 20)).holds(0, 20)
    assert covered((0, 10), (10, 20)).holds(0, 20)


def test_a_range_inside_another_one_changes_nothing() -> None:
    assert covered((0, 50), (10, 20)) == covered((0, 50))
    assert covered((0, 50), (50, 60), (10, 20)).end_from(0) == 60


def test_h03_a_disputed_copy_covers_nothing() -> None:
    segments = [
        UsableSegment(metadata=metadata(1, 0, 100, {0: 0}), next_offset=100, disputed=False),
        UsableSegment(metadata=metadata(2, 100, 200, {0: 100}), next_offset=200, disputed=True),
        UsableSegment(metadata=metadata(3, 200, 300, {0: 200}), next_offset=250, disputed=False),
    ]
    assert cover(segments) == covered((0, 100), (200, 250))


MISSING = local(0, 100, 200)[:2]
"""Segments at 0 and 100, which the broker's log has no more."""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [0, 100, 200]),
        ({"covered": covered((0, 100))}, [100, 200]),
        ({"covered": covered((0, 200))}, [200]),
        ({"remote_log_start_offset": 150}, [100, 200]),
        ({"remote_log_start_offset": 150, "covered": covered((150, 200))}, [200]),
        ({"remote_log_start_offset": 200}, [200]),
        ({"last_stable_offset": 200}, [0, 100]),
        ({"recovery_point": 0}, [0, 100]),
        ({"frozen": Frozen(reason="the log restarted")}, []),
        ({"topic": replace(GOOD_TOPIC, cleanup_policy="compact")}, []),
    ],
)
def test_h14_what_the_log_has_no_more_and_is_held_comes_first(
    change: dict[str, Any], expected: list[int]
) -> None:
    view = copy_view(segments=local(200, 300), local_log_start_offset=200, **change)
    without = plan_copy(view)
    plan = with_missing(without, view, MISSING)
    assert [one.base_offset for one in plan.segments] == expected
    held = [one for one in expected if one < 200]
    assert plan.lag.segments == without.lag.segments + len(held)
    assert plan.lag.size_bytes == without.lag.size_bytes + 1_000 * len(held)
    assert plan.reason is without.reason
