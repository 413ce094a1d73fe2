"""`Coalesced` keeps its promises in any order of questions, answers, errors and cancellations."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kip405.errors import NotFound, RemoteStorageError, Unavailable
from rlmm.coalesced import Coalesced

Question = tuple[str, int]  # group and key
_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["a", "b"]), st.integers(0, 2)),
        st.tuples(st.just("step"), st.just(""), st.integers(1, 3)),
        st.tuples(
            st.sampled_from(["answer", "fail", "refuse", "cancel"]), st.just(""), st.integers(0, 9)
        ),
    ),
    max_size=60,
)


@dataclass
class Request:
    number: int
    questions: tuple[Question, ...]
    outcome: asyncio.Future[str]
    has_ended: bool = False
    """Its outcome was received: neither it nor its sender was cancelled."""

    @property
    def group(self) -> str:
        return self.questions[0][0]


@dataclass
class Caller:
    question: Question
    task: asyncio.Task[int] = field(init=False)
    sent_before: int = 0
    is_cancelled: bool = False


class World:
    """A broker whose requests end when an action says so, and the callers that ask it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.callers: list[Caller] = []
        self.coalesced: Coalesced[Question, int] = Coalesced(
            self._ask, group_of=lambda question: question[0]
        )

    async def _ask(self, questions: Sequence[Question]) -> dict[Question, int | RemoteStorageError]:
        assert questions and len({group for group, _ in questions}) == 1
        assert len(set(questions)) == len(questions)
        assert not [one for one in self.in_flight() if one.group == questions[0][0]]
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        request = Request(len(self.requests), tuple(questions), outcome)
        self.requests.append(request)
        await outcome
        request.has_ended = True
        if outcome.result() == "fail":
            raise Unavailable(str(request.number))
        answers: dict[Question, int | RemoteStorageError] = dict.fromkeys(questions, request.number)
        if outcome.result() == "refuse":
            answers[request.questions[0]] = NotFound(str(request.number))
        return answers

    def in_flight(self) -> list[Request]:
        return [one for one in self.requests if not one.outcome.done()]

    def ask(self, question: Question) -> None:
        caller = Caller(question)
        caller.task = asyncio.ensure_future(self._call(caller))
        self.callers.append(caller)

    async def _call(self, caller: Caller) -> int:
        caller.sent_before = len(self.requests)
        return await self.coalesced.answer(caller.question)

    def end(self, outcome: str, index: int) -> None:
        if open_requests := self.in_flight():
            open_requests[index % len(open_requests)].outcome.set_result(outcome)

    def cancel(self, index: int) -> None:
        waiting = [caller for caller in self.callers if not caller.task.done()]
        if waiting:
            caller = waiting[index % len(waiting)]
            caller.is_cancelled = caller.task.cancel()

    async def run(self, actions: Sequence[tuple[str, str, int]]) -> None:
        for action, group, number in actions:
            match action:
                case "ask":
                    self.ask((group, number))
                case "step":
                    await steps(number)
                case "cancel":
                    self.cancel(number)
                case outcome:
                    self.end(outcome, number)
        await steps(20)
        while self.in_flight():
            self.end("answer", 0)
            await steps(20)

    def possible(self, caller: Caller) -> set[tuple[str, int]]:
        """The results of the requests that were sent after the caller asked, with its question."""
        return {
            expected(caller, request)
            for request in self.requests[caller.sent_before :]
            if caller.question in request.questions and request.has_ended
        }


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def expected(caller: Caller, request: Request) -> tuple[str, int]:
    outcome = request.outcome.result()
    is_refused = outcome == "refuse" and request.questions[0] == caller.question
    kind = {"fail": "Unavailable", "refuse": "NotFound" if is_refused else "int"}.get(
        outcome, "int"
    )
    return kind, request.number


def received(caller: Caller) -> tuple[str, int]:
    error = caller.task.exception()
    if error is None:
        return "int", caller.task.result()
    return type(error).__name__, int(str(error))


@given(_ACTIONS)
def test_each_caller_gets_what_a_request_after_its_question_answered(
    actions: list[tuple[str, str, int]],
) -> None:
    async def check() -> None:
        world = World()
        await world.run(actions)
        for caller in world.callers:
            assert caller.task.done(), "a caller waits although no request is in flight"
            if caller.is_cancelled:
                assert caller.task.cancelled()
                continue
            assert received(caller) in world.possible(caller)
        assert not world.coalesced._groups, "groups without callers are forgotten"

    asyncio.run(check())


@given(_ACTIONS.map(lambda actions: [one for one in actions if one[0] != "cancel"]))
def test_without_cancellations_each_question_goes_with_the_next_request_of_its_group(
    actions: list[tuple[str, str, int]],
) -> None:
    async def check() -> None:
        world = World()
        await world.run(actions)
        for caller in world.callers:
            of_group = [one for one in world.requests if one.group == caller.question[0]]
            later = next(one for one in of_group if one.number >= caller.sent_before)
            assert received(caller)[1] == later.number

    asyncio.run(check())
