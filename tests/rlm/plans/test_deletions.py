"""What is in force of a shorter retention, and what happens to it next."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.plans.deletions import DeletionStep, is_pending, next_step, pending_deletion
from rlm.plans.retention import retention_in_force
from rlmm.log_time import RecordTimes
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import (
    DeletionRecord,
    FreezeRecord,
    SettingsRecord,
    Stamp,
    TopicRecord,
    TotalRetention,
)
from rlmm.settings_view import SettingsView
from tests.rlmm.builders import TOPIC_ID, uuid

DELAY_MS = 1_000
DECIDED_MS = 50_000
UNLIMITED = TotalRetention()
WEEK = TotalRetention(retention_ms=7)
DAY = TotalRetention(retention_ms=1)


def topic(
    total: TotalRetention, enforced: TotalRetention | None, *, state: str = "enabled"
) -> TopicRecord:
    return TopicRecord(
        topic_id=TOPIC_ID,
        name="orders",
        mode="tier",
        state=state,
        trim=True,
        retention_ms=total.retention_ms,
        retention_bytes=total.retention_bytes,
        local_retention_ms=-2,
        local_retention_bytes=-2,
        enforced=enforced,
    )


def announcement(what: str = "retention") -> DeletionRecord:
    return DeletionRecord(
        topic_id=TOPIC_ID, what=what, by="ada", delay_ms=DELAY_MS, decided_ms=DECIDED_MS
    )


def view_of(*records: tuple[SettingsRecord, int]) -> SettingsView:
    """Records with the times at which they were appended, and read as they came."""
    view = SettingsView()
    for offset, (record, at_ms) in enumerate(records):
        stamp = Stamp(node_id=1, leader_epoch=1, writer=uuid(1), time_ms=at_ms)
        key, value = encode_settings_record(record, stamp)
        times = RecordTimes(appended_ms=at_ms, read_ms=at_ms)
        view.apply(key=key, value=value, offset=offset, times=times)
    return view


def step_at(now_ms: int, *records: tuple[SettingsRecord, int]) -> DeletionStep | None:
    view = view_of(*records)
    found = view.topic(TOPIC_ID)
    assert found is not None
    return next_step(view, found, monotonic_ms=now_ms, now_ms=now_ms)


@pytest.mark.parametrize(
    ("total", "enforced", "in_force"),
    [
        (DAY, DAY, DAY),
        (DAY, WEEK, WEEK),
        (WEEK, DAY, WEEK),
        (DAY, None, UNLIMITED),
        (DAY, UNLIMITED, UNLIMITED),
        (UNLIMITED, DAY, UNLIMITED),
        (
            TotalRetention(retention_ms=1, retention_bytes=9),
            TotalRetention(retention_ms=7, retention_bytes=5),
            TotalRetention(retention_ms=7, retention_bytes=9),
        ),
        (
            TotalRetention(retention_bytes=9),
            TotalRetention(retention_ms=7, retention_bytes=-1),
            UNLIMITED,
        ),
    ],
)
def test_the_laxer_of_decided_and_enforced_is_in_force(
    total: TotalRetention, enforced: TotalRetention | None, in_force: TotalRetention
) -> None:
    assert retention_in_force(topic(total, enforced)) == in_force
    assert is_pending(topic(total, enforced)) == (in_force != total)


@pytest.mark.parametrize("state", ["kept", "deleting"])
def test_nothing_expires_of_a_topic_that_is_not_enabled(state: str) -> None:
    assert retention_in_force(topic(DAY, DAY, state=state)) == UNLIMITED
    assert not is_pending(topic(DAY, WEEK, state=state))


sizes = st.integers(-1, 3)
retentions = st.builds(TotalRetention, retention_ms=sizes, retention_bytes=sizes)


@given(one=retentions, other=retentions, third=retentions)
def test_laxer_is_the_upper_bound(
    one: TotalRetention, other: TotalRetention, third: TotalRetention
) -> None:
    both = one.laxer(other)
    assert both == other.laxer(one) and both.laxer(one) == both == both.laxer(other)
    assert both.laxer(third) == one.laxer(other.laxer(third))
    assert {both.retention_ms} <= {one.retention_ms, other.retention_ms}


@pytest.mark.parametrize(
    ("records", "step"),
    [
        ([(topic(DAY, DAY), 0)], None),
        ([(announcement(), 0), (topic(DAY, DAY), 0)], DeletionStep.FORGET),
        ([(topic(WEEK, DAY), 0)], DeletionStep.WIDEN),
        ([(topic(DAY, WEEK), 0)], DeletionStep.ANNOUNCE),
        ([(topic(DAY, None), 0)], DeletionStep.ANNOUNCE),
        ([(topic(UNLIMITED, None), 0)], None),
        ([(announcement(), 0), (topic(DAY, WEEK), 0)], DeletionStep.ENFORCE),
        ([(announcement(), 1), (topic(DAY, WEEK), 0)], None),
        ([(announcement(), 0), (topic(DAY, WEEK), 1)], None),
        ([(announcement("topic"), 0), (topic(DAY, WEEK), 0)], None),
        ([(announcement("topic"), 0), (topic(DAY, DAY), 0)], None),
        ([(announcement(), 0), (topic(DAY, WEEK, state="deleting"), 0)], None),
        ([(announcement(), 0), (topic(DAY, WEEK, state="kept"), 0)], DeletionStep.FORGET),
        (
            [
                (announcement(), 0),
                (topic(DAY, WEEK), 0),
                (FreezeRecord(topic_id=TOPIC_ID, stopped=("delete",), by="ada", why="hold"), 0),
            ],
            None,
        ),
    ],
)
def test_the_next_step_when_the_delay_is_just_over(
    records: list[tuple[SettingsRecord, int]], step: DeletionStep | None
) -> None:
    at = [(record, DECIDED_MS + late_ms) for record, late_ms in records]
    assert step_at(DECIDED_MS + DELAY_MS, *at) is step


def test_a_part_that_became_laxer_is_enforced_while_the_other_waits() -> None:
    decided = TotalRetention(retention_ms=7, retention_bytes=1)
    record = topic(decided, TotalRetention(retention_ms=1, retention_bytes=9))
    assert step_at(DECIDED_MS, (announcement(), DECIDED_MS), (record, DECIDED_MS)) is (
        DeletionStep.WIDEN
    )


def test_what_is_pending_says_when_it_is_due() -> None:
    record = topic(DAY, WEEK)
    view = view_of((announcement(), DECIDED_MS), (record, DECIDED_MS + 10))
    now_ms = DECIDED_MS + 300
    pending = pending_deletion(view, record, monotonic_ms=now_ms, now_ms=now_ms)
    assert pending is not None
    assert (pending.announced, pending.due_in_ms) == (announcement(), DELAY_MS - 290)
    bare = pending_deletion(view_of((record, 1)), record, monotonic_ms=9, now_ms=9)
    assert bare is not None
    assert (bare.announced, bare.due_in_ms) == (None, None)
    settled = replace(record, enforced=DAY)
    assert pending_deletion(view, settled, monotonic_ms=now_ms, now_ms=now_ms) is None
