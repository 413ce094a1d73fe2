"""Of overlapping copies each offset once, and nothing outside the leader's history (H4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip405.lineage import remote_lineage, usable_end
from kip405.segments import EpochEntry
from rlm.download.plan import PartitionPlan, Usable, pieces_of
from tests.builders.ledger import PARTITION, metadata


def usable(*ranges: tuple[int, int]) -> list[Usable]:
    return [
        (metadata(number, start, next_offset, {0: start}), next_offset)
        for number, (start, next_offset) in enumerate(ranges, 1)
    ]


@pytest.mark.parametrize(
    ("ranges", "start", "expected"),
    [
        ([], 0, []),
        ([(0, 10), (10, 20)], 0, [(0, 10), (10, 20)]),
        ([(10, 20), (0, 10)], 0, [(0, 10), (10, 20)]),
        ([(0, 10), (0, 10)], 0, [(0, 10)]),
        ([(0, 10), (5, 20)], 0, [(0, 10), (10, 20)]),
        ([(0, 30), (5, 20), (10, 40)], 0, [(0, 30), (30, 40)]),
        ([(0, 10), (4, 8), (8, 20)], 0, [(0, 10), (10, 20)]),
        ([(0, 10), (20, 30)], 0, [(0, 10), (20, 30)]),
        ([(0, 10), (10, 20), (20, 30)], 15, [(10, 20), (20, 30)]),
        ([(0, 10), (10, 20)], 10, [(10, 20)]),
        ([(5, 20), (0, 10)], 7, [(5, 20)]),
        ([(0, 10)], 10, []),
    ],
)
def test_pieces(ranges: list[tuple[int, int]], start: int, expected: list[tuple[int, int]]) -> None:
    found = pieces_of(usable(*ranges), start)
    assert [(piece.start_offset, piece.next_offset) for piece in found] == expected


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=12),
    st.integers(0, 30),
)
def test_pieces_cover_what_the_segments_cover_once(
    shapes: list[tuple[int, int]], start: int
) -> None:
    ranges = [(first, first + size) for first, size in shapes]
    pieces = pieces_of(usable(*ranges), start)
    offsets = [one for piece in pieces for one in range(piece.start_offset, piece.next_offset)]
    assert offsets == sorted(set(offsets))
    wanted = {one for first, end in ranges for one in range(first, end) if one >= start}
    assert {one for one in offsets if one >= start} == wanted
    for piece in pieces:
        assert piece.metadata.start_offset <= piece.start_offset
        assert piece.next_offset <= piece.metadata.next_offset


def test_h04_what_an_unclean_election_replaced_is_left_out() -> None:
    old = metadata(1, 0, 100, {5: 0})
    new = metadata(2, 50, 150, {5: 50, 6: 60})
    lineage = remote_lineage([new, old])
    assert lineage.entries == (
        EpochEntry(epoch=5, start_offset=0),
        EpochEntry(epoch=6, start_offset=60),
    )
    pieces = pieces_of([(one, usable_end(one, lineage)) for one in (new, old)], 0)
    assert [(one.start_offset, one.next_offset) for one in pieces] == [(0, 60), (60, 150)]
    assert not pieces[0].is_whole
    plan = PartitionPlan(
        cluster_id="c",
        topic_partition=PARTITION,
        remote_log_start_offset=0,
        lineage=lineage,
        pieces=pieces,
    )
    assert plan.next_offset == 150
    assert plan.leader_epochs == lineage
