"""Serves barriers with end offsets that were requested after the barrier was taken (H17).

One request is in flight per partition, and one answer serves many callers (`coalesced`). Requests
are tasks of `run`, so that a caller with a short deadline does not end the request of the others.
This module must not know who reads the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicPartition
from rlmm.coalesced import Coalesced


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    partition: TopicPartition
    answer: asyncio.Future[int]

    def fail(self, error: RemoteStorageError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class EndOffsets:
    """Coalesces `fetch(partition) -> end offset` by partition; `run` must be running."""

    def __init__(self, fetch: Callable[[TopicPartition], Awaitable[int]]) -> None:
        self._fetch = fetch
        self._coalesced: Coalesced[TopicPartition, int] = Coalesced(
            self._ask, group_of=lambda partition: partition
        )
        self._open: set[_Question] = set()
        self._early: list[_Question] = []
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled; may be run again after it ended."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                while self._early:
                    tasks.create_task(self._serve(self._early.pop(0)))
                try:
                    await asyncio.Event().wait()
                finally:
                    self._tasks = None
        finally:
            self._abandon()

    async def end_offset(self, partition: TopicPartition) -> int:
        """End offset of the partition from a request that was sent after this call.

        Errors are those of `fetch`. Unavailable: `run` ended meanwhile.
        """
        question = _Question(partition, asyncio.get_running_loop().create_future())
        self._open.add(question)
        if self._tasks is None:
            self._early.append(question)
        else:
            self._tasks.create_task(self._serve(question))
        try:
            return await question.answer
        finally:
            self._open.discard(question)

    async def _ask(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: await self._fetch(partition) for partition in partitions}

    async def _serve(self, question: _Question) -> None:
        try:
            end = await self._coalesced.answer(question.partition)
        except RemoteStorageError as error:
            question.fail(error)
        except BaseException:  # the TaskGroup ends: it takes no further task
            self._tasks = None
            raise
        else:
            if not question.answer.done():
                question.answer.set_result(end)

    def _abandon(self) -> None:
        """No request is sent any more: callers get an error, and later callers start again."""
        self._early.clear()
        for question in self._open:
            question.fail(Unavailable(f"end offset of {question.partition}: the metadata log ends"))
