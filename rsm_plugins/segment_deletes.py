"""Deletes many segments by one call for each, for a store or plugin that has no request for many.

A segment that cannot be deleted does not keep the others. This module must not know what deletes
one segment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence

from kip405.errors import RemoteStorageError
from kip405.segments import SegmentLocator

SEGMENTS_AT_ONCE = 32
DeleteOne = Callable[[SegmentLocator], Awaitable[None]]


async def delete_each(
    delete_one: DeleteOne,
    locators: Sequence[SegmentLocator],
    turn_of: Callable[[SegmentLocator], Hashable] | None = None,
) -> tuple[RemoteStorageError | None, ...]:
    """The error of each in the order given, None = deleted; a bounded number at the same time.
    Those with the same `turn_of` go one after the other, in the order given.
    """
    slots = asyncio.Semaphore(SEGMENTS_AT_ONCE)
    turns: dict[Hashable, list[int]] = {}
    for at, locator in enumerate(locators):
        turns.setdefault(at if turn_of is None else turn_of(locator), []).append(at)
    errors: dict[int, RemoteStorageError] = {}

    async def delete(several: Sequence[int]) -> None:
        async with slots:
            for at in several:
                try:
                    await delete_one(locators[at])
                except RemoteStorageError as error:
                    errors[at] = error

    try:
        async with asyncio.TaskGroup() as tasks:
            for several in turns.values():
                tasks.create_task(delete(several))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    return tuple(errors.get(at) for at in range(len(locators)))
