"""Runs loads, a bounded number at once, within the memory bound and in fair order.

One bound holds for all memory of reads: bytes in flight, bytes kept, and bytes that answers refer
to. Read-ahead has a smaller bound within it, so that a waiting reader finds room.

A load continues when its caller is cancelled. The pool has more threads than processors, because a
load mostly waits for the store. It is separate from the pools of copy and cleanup, so that none can
starve another (G6). This module must not know what a load fetches.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from kip405.errors import Busy, Unavailable
from rlm.clock import Clock
from rlm.reading.chunk_cache import ChunkCache
from rlm.reading.fair_queue import FairQueue
from rlm.reading.values import ReadLimits

_SHARE_OF_ONE_ANSWER = 4
_LEAST_ANSWER_BYTES = 256 << 10
_LEAST_SHARE = 64
V = TypeVar("V")
_ASK_FOR_ROOM_MS = 10


class ReadMemory:
    """Reservations for loads, beside what `chunks` keeps and what `indexes_kept_bytes` returns."""

    def __init__(
        self, limits: ReadLimits, chunks: ChunkCache, indexes_kept_bytes: Callable[[], int]
    ) -> None:
        self._limits = limits
        self._chunks = chunks
        self._indexes_kept_bytes = indexes_kept_bytes
        self.reserved_bytes = 0
        self._reserved_ahead_bytes = 0
        self._is_overdrawn = False

    @property
    def held_bytes(self) -> int:
        """Everything that counts against the bound."""
        return self.reserved_bytes + self._chunks.kept_bytes + self._indexes_kept_bytes()

    def reserve(self, size_bytes: int, *, is_ahead: bool) -> bool:
        """Reserve room for a load, and evict chunks where needed. False: there is no room now."""
        chunks = self._chunks
        ahead_bytes = chunks.ahead_bytes + chunks.expected_bytes + self._reserved_ahead_bytes
        if is_ahead and ahead_bytes + size_bytes > self._limits.ahead_bytes:
            return False
        lacking = self.held_bytes + size_bytes - self._limits.memory_bytes
        if lacking > 0 and self._chunks.evict(lacking, spares_ahead=is_ahead) < lacking:
            return False
        self._take(size_bytes, is_ahead)
        return True

    def take(self, size_bytes: int, *, is_ahead: bool) -> None:
        """Reserve room for a small load that cannot wait, beyond the bound if needed: others wait
        instead.
        """
        if not self.reserve(size_bytes, is_ahead=is_ahead):
            self._take(size_bytes, is_ahead)

    @property
    def may_overdraw(self) -> bool:
        """Whether a load may exceed the bound now: one at a time."""
        return not self._is_overdrawn

    def overdraw(self, size_bytes: int) -> None:
        """Reserve room beyond the bound.

        It is for a read that holds part of a batch and cannot return anything before it has the
        rest: if such reads held all memory, none of them would ever end.
        """
        self._is_overdrawn = True
        self._take(size_bytes, False)

    def overdraft_ended(self) -> None:
        """The load beyond the bound has ended."""
        self._is_overdrawn = False

    def release(self, size_bytes: int, *, is_ahead: bool) -> None:
        """Release the room of a load that ended. What it loaded is kept, and counted there, or
        dropped.
        """
        self._take(-size_bytes, is_ahead)

    def wanted(self, size_bytes: int) -> None:
        """A reader now waits for a load that was reserved as read-ahead."""
        self._reserved_ahead_bytes -= size_bytes

    def _take(self, size_bytes: int, is_ahead: bool) -> None:
        self.reserved_bytes += size_bytes
        if is_ahead:
            self._reserved_ahead_bytes += size_bytes

    def answer_bytes(self) -> int:
        """The most that one answer may hold now, so that there is room for more answers.

        It is never so little that clients need very many answers, because the first byte of a chunk
        already holds all of it.
        """
        whole = self._limits.chunk_bytes // _SHARE_OF_ONE_ANSWER
        unpinned = self._limits.chunk_bytes // 2 - self._chunks.pinned_bytes()
        return max(min(whole, unpinned // 2), min(whole // _LEAST_SHARE, _LEAST_ANSWER_BYTES), 1)


@dataclass(slots=True, eq=False, kw_only=True)
class Load(Generic[V]):
    """One load of a reader: `run` returns the value, `size_bytes` is the memory that it takes
    meanwhile.

    `waits_for_room` is False if other running loads wait for this one, so that it must not wait for
    theirs. `holds_part`: the reader that waits for the load already holds part of a batch (see
    ReadMemory.overdraw).
    """

    reader: int
    size_bytes: int
    is_ahead: bool
    run: Callable[["Load[V]"], Awaitable[V]]
    holds_part: bool = False
    waits_for_room: bool = True
    future: asyncio.Future[V] = field(default_factory=lambda: _future())
    waited_for: set[int] = field(default_factory=set)
    """The parts that a reader waits for; the rest of a read-ahead stays read-ahead."""
    task: asyncio.Task[None] | None = None
    is_overdraft: bool = False
    is_reader_gone: bool = False
    """No reader waits for it any more, whatever it was begun for."""


def _caused(error: Unavailable, cause: BaseException) -> Unavailable:
    error.__cause__ = cause
    return error


def _future() -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    # A load outlives its caller: a failure that is never awaited counts as retrieved.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


class LoadScheduler:
    """Runs loads in the owner's TaskGroup; a failure goes to the load's future only."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        memory: ReadMemory,
        clock: Clock,
        *,
        at_once: int,
        most_waiting: int,
    ) -> None:
        self._tasks = tasks
        self._memory = memory
        self._clock = clock
        self._at_once = at_once
        self._most_waiting = most_waiting
        self._queue: FairQueue[Load[Any]] = FairQueue()
        self._running: set[Load[Any]] = set()
        self._asks_for_room = False
        self.lacking_bytes = 0
        """Room that the next load did not find; 0 = none is lacking."""

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        """Queued loads that a reader waits for."""
        return self._queue.wanted_count

    def submit(self, load: Load[V]) -> asyncio.Future[V]:
        """Queue a load and begin it as soon as it is the next one; Busy if too many loads wait
        already.
        """
        if not load.is_ahead and self._queue.wanted_count >= self._most_waiting:
            raise Busy(f"{self._queue.wanted_count} remote reads wait already")
        self._queue.add(load, load.reader, is_ahead=load.is_ahead)
        self.pump()
        return load.future

    def want(self, load: Load[Any], part: int = 0) -> None:
        """A reader waits for a part of a load. A load that reads ahead is promoted."""
        load.waited_for.add(part)
        if not load.is_ahead:
            return
        load.is_ahead = False
        if load in self._running:
            self._memory.wanted(load.size_bytes)
        elif self._queue.promote(load, load.reader):
            self.pump()

    def forget(self, reader: int) -> tuple[Load[Any], ...]:
        """A reader is gone: drop what is read ahead for it. Returns those loads, so that no other
        reader joins them.
        """
        running = [one for one in self._running if one.reader == reader and one.is_ahead]
        for load in running:
            if load.task is not None:
                load.task.cancel()
        dropped = (*self._queue.drop_ahead(reader), *running)
        for load in dropped:
            load.future.cancel()
        return dropped

    def landed(self, load: Load[Any]) -> None:
        """What the load brought is counted by the cache from now on."""
        self._memory.release(load.size_bytes, is_ahead=load.is_ahead)
        load.size_bytes = 0

    def pump(self) -> None:
        """Begin the next loads that find room; call it whenever there may be room."""
        self.lacking_bytes = 0
        while len(self._running) < self._at_once and (load := self._queue.first()) is not None:
            if not load.waits_for_room:
                self._memory.take(load.size_bytes, is_ahead=load.is_ahead)
                self._queue.take()
            elif self._memory.reserve(load.size_bytes, is_ahead=load.is_ahead):
                self._queue.take()
            elif load.is_ahead:
                return
            else:
                self.lacking_bytes = load.size_bytes
                self._ask_for_room_soon()
                stuck = self._overdrawn()
                if stuck is None:
                    return
                load = stuck
            self._running.add(load)
            work = self._run(load)
            try:
                load.task = self._tasks.create_task(work)
            except RuntimeError:
                work.close()
                self._give_up()
                return
            load.task.add_done_callback(partial(self._ended, load))

    def _overdrawn(self) -> Load[Any] | None:
        """Without room: the first load whose reader holds memory, and frees it when it has the
        rest.
        """
        if not self._memory.may_overdraw:
            return None
        for load in self._queue:
            if load.holds_part and not load.is_ahead:
                self._queue.remove(load, load.reader)
                self._memory.overdraw(load.size_bytes)
                load.is_overdraft = True
                return load
        return None

    def _ask_for_room_soon(self) -> None:
        """Check again soon, because answers that were sent free room without a notification."""
        if not self._asks_for_room:
            self._asks_for_room = True
            work = self._clock.sleep_ms(_ASK_FOR_ROOM_MS)
            try:
                task = self._tasks.create_task(work)
            except RuntimeError:
                work.close()
                self._give_up()
            else:
                task.add_done_callback(self._ask_for_room)

    def _ask_for_room(self, _: asyncio.Task[None]) -> None:
        self._asks_for_room = False
        self.pump()

    def _give_up(self) -> None:
        """The owner's group has ended and takes no more tasks: cancel loads without a task."""
        for load in (*self._queue, *self._running):
            if load.task is None:
                load.future.cancel()
        self._queue = FairQueue()

    async def _run(self, load: Load[Any]) -> None:
        try:
            result = await load.run(load)
        except asyncio.CancelledError as error:
            if load.task is not None and load.task.cancelling():
                raise
            # The load was not cancelled, so its caller must not appear to be cancelled either.
            if not load.future.done():
                load.future.set_exception(_caused(Unavailable("the load broke off"), error))
        except Exception as error:  # noqa: BLE001 - a task runner: the failure goes to the callers
            if not load.future.done():
                load.future.set_exception(error)
        else:
            if not load.future.done():
                load.future.set_result(result)

    def _ended(self, load: Load[Any], _: asyncio.Task[None]) -> None:
        """Clean up after the task, which may have been cancelled before its first step, so that no
        caller waits in vain.
        """
        self._running.discard(load)
        self._memory.release(load.size_bytes, is_ahead=load.is_ahead)
        if load.is_overdraft:
            self._memory.overdraft_ended()
        load.task = None
        if not load.future.done():
            load.future.cancel()
        self.pump()
