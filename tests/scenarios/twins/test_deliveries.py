"""What is wrong with the records that a group was given is seen, and what is allowed is not."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.scenarios.twins.deliveries import Deliveries, Event, Record, rebalances

LOG: list[Record] = [(offset, f"record {offset}") for offset in (0, 1, 2, 4, 5, 6, 9)]
_TIME = count()


def happened(member: str, what: str, **rest: object) -> Event:
    return Event(at_ns=next(_TIME), member=member, what=what, **rest)  # type: ignore[arg-type]


def assigned(member: str) -> Event:
    return happened(member, "assigned", partitions=(0,))


def revoked(member: str) -> Event:
    return happened(member, "revoked", partitions=(0,))


def records(member: str, first: int, after: int) -> Event:
    """Of the log, by index."""
    return happened(member, "records", records={0: LOG[first:after]})


def committed(member: str, offset: int, *, is_answered: bool = True) -> Iterator[Event]:
    yield happened(member, "committing", offsets={0: offset})
    if is_answered:
        yield happened(member, "committed", offsets={0: offset})


def checked(*events: Event, trimmed_to: int = 0) -> Deliveries:
    found = Deliveries({0: LOG}, {0: trimmed_to})
    found.check(events)
    return found


def test_a_group_that_hands_over_reads_each_record_once() -> None:
    found = checked(
        *(assigned("a"), records("a", 0, 3), revoked("a"), *committed("a", 3)),
        *(assigned("b"), records("b", 3, 5), records("b", 5, 7)),
    )
    assert (found.stints, found.reread) == (2, 0)


def test_after_a_lost_member_its_uncommitted_records_come_again() -> None:
    found = checked(
        *(assigned("a"), records("a", 0, 2), *committed("a", 2), records("a", 2, 5)),
        *(happened("a", "lost"), assigned("b"), records("b", 2, 7)),
    )
    assert found.reread == 3


def test_a_commit_without_an_answer_may_count_or_not() -> None:
    begun = (assigned("a"), records("a", 0, 4), revoked("a"))
    unanswered = tuple(committed("a", 5, is_answered=False))
    checked(*begun, *unanswered, assigned("b"), records("b", 0, 7))
    checked(*begun, *unanswered, assigned("b"), records("b", 4, 7))


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ((assigned("a"), records("a", 0, 2), records("a", 3, 7)), "due was as next"),
        ((assigned("a"), records("a", 0, 3), records("a", 2, 7)), "due was as next"),
        ((assigned("a"), records("a", 1, 7)), "due was as first of a stint"),
        ((assigned("a"), records("a", 0, 6)), "1 never came"),
        ((records("a", 0, 7),), "a reads 0, which is None's"),
        ((assigned("a"), assigned("b")), "b has it, and a too"),
        ((assigned("a"), records("a", 0, 3), revoked("a"), records("a", 3, 7)), "None's"),
        (
            (
                *(assigned("a"), records("a", 0, 3), revoked("a"), *committed("a", 3)),
                *(assigned("b"), records("b", 2, 7)),
            ),
            "due was as first of a stint",
        ),
    ],
)
def test_what_is_wrong_is_seen(events: tuple[Event, ...], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        checked(*events)


def test_only_what_was_trimmed_may_be_skipped() -> None:
    checked(assigned("a"), records("a", 0, 2), records("a", 4, 7), trimmed_to=5)
    with pytest.raises(AssertionError, match="due was as next"):
        checked(assigned("a"), records("a", 0, 2), records("a", 4, 7), trimmed_to=4)


def test_a_record_that_is_another_is_seen() -> None:
    with pytest.raises(AssertionError, match="due was"):
        checked(assigned("a"), happened("a", "records", records={0: [(0, "another")]}))


def test_calls_of_listeners_are_in_order_without_those_that_changed_nothing() -> None:
    def calls(what: str, *partitions: int) -> Event:
        return happened("a", what, partitions=partitions)

    found = rebalances(
        [
            *(calls("revoked"), calls("assigned", 0, 1)),
            *(calls("revoked", 0, 1), calls("assigned", 0, 1)),
            *(calls("revoked", 1, 0), calls("assigned", 1)),
        ]
    )
    assert found["a"] == [
        *(("revoked", ()), ("assigned", (0, 1)), ("revoked", (0, 1)), ("assigned", (1,))),
    ]
