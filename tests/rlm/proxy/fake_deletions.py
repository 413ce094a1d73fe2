"""The remote log starts that clients' DeleteRecords raise, as a proxy's tests need them."""

import asyncio
from dataclasses import dataclass, field

from kip405.errors import RemoteStorageError
from rlm.remote_log.tier import TierPartition


@dataclass
class FakeDeletions:
    """`gate` closed = a raise is not read back; an error set = it is raised."""

    stopped: str | None = None
    error: RemoteStorageError | None = None
    start: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    raised: list[tuple[int, int]] = field(default_factory=list)
    """Leader epoch and offset of each."""
    began: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def refusal(self, view: TierPartition) -> str | None:
        return "frozen" if view.frozen else self.stopped

    async def raise_start(self, view: TierPartition, offset: int) -> int:
        self.began.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.raised.append((view.leader_epoch, offset))
        self.start = max(self.start, offset)
        return self.start
