"""Requests a copy task as soon as a partition got a new segment, instead of at the next interval.

A segment that was just closed may not be eligible yet: its producer snapshot is written a moment
later, or the last stable offset is not there yet. So the request is repeated after waits that
double, until the partition does not wait for its broker any more or the schedule takes over. The
schedule of copy tasks runs beside this and does not depend on it. This module must not know how a
roll is noticed.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rsm_plugins.threads import Threads

log = structlog.get_logger()


class NewSegments(Protocol):
    """See rlm.log_dir.rolls.Rolls."""

    def new(self, partitions: Collection[tuple[str, int]]) -> tuple[tuple[str, int], ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeat:
    """`at_ms`: monotonic; the next one comes `wait_ms` later."""

    at_ms: int
    wait_ms: int


class RollWatch:
    """`request` asks for a copy task; `is_open`: whether one runs or waits, or has found that the
    broker is not ready. `most_wait_ms`: the interval of the schedule.
    """

    def __init__(
        self,
        *,
        rolls: NewSegments,
        led: Callable[[], Collection[LedPartition]],
        request: Callable[[LedPartition], None],
        is_open: Callable[[PartitionKey], bool],
        threads: Threads,
        clock: Clock,
        interval_ms: Callable[[], int],
        most_wait_ms: Callable[[], int],
    ) -> None:
        self._rolls = rolls
        self._led = led
        self._request = request
        self._is_open = is_open
        self._threads = threads
        self._clock = clock
        self._interval_ms = interval_ms
        self._most_wait_ms = most_wait_ms
        self._repeats: dict[PartitionKey, _Repeat] = {}
        self._problem: str | None = None
        self._watched: Collection[LedPartition] = ()
        self._rows: dict[tuple[str, int], LedPartition] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.poll()
            await self._clock.sleep_ms(self._interval_ms())

    async def poll(self) -> None:
        """Request what is to be requested now."""
        led = self._led()
        if self._repeats:
            self._repeat({one.key: one for one in led})
        if led is not self._watched:
            self._watched, self._rows = led, {one.topic_partition: one for one in led}
        rows = self._rows
        try:
            found = await self._threads.run(self._rolls.new, rows)
        except RemoteStorageError as error:
            self._note(str(error))
            return
        self._note(None)
        for name in found:
            self._ask(rows[name], self._interval_ms())

    def _repeat(self, led: dict[PartitionKey, LedPartition]) -> None:
        now_ms = self._clock.monotonic_ms()
        for key, repeat in tuple(self._repeats.items()):
            if key not in led or repeat.wait_ms > self._most_wait_ms():
                del self._repeats[key]
            elif now_ms >= repeat.at_ms:
                del self._repeats[key]
                if self._is_open(key):
                    self._ask(led[key], 2 * repeat.wait_ms)

    def _ask(self, row: LedPartition, wait_ms: int) -> None:
        self._request(row)
        at_ms = self._clock.monotonic_ms() + wait_ms
        self._repeats[row.key] = _Repeat(at_ms=at_ms, wait_ms=wait_ms)

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            log.warning("rolls_not_seen", error=problem)
        self._problem = problem
