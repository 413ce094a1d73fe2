"""Where an offset is, and what is said of it: a row for each location and each reason."""

from dataclasses import replace
from typing import Any

import pytest

from rlm.log_dir.scanner import Closed
from rlm.plans.copy import CopyPlan, WhyNot, plan_copy
from rlm.plans.coverage import NO_RECORDS
from rlm.plans.explanation import ExplainView, OffsetLocation, explain
from rlm.plans.offload import CopyDelay
from rlm.plans.trim import EndedPlan, Held, NoTrim, TrimPlan
from rlmm.ledger import Hole
from tests.rlm.plans.views import copy_view, covered, explain_view, lineage, local, remote_copy

NEXT = "It is not copied yet, and may be now: it is the next one."
COPY = remote_copy(start=50, next_offset=150)
LOST = replace(COPY, problem="not found in its store", is_lost=True)
AWAY = replace(COPY, problem="store hot: no answer")
HOLE = Hole(start=60, end=70, cause="the broker's own retention deleted them")
EMPTY = Hole(start=60, end=70, cause=NO_RECORDS)


def planned(**changes: Any) -> CopyPlan:
    """What the plan says of the segment from 200 on."""
    view = copy_view(
        segments=local(100, 200, 300), local_log_start_offset=100, covered=covered((50, 200))
    )
    return plan_copy(replace(view, **changes))


def said(view: ExplainView, offset: int | None) -> str:
    return " ".join(explain(view, offset).sentences)


@pytest.mark.parametrize(
    ("offset", "changes", "location", "why_not"),
    [
        (120, {"copy_of_offset": COPY}, OffsetLocation.BOTH, ""),
        (60, {"copy_of_offset": COPY}, OffsetLocation.REMOTE, ""),
        (210, {}, OffsetLocation.LOCAL, ""),
        (339, {}, OffsetLocation.LOCAL, ""),
        (340, {}, OffsetLocation.LOCAL, "it is not below the high watermark 340 yet"),
        (349, {}, OffsetLocation.LOCAL, "it is not below the high watermark 340 yet"),
        (350, {}, OffsetLocation.BEYOND_END, "it is not written yet"),
        (49, {}, OffsetLocation.EXPIRED, "clients get OFFSET_OUT_OF_RANGE"),
        (49, {"copy_of_offset": COPY}, OffsetLocation.EXPIRED, "clients get OFFSET_OUT_OF_RANGE"),
        (99, {"unsettled_end": 100}, OffsetLocation.UNSETTLED, "clients wait until it is settled"),
        (65, {"holes": (HOLE,)}, OffsetLocation.HOLE, ""),
        (65, {"holes": (HOLE,), "unsettled_end": 66}, OffsetLocation.UNSETTLED, "clients wait"),
        (70, {"holes": (HOLE,)}, OffsetLocation.MISSING, ""),
        (65, {"holes": (EMPTY,)}, OffsetLocation.HOLE, ""),
        (70, {"remote_next_offset": None}, OffsetLocation.MISSING, "nothing is remote, so"),
        (70, {"remote_next_offset": 50}, OffsetLocation.MISSING, "nothing is remote, so"),
        (
            65,
            {"holes": (HOLE,), "remote_next_offset": None},
            OffsetLocation.HOLE,
            "nothing is remote, so",
        ),
        (
            60,
            {"copy_of_offset": LOST},
            OffsetLocation.REMOTE,
            "not found in its store; clients get an",
        ),
        (60, {"copy_of_offset": AWAY}, OffsetLocation.REMOTE, "store hot: no answer; clients wait"),
        (
            60,
            {"copy_of_offset": COPY, "frozen": "orphans"},
            OffsetLocation.REMOTE,
            "is frozen: orphans",
        ),
        (65, {"holes": (HOLE,), "frozen": "orphans"}, OffsetLocation.HOLE, "is frozen: orphans"),
        # The broker answers what its own log has, whatever is said of the remote tier.
        (120, {"copy_of_offset": LOST}, OffsetLocation.BOTH, ""),
        (120, {"copy_of_offset": COPY, "frozen": "orphans"}, OffsetLocation.BOTH, ""),
        (120, {"remote_log_start_offset": 130}, OffsetLocation.LOCAL, ""),
    ],
)
def test_the_location_of_an_offset_and_who_gets_it(
    offset: int, changes: dict[str, Any], location: OffsetLocation, why_not: str
) -> None:
    found = explain(explain_view(**changes), offset)
    assert (found.offset, found.location) == (offset, location)
    assert found.readable is (not why_not)
    assert why_not in found.unreadable_reason
    assert bool(found.unreadable_reason) is bool(why_not)
    last = found.sentences[-1]
    assert ("not readable" in last) is bool(why_not) and why_not in last


