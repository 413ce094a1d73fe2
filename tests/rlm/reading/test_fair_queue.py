"""Jobs that a reader waits for come first, and readers alternate whatever their number of jobs."""

from hypothesis import given
from hypothesis import strategies as st

from rlm.reading.fair_queue import FairQueue


def order(queue: FairQueue[str]) -> list[str]:
    taken = []
    while queue.first() is not None:
        taken.append(queue.take())
    return taken


def test_reader_after_reader_each_in_its_own_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for job in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.add(job, ord(job[0]), is_ahead=False)
    assert order(queue) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_who_waits_goes_before_who_reads_ahead() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("ahead", 1, is_ahead=True)
    queue.add("wanted", 2, is_ahead=False)
    assert order(queue) == ["wanted", "ahead"]


def test_a_job_somebody_waits_for_now_goes_with_those() -> None:
    queue: FairQueue[str] = FairQueue()
    for job in ("x", "y"):
        queue.add(job, 1, is_ahead=True)
    queue.add("w", 2, is_ahead=False)
    assert queue.promote("y", 1)
    assert not queue.promote("y", 1)
    assert (queue.wanted_count, len(list(queue))) == (2, 3)
    assert order(queue) == ["w", "y", "x"]


def test_what_is_read_ahead_for_nobody_is_dropped() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("x", 1, is_ahead=True)
    queue.add("w", 1, is_ahead=False)
    queue.add("other", 2, is_ahead=True)
    assert queue.drop_ahead(1) == ("x",)
    assert list(queue) == ["w", "other"]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
def test_no_reader_waits_for_more_than_one_job_of_each_other(jobs: list[tuple[int, bool]]) -> None:
    queue: FairQueue[tuple[int, int, bool]] = FairQueue()
    for number, (reader, is_ahead) in enumerate(jobs):
        queue.add((reader, number, is_ahead), reader, is_ahead=is_ahead)
    taken: list[tuple[int, int, bool]] = []
    while queue.first() is not None:
        taken.append(queue.take())
    assert sorted(number for _, number, _ in taken) == list(range(len(jobs)))
    for is_ahead in (False, True):
        own = [(reader, number) for reader, number, kind in taken if kind == is_ahead]
        for at, (reader, number) in enumerate(own):
            since = next((i for i in range(at - 1, -1, -1) if own[i][0] == reader), -1)
            between = [other for other, _ in own[since + 1 : at]]
            assert len(between) == len(set(between))
            assert all(number > earlier for r, earlier in own[:at] if r == reader)
    assert [kind for *_, kind in taken] == sorted(kind for *_, kind in taken)
