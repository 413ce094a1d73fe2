"""Coalesces requests of one kind: while one is in flight, later questions are collected for the
next.

Each caller gets the answer to a request that was sent after its question, as if it had asked alone.
So rules that need an answer "as of now" hold, with fewer requests. This module must not know what
is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from kip405.errors import Internal, RemoteStorageError
from rlm.clock import next_turn

MOST_AT_ONCE = 500

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")
Answers = Mapping[Q, A | RemoteStorageError]


class _Batch(Generic[Q, A]):
    """Questions that are sent together. With `answers` None they are unanswered, and one caller may
    be sending them.
    """

    __slots__ = ("answers", "changed", "is_led", "questions", "was_sent")

    def __init__(self) -> None:
        self.questions: dict[Q, None] = {}
        self.is_led = self.was_sent = False
        self.answers: Answers[Q, A] | None = None
        self.changed = asyncio.Event()

    def left(self) -> None:
        """Whoever asked for all is done, or was cancelled: then one of the others goes on."""
        self.is_led = False
        self.changed.set()
        self.changed = asyncio.Event()


class Gathered(Generic[Q, A]):
    """Coalesces `ask(questions) -> answer of each`, where an answer may be an error.

    It needs no task: the first caller of a batch sends the whole batch when the batch is next.
    Equal questions are sent once.
    """

    def __init__(self, ask: Callable[[Sequence[Q]], Awaitable[Answers[Q, A]]]) -> None:
        self._ask = ask
        self._next: _Batch[Q, A] = _Batch()
        self._turn = asyncio.Lock()

    async def of(self, question: Q) -> A:
        """The answer to a request sent after this call; errors are its own or the request's."""
        batch = self._joined(question)
        while batch.answers is None:
            if batch.is_led:
                await batch.changed.wait()
            else:
                await self._lead(batch)
        found = batch.answers.get(question)
        if isinstance(found, RemoteStorageError):
            raise found
        if found is None:
            raise Internal(f"no answer to {question}")
        return found

    def _joined(self, question: Q) -> _Batch[Q, A]:
        batch = self._next
        if batch.was_sent or len(batch.questions) >= MOST_AT_ONCE:
            batch = self._next = _Batch()
        batch.questions[question] = None
        return batch

    async def _lead(self, batch: _Batch[Q, A]) -> None:
        batch.is_led = True
        try:
            async with self._turn:
                await next_turn()  # callers that were woken at the same time add their questions
                batch.was_sent = True
                batch.answers = await self._answers(tuple(batch.questions))
        finally:
            batch.left()

    async def _answers(self, questions: Sequence[Q]) -> Answers[Q, A]:
        try:
            return await self._ask(questions)
        except RemoteStorageError as error:
            return dict.fromkeys(questions, error)
