"""Several calls at once: all answers, or the first error as itself and the others cancelled."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers in the order of the calls."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
    return [task.result() for task in tasks]


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that a group of tasks failed with."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
