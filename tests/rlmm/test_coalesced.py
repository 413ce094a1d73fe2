"""Questions that go together: each is answered by a request that was sent after it was asked."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from kip405.errors import Internal, NotFound, RemoteStorageError, Unavailable
from rlmm.coalesced import MOST_AT_ONCE, Coalesced


class ManualBroker:
    """Requests that are answered when the test says; the answer to a question is its request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ...]] = []
        self._answers: list[asyncio.Future[Mapping[str, int | RemoteStorageError]]] = []

    async def ask(self, questions: Sequence[str]) -> Mapping[str, int | RemoteStorageError]:
        self.requests.append(tuple(questions))
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    async def answer(self, **instead: RemoteStorageError) -> None:
        """Answer the newest request: its number for each question, or an error."""
        number = len(self.requests)
        known: dict[str, int | RemoteStorageError] = dict.fromkeys(self.requests[-1], number)
        self._answers[-1].set_result({**known, **instead})
        await steps()

    async def fail(self, error: Exception) -> None:
        self._answers[-1].set_exception(error)
        await steps()

    async def forget(self, question: str) -> None:
        """Answer the newest request without a word on one of its questions."""
        kept = {one: len(self.requests) for one in self.requests[-1] if one != question}
        self._answers[-1].set_result(kept)
        await steps()


async def steps() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def broker() -> ManualBroker:
    return ManualBroker()


@pytest.fixture
def coalesced(broker: ManualBroker) -> Coalesced[str, int]:
    return Coalesced(broker.ask)


async def begun(coalesced: Coalesced[str, int], *questions: str) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(coalesced.answer(question)) for question in questions]
    await steps()
    return tasks


async def test_a_question_during_a_request_goes_with_the_next_one(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    first = await begun(coalesced, "a")
    late = await begun(coalesced, "b", "a", "c", "b")
    assert broker.requests == [("a",)]
    await broker.answer()
    assert [one.result() for one in first] == [1]
    assert not any(one.done() for one in late), "the answer under way may be older than they are"
    assert broker.requests == [("a",), ("b", "a", "c")]
    await broker.answer()
    assert [one.result() for one in late] == [2, 2, 2, 2]


async def test_questions_of_the_same_moment_go_together(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    for number in range(1, 4):
        asked = await begun(coalesced, "a", "b", "c")
        assert broker.requests == [("a", "b", "c")] * number
        await broker.answer()
        assert [one.result() for one in asked] == [number] * 3
    assert len(broker.requests) == 3, "none without a question"


async def test_callers_that_were_answered_together_ask_together_again(broker: ManualBroker) -> None:
    first: Coalesced[str, int] = Coalesced(broker.ask)
    second: Coalesced[str, int] = Coalesced(broker.ask)

    async def both(question: str) -> None:
        await first.answer(question)
        await second.answer(question)

    going = [asyncio.create_task(both(question)) for question in "abcd"]
    await steps()
    await broker.answer()
    assert [sorted(one) for one in broker.requests] == [["a", "b", "c", "d"]] * 2
    await broker.answer()
    await asyncio.gather(*going)


async def test_the_error_of_one_question_reaches_no_other_caller(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    await begun(coalesced, "x")
    good, bad = await begun(coalesced, "good", "bad")
    await broker.answer()
    await broker.answer(bad=NotFound("bad is gone"))
    assert good.result() == 2
    with pytest.raises(NotFound, match="bad is gone"):
        bad.result()


async def test_a_request_that_fails_fails_those_it_was_for(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    asked = await begun(coalesced, "a")
    late = await begun(coalesced, "b", "c")
    await broker.fail(Unavailable("no answer"))
    with pytest.raises(Unavailable, match="no answer"):
        asked[0].result()
    assert broker.requests == [("a",), ("b", "c")]
    await broker.answer()
    assert [one.result() for one in late] == [2, 2]


async def test_an_error_reaches_every_caller_of_its_request_and_the_next_asks_again(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    asked = await begun(coalesced, "a", "b", "a")
    await broker.fail(TimeoutError("no answer"))
    assert [str(one.exception()) for one in asked] == ["no answer"] * 3
    assert len(broker.requests) == 1
    again = await begun(coalesced, "a")
    await broker.answer()
    assert again[0].result() == 2


async def test_a_question_without_an_answer_is_an_error(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    await begun(coalesced, "x")
    known, lost = await begun(coalesced, "known", "lost")
    await broker.answer()
    await broker.forget("lost")
    assert known.result() == 2
    with pytest.raises(Internal, match="lost"):
        lost.result()


async def test_a_cancelled_sender_cancels_no_other_caller(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    await begun(coalesced, "x")
    leading, other = await begun(coalesced, "leading", "other")
    await broker.answer()
    assert broker.requests[-1] == ("leading", "other")
    leading.cancel()
    await steps()
    assert len(broker.requests) == 3, "the other one asks again"
    await broker.answer()
    assert other.result() == 3


async def test_a_cancelled_waiting_caller_changes_nothing(
    broker: ManualBroker, coalesced: Coalesced[str, int]
) -> None:
    await begun(coalesced, "x")
    leaving, staying = await begun(coalesced, "leaving", "staying")
    leaving.cancel()
    await broker.answer()
    await broker.answer()
    assert staying.result() == 2


async def test_a_request_has_a_limit(broker: ManualBroker, coalesced: Coalesced[str, int]) -> None:
    await begun(coalesced, "x")
    names = [str(number) for number in range(MOST_AT_ONCE + 1)]
    asked = [asyncio.create_task(coalesced.answer(name)) for name in names]
    await steps()
    await broker.answer()
    await broker.answer()
    await asyncio.wait(asked[:-1])
    await steps()
    await broker.answer()
    assert [len(one) for one in broker.requests] == [1, MOST_AT_ONCE, 1]
    assert [one.result() for one in asked] == [2] * MOST_AT_ONCE + [3]
