"""Coalesces questions: while a request is in flight, later questions are collected for the next.

Each caller gets the answer to a request that was sent after its question, as if it had asked alone.
So rules that need an answer "as of now" hold, with fewer requests. `Coalesced` needs no task of its
own: the first caller of a batch sends the request of the whole batch, when the request before it
has ended. This module must not know what is asked.

- **Order.** One request of a group is in flight at a time. A question that arrives in the meantime
  goes into the next request, with all others that arrive until then. Equal questions are sent once.
- **Limit.** A request has at most `MOST_AT_ONCE` questions; more of them make further requests.
- **Errors.** An error of the request is raised in every caller of that request. An error that is
  the answer to one question is raised in the callers of that question. The next question sends
  another request.
- **Cancellation.** A caller that is cancelled cancels no other caller. If it was the one that was
  sending, its request is cancelled with it, and another caller of the batch sends the batch again.
  Where a request must outlive its callers, its owner calls `answer` in a task of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import Generic, TypeVar

from kip405.errors import Internal, RemoteStorageError

MOST_AT_ONCE = 500

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")
Answers = Mapping[Q, A | RemoteStorageError]


class _Batch(Generic[Q, A]):
    """Questions that are sent together, and what came of it."""

    __slots__ = ("answers", "changed", "error", "has_sender", "origin", "questions", "was_sent")

    def __init__(self) -> None:
        self.questions: dict[Q, None] = {}
        self.has_sender = self.was_sent = False
        self.answers: Answers[Q, A] | None = None
        self.error: Exception | None = None
        self.origin: TracebackType | None = None
        """Of the error alone, without the frames of the callers in which it was raised before."""
        self.changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        return self.answers is not None or self.error is not None

    def answer(self, question: Q) -> A:
        if self.error is not None:
            raise self.error.with_traceback(self.origin)
        found = (self.answers or {}).get(question)
        if isinstance(found, RemoteStorageError):
            raise found
        if found is None:
            raise Internal(f"no answer to {question}")
        return found

    def leave(self) -> None:
        """The sender has ended or was cancelled. In the latter case another caller sends."""
        self.has_sender = False
        self.changed.set()
        self.changed = asyncio.Event()


class _Group(Generic[Q, A]):
    """One request at a time, and the batch that is collected for the next one."""

    __slots__ = ("callers", "collecting", "in_flight")

    def __init__(self) -> None:
        self.callers = 0
        self.collecting: _Batch[Q, A] = _Batch()
        self.in_flight = asyncio.Lock()

    def join(self, question: Q) -> _Batch[Q, A]:
        batch = self.collecting
        if batch.was_sent or len(batch.questions) >= MOST_AT_ONCE:
            batch = self.collecting = _Batch()
        batch.questions[question] = None
        return batch


def _one_group(_question: object) -> None:
    return None


class Coalesced(Generic[Q, A]):
    """Coalesces `ask(questions) -> answer to each`, where an answer may be an error.

    Questions of different groups are never in one request, and their requests do not wait for each
    other. A group is forgotten when no caller waits in it.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Answers[Q, A]]],
        *,
        group_of: Callable[[Q], Hashable] = _one_group,
    ) -> None:
        self._ask = ask
        self._group_of = group_of
        self._groups: dict[Hashable, _Group[Q, A]] = {}

    async def answer(self, question: Q) -> A:
        """The answer to a request that is sent after this call.

        Errors: those of the request, the one that is the answer, Internal where there is no answer.
        """
        key = self._group_of(question)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        group.callers += 1
        try:
            batch = group.join(question)
            while not batch.is_done:
                if batch.has_sender:
                    await batch.changed.wait()
                else:
                    await self._send(group, batch)
            return batch.answer(question)
        finally:
            group.callers -= 1
            if not group.callers:
                del self._groups[key]

    async def _send(self, group: _Group[Q, A], batch: _Batch[Q, A]) -> None:
        batch.has_sender = True
        try:
            async with group.in_flight:
                # Callers that were woken at the same time add their questions first.
                await asyncio.sleep(0)  # noqa: TID251 - lets others run once, waits for no time
                batch.was_sent = True
                batch.answers = await self._ask(tuple(batch.questions))
        except Exception as error:  # noqa: BLE001 - raised in every caller of the batch
            batch.error, batch.origin = error, error.__traceback__
        finally:
            batch.leave()
