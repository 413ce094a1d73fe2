"""H15: the list of holes on record, and in which of them nobody misses anything."""

import pytest

from kip405.errors import Invalid
from rlm.plans.coverage import (
    MOST_HOLES,
    NO_RECORDS,
    missed,
    ranges_without_records,
    with_holes,
    without_copied,
)
from rlmm.ledger import Hole


def hole(start: int, end: int, cause: str = "lost") -> Hole:
    return Hole(start=start, end=end, cause=cause)


def test_h15_holes_ascend_and_touching_ones_of_one_cause_are_joined() -> None:
    known = with_holes([hole(300, 400)], [hole(0, 100), hole(100, 200)])
    assert known == (hole(0, 200), hole(300, 400))
    assert with_holes(known, [hole(50, 350)]) == (hole(0, 400),)
    assert with_holes(known, [hole(200, 300, "other")]) == (
        hole(0, 200),
        hole(200, 300, "other"),
        hole(300, 400),
    )
    assert with_holes(known, known) == known


def test_h15_what_is_copied_is_taken_out_but_for_what_had_no_records() -> None:
    known = (hole(0, 100), hole(100, 200, NO_RECORDS), hole(200, 300))
    assert without_copied(known, 50, 250) == (hole(0, 50), known[1], hole(250, 300))
    assert without_copied(known, 0, 300) == (known[1],)
    assert without_copied(known, 300, 400) == known
    assert without_copied((hole(0, 300),), 100, 200) == (hole(0, 100), hole(200, 300))


def test_there_are_at_most_so_many() -> None:
    most = [hole(2 * number, 2 * number + 1) for number in range(MOST_HOLES)]
    assert len(with_holes(most, most)) == MOST_HOLES
    with pytest.raises(Invalid, match="at most"):
        with_holes(most, [hole(2 * MOST_HOLES, 2 * MOST_HOLES + 1)])


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ([(0, 100)], ((0, 100),)),
        ([(100, 200)], ()),
        ([(120, 180)], ()),
        ([(50, 150)], ((50, 100),)),
        ([(150, 250)], ((200, 250),)),
        ([(50, 250)], ((50, 100), (200, 250))),
        ([(50, 350)], ((50, 100), (200, 300))),
        ([(50, 150), (180, 320)], ((50, 100), (200, 300))),
    ],
)
def test_nothing_is_missed_in_ranges_without_records(
    ranges: list[tuple[int, int]], left: tuple[tuple[int, int], ...]
) -> None:
    empty = ranges_without_records(
        [hole(0, 100), hole(100, 200, NO_RECORDS), hole(300, 350, NO_RECORDS)]
    )
    assert missed(ranges, empty) == left
