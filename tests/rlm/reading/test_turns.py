"""Who waits goes first; a reader with many jobs has one turn when others have one."""

from hypothesis import given
from hypothesis import strategies as st

from rlm.reading.fair_queue import Turns


def order(turns: Turns[str]) -> list[str]:
    taken = []
    while turns.first() is not None:
        taken.append(turns.take())
    return taken


def test_reader_after_reader_each_in_its_own_order() -> None:
    turns: Turns[str] = Turns()
    for job in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.add(job, ord(job[0]), is_ahead=False)
    assert order(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_who_waits_goes_before_who_reads_ahead() -> None:
    turns: Turns[str] = Turns()
    turns.add("ahead", 1, is_ahead=True)
    turns.add("wanted", 2, is_ahead=False)
    assert order(turns) == ["wanted", "ahead"]


def test_a_job_somebody_waits_for_now_goes_with_those() -> None:
    turns: Turns[str] = Turns()
    for job in ("x", "y"):
        turns.add(job, 1, is_ahead=True)
    turns.add("w", 2, is_ahead=False)
    assert turns.promote("y", 1)
    assert not turns.promote("y", 1)
    assert (turns.wanted_count, turns.ahead_count) == (2, 1)
    assert order(turns) == ["w", "y", "x"]


def test_what_is_read_ahead_for_nobody_is_dropped() -> None:
    turns: Turns[str] = Turns()
    turns.add("x", 1, is_ahead=True)
    turns.add("w", 1, is_ahead=False)
    turns.add("other", 2, is_ahead=True)
    assert turns.drop_ahead(1) == ("x",)
    assert list(turns) == ["w", "other"]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
def test_nobody_waits_for_more_than_one_turn_of_each_other(jobs: list[tuple[int, bool]]) -> None:
    turns: Turns[tuple[int, int, bool]] = Turns()
    for number, (reader, is_ahead) in enumerate(jobs):
        turns.add((reader, number, is_ahead), reader, is_ahead=is_ahead)
    taken: list[tuple[int, int, bool]] = []
    while turns.first() is not None:
        taken.append(turns.take())
    assert sorted(number for _, number, _ in taken) == list(range(len(jobs)))
    for is_ahead in (False, True):
        own = [(reader, number) for reader, number, kind in taken if kind == is_ahead]
        for at, (reader, number) in enumerate(own):
            since = next((i for i in range(at - 1, -1, -1) if own[i][0] == reader), -1)
            between = [other for other, _ in own[since + 1 : at]]
            assert len(between) == len(set(between))
            assert all(number > earlier for r, earlier in own[:at] if r == reader)
    assert [kind for *_, kind in taken] == sorted(kind for *_, kind in taken)
