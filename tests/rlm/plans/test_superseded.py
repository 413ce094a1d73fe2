"""H3, H6, H8: when a lost segment's entry may leave the ledger."""

from collections.abc import Sequence

import pytest

from kip405.ids import Uuid
from kip405.lineage import Lineage
from rlm.plans.coverage import is_superseded, overlapping
from rlmm.ledger import Hole, UsableSegment
from tests.builders.ledger import metadata
from tests.rlm.plans.views import lineage

LOST = metadata(1, 100, 200, {0: 100})


def copy(number: int, start: int, next_offset: int, *, disputed: bool = False) -> UsableSegment:
    return UsableSegment(
        metadata=metadata(number, start, next_offset, {0: start}),
        next_offset=next_offset,
        disputed=disputed,
    )


def superseded(
    others: Sequence[UsableSegment],
    *,
    start: int = 0,
    holes: Sequence[Hole] = (),
    gone: Sequence[int] = (),
    history: Lineage | None = None,
) -> bool:
    ids = {one.metadata.segment_id.id for one in others}
    return is_superseded(
        LOST,
        others,
        lineage=history or lineage({0: 0}),
        remote_log_start_offset=start,
        holes=holes,
        seen=ids - {Uuid(number.to_bytes(16, "big")) for number in gone},
    )


@pytest.mark.parametrize(
    ("others", "answer"),
    [
        ([], False),
        ([copy(2, 100, 200)], True),
        ([copy(2, 50, 150), copy(3, 150, 250)], True),
        ([copy(2, 100, 199)], False),
        ([copy(2, 101, 200)], False),
        ([copy(2, 100, 150), copy(3, 151, 200)], False),
    ],
)
def test_h03_every_offset_must_be_in_another_copy(
    others: Sequence[UsableSegment], answer: bool
) -> None:
    assert superseded(others) is answer


def test_h11_a_copy_that_is_gone_itself_replaces_nothing() -> None:
    assert superseded([copy(2, 100, 200)], gone=[1])
    assert not superseded([copy(2, 100, 200)], gone=[1, 2])
    assert superseded([copy(2, 100, 200), copy(3, 100, 200)], gone=[1, 2])


def test_h15_a_hole_on_record_is_missed_by_nobody() -> None:
    assert superseded([copy(2, 150, 200)], holes=[Hole(start=90, end=150, cause="accepted")])
    assert not superseded([copy(2, 150, 200)], holes=[Hole(start=90, end=149, cause="accepted")])


def test_h02_what_ended_below_the_remote_start_is_missed_by_nobody() -> None:
    assert superseded([copy(2, 150, 200)], start=150)
    assert not superseded([copy(2, 150, 200)], start=149)


def test_h08_a_segment_that_is_partly_of_a_dead_history_stays() -> None:
    assert not superseded([copy(2, 100, 200)], history=lineage({0: 0, 1: 180}))
    assert superseded([copy(2, 100, 200)], history=lineage({0: 0, 1: 200}))


def test_h03_neither_the_segment_itself_nor_a_disputed_or_distant_one_is_another_copy() -> None:
    itself = UsableSegment(metadata=LOST, next_offset=200, disputed=False)
    near = copy(2, 150, 250)
    usable = [itself, copy(3, 100, 200, disputed=True), copy(4, 0, 100), copy(5, 200, 300), near]
    assert overlapping(LOST, usable) == (near,)
