"""H31: what is checked of a partition's offsets, instead of "each offset is in one tier"."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import DoubtfulSegment
from rlm.plans.verification import (
    Issue,
    IssueKind,
    PartitionOffsets,
    PartitionView,
    confirmed,
    partition_issues,
)
from rlmm.ledger import Hole, SegmentEntry, UsableSegment
from tests.builders.ledger import OUR_WRITER, PARTITION, metadata

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


def copy(number: int, start: int, end: int, *, disputed: bool = False) -> UsableSegment:
    made = metadata(number, start, end, {0: start})
    return UsableSegment(metadata=made, next_offset=end, disputed=disputed)


def entry(made: RemoteLogSegmentMetadata, disputed: str = "") -> SegmentEntry:
    return SegmentEntry(
        metadata=made,
        leader_epoch=0,
        writer=OUR_WRITER,
        offset=0,
        timestamp_ms=0,
        disputed=disputed,
    )


GOOD = PartitionOffsets(
    local_log_start_offset=200,
    last_stable_offset=450,
    local_log_end_offset=500,
    remote_log_start_offset=0,
    remote_log_end_offset=300,
)


def view(*usable: UsableSegment, **changes: Any) -> PartitionView:
    """Remote [0, 300) in three copies, local [200, 500), unless changed."""
    offsets = {name: changes.pop(name) for name in tuple(changes) if name.endswith("_offset")}
    made = PartitionView(
        partition=PARTITION.topic_partition,
        offsets=replace(GOOD, **offsets),
        usable=usable or (copy(1, 0, 100), copy(2, 100, 200), copy(3, 200, 300)),
        entries=(),
        holes=(),
        doubtful=(),
        frozen=None,
        is_enabled=True,
    )
    return replace(made, **changes)


def kinds(found: tuple[Issue, ...]) -> list[tuple[IssueKind, int, int]]:
    return [(one.kind, one.start_offset, one.next_offset) for one in found]


def gaps(found: tuple[Issue, ...]) -> list[tuple[int, int]]:
    return [(one.start_offset, one.next_offset) for one in found if one.kind is IssueKind.GAP]


def test_h31_a_partition_in_good_order_has_no_issue() -> None:
    assert partition_issues(view()) == ()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"local_log_end_offset": 449}, ("end Lz = 449", "stable offset Ly = 450")),
        ({"local_log_start_offset": 451}, ("stable offset Ly = 450", "log start Lx = 451")),
        ({"remote_log_end_offset": 451}, ("stable offset Ly = 450", "log end Ry = 451")),
        ({"remote_log_start_offset": 301}, ("log end Ry = 300", "log start Rx = 301")),
    ],
)
def test_each_pair_out_of_order_is_a_finding_with_both_names(
    changes: dict[str, int], names: tuple[str, str]
) -> None:
    texts = replace(GOOD, **changes).violations()
    assert len(texts) == 1
    assert all(name in texts[0] for name in names)
    orders = [one for one in partition_issues(view(**changes)) if one.kind is IssueKind.ORDER]
    assert [one.text for one in orders] == list(texts)
    assert all(one.action for one in orders)


def test_offsets_may_be_equal() -> None:
    same = PartitionOffsets(
        local_log_start_offset=7,
        last_stable_offset=7,
        local_log_end_offset=7,
        remote_log_start_offset=7,
        remote_log_end_offset=7,
    )
    assert same.violations() == ()


@pytest.mark.parametrize(
    ("usable", "found"),
    [
        ((copy(1, 0, 100), copy(3, 200, 300)), [(100, 200)]),
        ((copy(1, 0, 100), copy(2, 50, 200)), []),
        ((copy(1, 0, 100), copy(2, 100, 150)), [(150, 200)]),
        ((copy(2, 10, 200),), [(0, 10)]),
        ((copy(1, 0, 100), copy(2, 100, 200, disputed=True)), [(100, 200)]),
    ],
)
def test_h15_offsets_that_no_tier_has_are_a_gap(
    usable: tuple[UsableSegment, ...], found: list[tuple[int, int]]
) -> None:
    assert gaps(partition_issues(view(*usable))) == found


def test_h15_a_recorded_hole_is_named_with_its_cause_and_is_no_gap() -> None:
    hole = Hole(start=100, end=200, cause="accepted loss: ann")
    (one,) = partition_issues(view(copy(1, 0, 100), holes=(hole,)))
    assert kinds((one,)) == [(IssueKind.HOLE, 100, 200)]
    assert "accepted loss: ann" in one.text
    assert not one.is_finding
    assert partition_issues(view(holes=(hole,), remote_log_start_offset=200)) == ()
    ended = view(copy(1, 0, 100), holes=(hole,), remote_log_start_offset=150)
    assert kinds(partition_issues(ended)) == [(IssueKind.HOLE, 150, 200)]


def test_what_is_below_the_remote_log_start_is_not_wanted() -> None:
    assert partition_issues(view(copy(2, 100, 200), remote_log_start_offset=100)) == ()


def test_h15_a_file_of_0_bytes_holds_nothing() -> None:
    doubtful = DoubtfulSegment(base_offset=320, next_offset=340, path="x.log", why="not flushed")
    (one,) = partition_issues(view(doubtful=(doubtful,)))
    assert kinds((one,)) == [(IssueKind.GAP, 320, 340)]
    assert "x.log has 0 bytes: not flushed" in one.text


def test_what_a_kept_topics_broker_deleted_is_not_wanted() -> None:
    kept = view(local_log_start_offset=400, is_enabled=False)
    assert partition_issues(kept) == ()
    assert gaps(partition_issues(replace(kept, is_enabled=True))) == [(300, 400)]


def test_h04_a_frozen_partition_is_a_finding() -> None:
    assert kinds(partition_issues(view(frozen="why"))) == [(IssueKind.FROZEN, -1, -1)]


def test_h03_attempts_and_disputes_are_notes_and_are_named_in_the_gap_they_leave() -> None:
    entries = (
        entry(metadata(8, 100, 200, {0: 100}, STARTED)),
        entry(metadata(9, 0, 100, {0: 0}), disputed="a late write"),
        entry(metadata(7, 300, 400, {0: 300}, DELETING)),
        entry(metadata(6, 0, 100, {0: 0})),
    )
    gap, disputed, begun, deleting = partition_issues(view(copy(6, 0, 100), entries=entries))
    assert kinds((gap,)) == [(IssueKind.GAP, 100, 200)]
    assert "COPY_SEGMENT_STARTED" in gap.text
    assert disputed.kind is IssueKind.DISPUTED
    assert "a late write" in disputed.text
    assert (begun.kind, begun.segment_id) == (
        IssueKind.UNFINISHED,
        entries[0].metadata.segment_id.id,
    )
    assert deleting.kind is IssueKind.UNFINISHED
    assert not any(one.is_finding for one in (disputed, begun, deleting))


def test_a_finding_counts_once_a_second_view_has_it_too() -> None:
    first = partition_issues(view(copy(1, 0, 100)))
    filled = partition_issues(view())
    assert gaps(first) == [(100, 200)]
    assert confirmed(first, filled) == ()
    assert confirmed(filled, first) == ()
    assert confirmed(first, first) == first
    grown = partition_issues(view(copy(1, 0, 100), local_log_start_offset=210))
    assert gaps(confirmed(first, grown)) == [(100, 210)]
    hole = Hole(start=100, end=200, cause="new")
    noted = partition_issues(view(copy(1, 0, 100), holes=(hole,)))
    assert confirmed(first, noted) == noted  # a note needs no second view


RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda one: (one[0], one[0] + one[1])),
    max_size=6,
)


@given(
    copies=RANGES,
    holes=RANGES,
    start=st.integers(0, 30),
    local=st.integers(0, 50),
    length=st.integers(0, 20),
)
def test_h31_gaps_are_exactly_the_offsets_that_nothing_has(
    copies: list[tuple[int, int]],
    holes: list[tuple[int, int]],
    start: int,
    local: int,
    length: int,
) -> None:
    end = local + length
    made = view(
        *(copy(number, *one) for number, one in enumerate(copies)),
        local_log_start_offset=local,
        last_stable_offset=end,
        local_log_end_offset=end,
        remote_log_start_offset=start,
        remote_log_end_offset=start,
        usable=tuple(copy(number, *one) for number, one in enumerate(copies)),
        holes=tuple(Hole(start=one[0], end=one[1], cause="c") for one in holes),
    )
    found = {offset for one in gaps(partition_issues(made)) for offset in range(*one)}
    there = {offset for one in (*copies, *holes, (local, end)) for offset in range(*one)}
    assert found == set(range(start, end)) - there
