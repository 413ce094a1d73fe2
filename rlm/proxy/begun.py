"""Begins asynchronous work at once, so that work that need not wait needs no task.

asyncio's tasks begin with the next turn of the loop (eager tasks are of Python 3.12). A task for
each read of cached chunks costs more than the read itself. This module must not know the work.
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """Work that has to wait. Await it once: it goes on in the task of its awaiter."""

    def __init__(self, work: Coroutine[Any, None, T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, None, T]:
        work, waits_for, self._waits_for = self._work, self._waits_for, None
        while True:
            try:
                try:
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

    Until then the work must not ask for its task, as asyncio.timeout and task groups do.
    """
    try:
        return Begun(work, work.send(None))
    except StopIteration as done:
        found: T = done.value
        return found