def test_a_remote_offset_is_found_by_segment_store_object_time_and_epoch() -> None:
    text = said(explain_view(copy_of_offset=COPY), 60)
    segment = COPY.entry.metadata.segment_id.id
    assert text.startswith(
        "Offset 60 of orders-0 is in the remote tier only, written under leader epoch 5. "
        f"Remote segment {segment} has offsets 50 to 149, 1 B, copied by broker 1; it is in store "
        "hot since 1970-01-01 00:01:00 UTC. Its objects are c/orders/0.*."
    )
    assert text.endswith("It is readable through the proxy now, from the store.")
    assert "Broker" not in text


def test_a_disputed_copy_has_no_time_and_says_so() -> None:
    disputed = replace(COPY, entry=replace(COPY.entry, disputed="a zombie wrote"), store="")
    text = said(explain_view(copy_of_offset=disputed, offset_epoch=None), 60)
    assert "since" not in text and "epoch" not in text
    assert "it is in a store that is not configured here." in text
    assert "It is disputed, so no trim relies on it: a zombie wrote." in text


SEGMENTS = local(100, 200, 300, 400)
WAITS = CopyDelay(max_age_ms=5_000, max_newer_bytes=None)


@pytest.mark.parametrize(
    ("offset", "changes", "words"),
    [
        (210, {}, NEXT),
        (310, {}, "only closed segments are, and the broker still writes to it"),
        (
            310,
            {"segments": SEGMENTS, "copy": planned(segments=SEGMENTS, last_stable_offset=999)},
            "and may be now: segments that come before it: 1",
        ),
        (
            210,
            {"copy": planned(last_stable_offset=250)},
            "not copied yet: waiting for the last stable offset: segment ends at 300, last stable "
            "offset is 250.",
        ),
        (210, {"copy": planned(recovery_point=250)}, "waiting for the recovery point"),
        (
            210,
            {"copy": planned(delay=WAITS, now_ms=400)},
            "waiting for the copy lag: it is 5000 ms",
        ),
        (
            210,
            {"copy": planned(topic=replace(copy_view().topic, cleanup_policy="compact"))},
            "cleanup.policy is not exactly delete: cleanup.policy=compact.",
        ),
        (210, {"copy_failure": "Unavailable: no answer"}, "The last copy failed, and is tried"),
        (
            210,
            {"remote_log_start_offset": 300, "remote_log_start_cause": "command: ann"},
            "It is not copied: it is below the remote log start 300 (raised by a command: ann).",
        ),
        (210, {"segments": ()}, "Whether its segment may be copied is not known"),
        (
            210,
            {"segments": (replace(local(200, 300)[0], size_bytes=0),)},
            "It is not copied: its segment has 0 bytes.",
        ),
    ],
)
def test_why_a_local_offset_is_not_copied_is_what_the_plan_says(
    offset: int, changes: dict[str, Any], words: str
) -> None:
    assert words in said(explain_view(**changes), offset)


@pytest.mark.parametrize("why", WhyNot)
def test_every_reason_of_the_copy_plan_is_said(why: WhyNot) -> None:
    held = CopyPlan(segments=(), reason=why, detail="and why")
    view = explain_view(copy=held)
    assert f"It is not copied yet: {why.value}: and why." in said(view, 210)
    assert f"{why.value}: and why." in said(view, None)


