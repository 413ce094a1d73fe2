"""Slots for attempts to copy: a small segment takes a quarter of one, a large one a whole slot.

Copies of large segments are limited by what they transfer. Copies of small ones spend their time
waiting for answers, and attempts that wait at the same time share requests to broker, ledger and
plugin. So more of the small ones run at a time. This module must not know what an attempt does.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_QUARTERS = 4
WHOLE_SLOT_BYTES = 16 << 20
"""A segment of this size or more takes a whole slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimit:
    """So many segments at a time, and up to four times as many that are small."""

    slots: int
    whole_slot_bytes: int = WHOLE_SLOT_BYTES

    def quarters(self, size_bytes: int) -> int:
        """What a segment of this size takes, in quarters of a slot: 1 to 4."""
        if size_bytes >= self.whole_slot_bytes:
            return _QUARTERS
        return 1 + size_bytes * _QUARTERS // self.whole_slot_bytes


class CopySlots:
    """The slots of a limit; they are given in the order of requests, whatever they ask for."""

    def __init__(self, limit: CopyLimit) -> None:
        self._limit = limit
        self._slots = limit.slots
        self._free = limit.slots * _QUARTERS
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def share(self, size_bytes: int) -> AsyncIterator[None]:
        """`take` and `give_back` around the block."""
        await self.take(size_bytes)
        try:
            yield
        finally:
            self.give_back(size_bytes)

    async def take(self, size_bytes: int) -> None:
        """Return once a segment of this size has its share; `give_back` returns it."""
        wanted = self._limit.quarters(size_bytes)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, turn))
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._free += wanted
            self._serve()
            raise

    def change(self, slots: int) -> None:
        """So many slots from now on; what is taken beyond them is waited for."""
        self._free += (slots - self._slots) * _QUARTERS
        self._slots = slots
        self._serve()

    def give_back(self, size_bytes: int) -> None:
        """The attempt for a segment of this size is over."""
        self._free += self._limit.quarters(size_bytes)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.cancelled():
                if wanted > self._free:
                    return
                self._free -= wanted
                turn.set_result(None)
            self._waiting.popleft()
