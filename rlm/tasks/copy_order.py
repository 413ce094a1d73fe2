"""Runs the copies of one partition several at a time, so that remote data stays contiguous.

Attempts read, hash and upload side by side. Four steps of an attempt wait for the attempt of the
segment before it:

    admission              after the one before was admitted among the attempts of all partitions:
                           who waits for others' steps must not keep them out
    COPY_SEGMENT_STARTED   after the one before has begun to publish its own, so that a segment that
                           cannot be read lets no later one be uploaded
    the last checks        after the ones before are uploaded, so that they are right before
    the manifest           after the manifest before is stored; COPY_SEGMENT_FINISHED follows it

A manifest makes a copy that is adopted if its attempt breaks, so whatever is finished, every
segment before it in the plan is finished too or will be adopted: a gap between two finished
segments never counts as a hole (G3, H15). The publishes themselves overlap.

An attempt that fails stops those after it at their next step; what they leave, the sweep adopts or
deletes. Those before it continue, so a segment that can never be copied does not keep the ones
before it from being copied. This module must not know what an attempt does.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from kip405.errors import Unavailable
from rlm.tasks.copy_slots import CopyLimit, CopySlots

T = TypeVar("T")


class Step(enum.Enum):
    """What an attempt does in its turn."""

    ADMITTED = enum.auto()
    STARTED = enum.auto()
    UPLOADED = enum.auto()
    STORED = enum.auto()


class Turn:
    """The place of one attempt behind the attempt `before` it; None = it is the first one."""

    def __init__(self, before: "Turn | None" = None) -> None:
        self._before = before
        self._steps = {step: asyncio.Event() for step in Step}
        self._has_failed = False

    async def after(self, step: Step) -> None:
        """Return once the attempt before has taken the step. Unavailable: it failed."""
        if self._before is None:
            return
        await self._before._steps[step].wait()
        if self._before._has_failed:
            raise Unavailable("the copy of the segment before this one failed")

    def taken(self, step: Step) -> None:
        """This attempt has taken the step."""
        self._steps[step].set()

    async def take(self, step: Step) -> None:
        """`after`, then `taken`."""
        await self.after(step)
        self.taken(step)

    def end(self, *, failed: bool) -> None:
        """The attempt is over: no later one waits for it any more."""
        self._before = None
        self._has_failed = failed
        for step in Step:
            self.taken(step)


async def run_in_order(
    items: Iterable[T],
    limit: CopyLimit,
    run: Callable[[T, Turn], Awaitable[None]],
    size_of: Callable[[T], int],
    gives_way: Callable[[], bool] = lambda: False,
) -> None:
    """Run the items, each with its turn, within the limit, until the first failure or until the run
    gives way to others: then no further item begins.

    The error is that of the first item that failed, once those before it are done.
    """
    slots = CopySlots(limit)
    errors: dict[int, Exception] = {}

    async def attempt(number: int, item: T, turn: Turn) -> None:
        try:
            await run(item, turn)
        except asyncio.CancelledError:
            errors[number] = Unavailable("the copy was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - raised to the caller
            errors[number] = error
        finally:
            turn.end(failed=number in errors)
            slots.give_back(size_of(item))

    async with asyncio.TaskGroup() as tasks:
        turn: Turn | None = None
        for number, item in enumerate(items):
            await slots.take(size_of(item))
            if errors or gives_way():
                break
            turn = Turn(turn)
            tasks.create_task(attempt(number, item, turn))
    if errors:
        raise errors[min(errors)]
