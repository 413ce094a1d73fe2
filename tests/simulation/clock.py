"""A process's clocks in virtual time, and its work that would block, done inline."""

import asyncio
import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rlm.service.threads import ServiceThreads
from rsm_plugins.threads import Threads
from tests.simulation.loop import VirtualTimeLoop

P = ParamSpec("P")
T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000


class SimulatedClock:
    """rlm.clock.Clock; `wall_ahead_ms`: how wrong the wall clock is now (H16)."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self.loop = loop
        self.wall_ahead_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000) + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        return 1_000_000 + int(self.loop.time() * 1000)

    async def sleep_ms(self, duration_ms: float) -> None:
        await asyncio.sleep(duration_ms / 1000)


class InlineThreads(Threads):
    """Work runs on the loop, some time after it was given and some time before it is known."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__("simulated", 1)
        self._chance = chance

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(self._chance.expovariate(1000.0))
        result = work(*args, **kwargs)
        await asyncio.sleep(self._chance.expovariate(1000.0))
        return result


def inline_threads(chance: random.Random) -> ServiceThreads:
    """A service's pools, all inline."""
    one = InlineThreads(chance)
    return ServiceThreads(
        copies=one,
        snapshots=one,
        evidence=one,
        reads=one,
        disk_cache=one,
        remote_index=one,
        other=one,
    )
