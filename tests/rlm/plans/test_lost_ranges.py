"""H15: which offsets are lost for good."""

from typing import Any

from kip405.ids import Uuid
from rlm.plans.coverage import DoubtfulSegment, LossView, OffsetRange, lost_ranges
from rlmm.ledger import Hole, UsableSegment
from tests.builders.ledger import metadata


def copy(number: int, start: int, end: int) -> UsableSegment:
    made = metadata(number, start, end, {0: start})
    return UsableSegment(metadata=made, next_offset=end, disputed=False)


def found(
    *usable: UsableSegment, gone: tuple[int, ...], local: tuple[int, int] = (500, 600), **more: Any
) -> list[tuple[int, int]]:
    view = LossView(
        usable=usable,
        gone={Uuid(number.to_bytes(16, "big")) for number in gone},
        local=OffsetRange(start=local[0], next_offset=local[1]),
        doubtful=more.get("doubtful", ()),
        remote_log_start_offset=more.get("start", 0),
        holes=more.get("holes", ()),
    )
    return [(one.start, one.next_offset) for one in lost_ranges(view)]


def test_h15_what_is_gone_from_store_and_log_is_lost() -> None:
    copies = (copy(1, 0, 100), copy(2, 100, 200), copy(3, 200, 300), copy(4, 300, 400))
    assert found(*copies, gone=()) == []
    assert found(*copies, gone=(2,)) == [(100, 200)]
    assert found(*copies, gone=(2, 3)) == [(100, 300)]
    assert found(*copies, gone=(1, 3)) == [(0, 100), (200, 300)]


def test_h15_what_another_copy_or_the_log_has_is_not_lost() -> None:
    assert found(copy(1, 0, 100), copy(2, 50, 150), gone=(1,)) == [(0, 50)]
    assert found(copy(1, 0, 100), copy(2, 0, 100), gone=(1,)) == []
    assert found(copy(1, 0, 100), gone=(1,), local=(40, 600)) == [(0, 40)]
    assert found(copy(1, 0, 100), gone=(1,), local=(0, 600)) == []


def test_h15_neither_what_has_ended_nor_what_is_accepted_is_lost() -> None:
    assert found(copy(1, 0, 100), gone=(1,), start=30) == [(30, 100)]
    accepted = Hole(start=20, end=60, cause="accepted")
    assert found(copy(1, 0, 100), gone=(1,), holes=(accepted,)) == [(0, 20), (60, 100)]


def test_h15_a_file_of_0_bytes_in_the_log_has_lost_its_records() -> None:
    doubtful = DoubtfulSegment(base_offset=520, next_offset=540, path="x.log", why="crash")
    assert found(gone=(), doubtful=(doubtful,)) == [(520, 540)]
    assert found(copy(1, 500, 530), gone=(), doubtful=(doubtful,)) == [(530, 540)]
    assert found(copy(1, 500, 530), gone=(1,), doubtful=(doubtful,)) == [(520, 540)]


def test_what_is_shown_of_a_range() -> None:
    (one,) = lost_ranges(
        LossView(
            usable=(copy(1, 0, 100), copy(2, 100, 200)),
            gone={Uuid(number.to_bytes(16, "big")) for number in (1, 2)},
            doubtful=(),
            local=OffsetRange(start=150, next_offset=300),
            remote_log_start_offset=0,
            holes=(),
        )
    )
    assert (one.start, one.next_offset, one.segments, one.size_bytes) == (0, 150, 2, 2)
    assert one.why == "the objects of 2 segments are gone from the store"
