"""Deletes many segments by one call for each, for a store or plugin that has no request for many.

A segment that cannot be deleted does not keep the others. This module must not know what deletes
one segment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kip405.errors import RemoteStorageError
from kip405.segments import SegmentLocator

SEGMENTS_AT_ONCE = 32
DeleteOne = Callable[[SegmentLocator], Awaitable[None]]


async def delete_each(
    delete_one: DeleteOne, locators: Sequence[SegmentLocator]
) -> tuple[RemoteStorageError | None, ...]:
    """The error of each in the order given, None = deleted; a bounded number at the same time."""
    slots = asyncio.Semaphore(SEGMENTS_AT_ONCE)

    async def error_of(locator: SegmentLocator) -> RemoteStorageError | None:
        async with slots:
            try:
                await delete_one(locator)
            except RemoteStorageError as error:
                return error
            return None

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(error_of(locator)) for locator in locators]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    return tuple(task.result() for task in running)
