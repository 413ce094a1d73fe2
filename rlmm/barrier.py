"""Serves barriers with end offsets that were requested after the barrier was taken (H17).

One request is in flight per partition, and one answer serves many callers. A caller that arrives
while a request is in flight waits for the next request: the answer under way may be older than the
event that the caller needs to be behind. This module must not know who reads the log.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicPartition


class EndOffsets:
    """Single flight for `fetch(place) -> end offset`; `run` must be running."""

    def __init__(self, fetch: Callable[[TopicPartition], Awaitable[int]]) -> None:
        self._fetch = fetch
        self._waiting: dict[TopicPartition, list[asyncio.Future[int]]] = {}
        self._serving: set[TopicPartition] = set()
        self._asked: asyncio.Queue[TopicPartition] = asyncio.Queue()

    async def run(self) -> None:
        """Serve until cancelled; may be run again after it ended."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(self._serve(await self._asked.get()))
        finally:
            self._abandon()

    async def end_offset(self, place: TopicPartition) -> int:
        """End offset of the partition from a request that was sent after this call; errors are
        fetch's.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, []).append(answer)
        if place not in self._serving:
            self._serving.add(place)
            self._asked.put_nowait(place)
        return await answer

    async def _serve(self, place: TopicPartition) -> None:
        waiting: list[asyncio.Future[int]] = []
        try:
            while waiting := self._waiting.pop(place, []):
                try:
                    end = await self._fetch(place)
                except RemoteStorageError as error:
                    _fail(waiting, error)
                else:
                    for answer in _open(waiting):
                        answer.set_result(end)
            self._serving.discard(place)
        finally:
            _fail(waiting, Unavailable(f"end offset of {place}: nobody asks any more"))

    def _abandon(self) -> None:
        """Nobody serves any more: waiters get an error, and later callers start again."""
        while not self._asked.empty():
            self._asked.get_nowait()
        for place, waiting in self._waiting.items():
            _fail(waiting, Unavailable(f"end offset of {place}: nobody asks any more"))
        self._waiting.clear()
        self._serving.clear()


def _fail(waiting: list[asyncio.Future[int]], error: RemoteStorageError) -> None:
    for answer in _open(waiting):
        answer.set_exception(error)


def _open(waiting: list[asyncio.Future[int]]) -> list[asyncio.Future[int]]:
    return [answer for answer in waiting if not answer.done()]