@pytest.mark.parametrize("why", NoTrim)
def test_every_reason_of_the_trim_plan_is_said(why: NoTrim) -> None:
    view = explain_view(trim=Held(reason=why, detail="and why"), copy_of_offset=COPY)
    words = f"The local log is not trimmed beyond 100: {why.value}: and why."
    assert words in said(view, 120) and words in said(view, None)
    assert words not in said(view, 60), "it says nothing of what is remote only"


DUE: dict[str, Any] = {
    "bound": 200,
    "leader_epoch": 5,
    "lineage": lineage({5: 0}),
    "planned_at_ms": 0,
}


@pytest.mark.parametrize(
    ("trim", "words"),
    [
        (None, "not trimmed beyond 100: the remote log has no start yet"),
        (TrimPlan(local_log_start_offset=100, **DUE), "is due to be trimmed from 100 to 200, once"),
        (EndedPlan(**DUE), "What ended below 200 is due to be deleted from the local log."),
    ],
)
def test_a_trim_that_is_due_is_said(trim: TrimPlan | EndedPlan | None, words: str) -> None:
    view = explain_view(trim=trim, trim_failure="copies are gone")
    assert words in said(view, None)
    assert "The last trim was refused: copies are gone." in said(view, None)
    assert view.trim_reason == ""


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("retention", "50 (raised by total retention)"),
        ("enable", "50 (where its log began when the topic was enabled)"),
        ("delete-records", "50 (raised by a client's DeleteRecords)"),
        ("command: disable --delete", "50 (raised by a command: disable --delete)"),
        ("adopted by ann; orphans", "50 (adopted by ann; orphans)"),
    ],
)
def test_what_has_ended_says_by_what(cause: str, words: str) -> None:
    assert f"below the remote log start {words}: it has ended." in said(
        explain_view(remote_log_start_cause=cause), 49
    )


def test_a_hole_says_why_and_where_it_ends() -> None:
    assert (
        "is in a hole on record, offsets 60 to 69, which no tier has: the broker's own retention "
        "deleted them. Through the proxy clients go on behind it"
    ) in said(explain_view(holes=(HOLE,)), 65)
    assert f"has no record: offsets 60 to 69 are empty ({NO_RECORDS})." in said(
        explain_view(holes=(EMPTY,)), 65
    )


def test_an_open_transaction_is_said() -> None:
    assert "with read_committed once the open transaction at 320 has ended" in said(
        explain_view(), 320
    )
    assert "read_committed" not in said(explain_view(), 319)


def test_a_whole_partition_is_explained() -> None:
    assert explain(explain_view(holes=(HOLE, EMPTY)), None).sentences == (
        "orders-0 is led by broker 1 under leader epoch 5.",
        "The remote log starts at 50 (raised by total retention).",
        "Remote are offsets up to 199, in 2 segments, 2.0 KiB.",
        "Local are offsets 100 to 349, in 3 segments, 2.9 KiB.",
        "No tier has offsets 60 to 69: the broker's own retention deleted them.",
        "1 closed segment is not remote, 1000 B: closed segments are to be copied.",
        "The local log is not trimmed beyond 100: all is within local retention.",
    )
    bare = explain_view(
        is_enabled=False,
        remote_log_start_offset=None,
        remote_next_offset=None,
        log_end_offset=100,
        frozen="orphans",
    )
    assert explain(bare, None).sentences[1:5] == (
        "Its topic is not enabled: what is remote is kept, and nothing more is copied.",
        "It is frozen, so nothing is copied, trimmed or deleted: orphans.",
        "The remote log has no start yet: nothing was copied.",
        "The local log is empty and begins at 100.",
    )
    assert "Nothing is remote." in explain(explain_view(remote_next_offset=None), None).sentences


def test_a_snapshot_that_is_missing_is_said() -> None:
    waiting = (local(200, 300)[0],)
    waiting = (replace(waiting[0], closed=Closed.SNAPSHOT_MISSING),)
    view = explain_view(segments=waiting, copy=planned(segments=waiting))
    assert "waiting for the producer snapshot: 300.snapshot is not there yet" in said(view, 210)
