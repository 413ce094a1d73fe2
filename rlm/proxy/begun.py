"""Begins asynchronous work at once, so that work that need not wait needs no task.

asyncio's tasks begin with the next turn of the loop (eager tasks are of Python 3.12), and go on
with another one after each wait. A task for each read of cached chunks costs more than the read
itself, and a task for each request as much as the request. This module must not know the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """Work that has to wait. Await it once: it goes on in the task of its awaiter. Or tell it with
    `go_on` that what it waits for has come.
    """

    def __init__(self, work: Coroutine[Any, None, T], waits_for: Any) -> None:
        self._work = work
        self.waits_for = waits_for

    def go_on(self) -> "T | Begun[T]":
        """As `begin`, from where the work waits."""
        return begin(self._work)

    def close(self) -> None:
        """End the work where it waits; its cleanup must not wait."""
        self._work.close()

    def __await__(self) -> Generator[Any, None, T]:
        work, waits_for, self.waits_for = self._work, self.waits_for, None
        while True:
            try:
                try:
                    if waits_for is not _A_TASK:
                        yield waits_for
                except BaseException as error:  # noqa: BLE001 - it is the work's, as in a task
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(None)
            except StopIteration as done:
                found: T = done.value
                return found


def begin(work: Coroutine[Any, None, T]) -> T | Begun[T]:
    """Run the work in the caller, up to its end or until it has to wait; its error is raised.

    Until then the work must not ask for its task, as asyncio.timeout and task groups do. It may
    await `in_task` first.
    """
    try:
        return Begun(work, work.send(None))
    except StopIteration as done:
        found: T = done.value
        return found


_A_TASK = object()


class _InTask:
    def __await__(self) -> Generator[Any, None, None]:
        yield _A_TASK


async def in_task() -> None:
    """Go on in a task, where this is none yet. Whoever awaits this was begun here."""
    if asyncio.current_task() is None:
        await _InTask()


def complete(awaited: asyncio.Future[None]) -> None:
    """Let whoever awaits it go on, as an Event that is set, which takes 800 bytes of memory more.
    Nothing where it is complete, or was cancelled with its waiter.
    """
    if not awaited.done():
        awaited.set_result(None)


class Steps:
    """Works on one thing after another in callbacks, as long as each waits for nothing but
    `awaited`; otherwise it goes on in a task.

    `create_task` is of the owner's group, which ends by an error that a work or `ended` raises, and
    by a cancellation that was none of `stop`; a group that is ending already takes nothing more.
    `ended` is called in a callback when a work has returned; it may begin the next one.
    """

    def __init__(
        self,
        create_task: Callable[[Coroutine[Any, None, None]], asyncio.Task[None]],
        ended: Callable[[], None],
    ) -> None:
        self._create_task = create_task
        self._ended = ended
        self.awaited: asyncio.Future[Any] | None = None
        self._waiting: Begun[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._next: Coroutine[Any, None, None] | None = None
        self._is_running = False
        self._is_over = False

    def start(self, work: Coroutine[Any, None, None]) -> None:
        """Begin a work; the one before it has returned."""
        if self._is_over:
            work.close()
            return
        self._next = work
        if not self._is_running:
            self._run(None)

    def go_on(self) -> None:
        """`awaited` is done: continue the work that waits for it."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._run(waiting)

    def stop(self) -> None:
        """End the work: close it, or cancel its task. Nothing is begun afterwards."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()
        following, self._next = self._next, None
        if following is not None:
            following.close()

    def _run(self, waiting: Begun[None] | None) -> None:
        """One step, and further works that begin meanwhile: never one within another."""
        self._is_running = True
        try:
            while waiting is not None or self._next is not None:
                if waiting is not None:
                    found = waiting.go_on()
                    waiting = None
                else:
                    work, self._next = self._next, None
                    assert work is not None  # noqa: S101 - checked above
                    found = begin(work)
                self._stepped(found)
        except BaseException as error:  # noqa: BLE001 - it is the owner's, as of a task
            self._fail(error)
        finally:
            self._is_running = False

    def _stepped(self, found: Begun[None] | None) -> None:
        if found is None:
            self._ended()
        elif self._is_over:
            found.close()
        elif found.waits_for is not None and found.waits_for is self.awaited:
            self._waiting = found
        else:
            self._task = self._in_group(or_broken_off(found))
            if self._task is None:
                found.close()
            else:
                self._task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled() or task.exception() is not None or self._is_over:
            return
        try:
            self._ended()
        except BaseException as error:  # noqa: BLE001 - it is the owner's, as in `_run`
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            error = _broken_off(error)
        self._in_group(_raise(error))

    def _in_group(self, work: Coroutine[Any, None, None]) -> asyncio.Task[None] | None:
        """None: the group is ending, and the work is closed."""
        try:
            return self._create_task(work)
        except RuntimeError:
            work.close()
            return None


def _broken_off(error: asyncio.CancelledError) -> RuntimeError:
    made = RuntimeError("the work broke off: it was cancelled, but nobody has cancelled it")
    made.__cause__ = error
    return made


async def or_broken_off(work: Awaitable[None]) -> None:
    """For a task of the work: an error where it ends cancelled and nobody has cancelled the task. A
    group would go on, and whoever waits for what the work does would wait for ever.
    """
    try:
        await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _broken_off(error) from error


async def _raise(error: BaseException) -> None:
    raise error
