"""Writes holes down: the one place that changes a partition's list (H15).

Whoever adds to it reads it behind a barrier first, one after the other, so that nobody takes
another one's hole away. Only the partition's leader writes.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from kip405.ids import PartitionKey
from rlm.lanes.ports import Settings
from rlm.plans.holes import with_holes, without_copied
from rlmm.facts import HolesFact
from rlmm.ledger import Hole

log = structlog.get_logger()


class HoleRecords:
    """The holes of the partitions that this service leads."""

    def __init__(self, *, settings: Settings, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._barrier_deadline_ms = barrier_deadline_ms
        self._turn = asyncio.Lock()

    async def add(self, key: PartitionKey, holes: Iterable[Hole], leader_epoch: int) -> None:
        """Returns once they are on record. Fenced: led elsewhere by now. Invalid: too many."""
        new = tuple(holes)
        await self._change(key, lambda known: with_holes(known, new), leader_epoch)

    async def fill(
        self, key: PartitionKey, start: int, next_offset: int, leader_epoch: int
    ) -> None:
        """To be called before [start, next_offset) is copied: the leader's log has it after all, so
        that the copy is not one whose loss was accepted already. Errors as `add`.
        """
        known = self._settings.view.holes(key)
        if without_copied(known, start, next_offset) != known:
            await self._change(
                key, lambda holes: without_copied(holes, start, next_offset), leader_epoch
            )

    async def _change(
        self,
        key: PartitionKey,
        change: Callable[[tuple[Hole, ...]], tuple[Hole, ...]],
        leader_epoch: int,
    ) -> None:
        async with self._turn:
            await self._settings.barrier(self._barrier_deadline_ms)
            known = self._settings.view.holes(key)
            wanted = change(known)
            if wanted == known:
                return
            await self._settings.publish(HolesFact(partition=key, holes=wanted), leader_epoch)
        log.warning("holes_recorded", partition=str(key), holes=len(wanted))
