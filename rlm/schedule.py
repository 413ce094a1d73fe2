"""When lanes get work: every led partition of an enabled topic, once an interval.

Only submits; the pools bound, order and isolate (G6).
"""

from collections.abc import Awaitable, Callable, Iterable

import structlog

from kip405.errors import Busy
from kip405.ids import PartitionKey
from rlm.broker.leadership import Leadership, LedPartition
from rlm.clock import Clock, jittered_ms
from rlm.lanes.lane import LanePool
from rlmm.settings import Settings

log = structlog.get_logger()
Round = Callable[[LedPartition], Awaitable[None]]


class Schedule:
    """Submits one kind of round for the partitions of a node."""

    def __init__(
        self,
        *,
        pool: LanePool,
        leadership: Leadership,
        settings: Settings,
        node_id: int,
        clock: Clock,
        interval_ms: int,
        forget: Callable[[PartitionKey], None],
    ) -> None:
        self._pool = pool
        self._leadership = leadership
        self._settings = settings
        self._node_id = node_id
        self._clock = clock
        self._interval_ms = interval_ms
        self._forget = forget
        self._known: set[PartitionKey] = set()

    async def run(self, round_of: Round) -> None:
        """Submit for ever; what is led elsewhere now is forgotten."""
        while True:
            led = self._led()
            self._forget_others(row.topic_id_partition.key for row in led)
            for row in led:
                self._submit(row, round_of)
            await self._clock.sleep_ms(jittered_ms(self._interval_ms))

    def _led(self) -> tuple[LedPartition, ...]:
        view = self._settings.view
        return tuple(
            row
            for row in self._leadership.snapshot.led_by(self._node_id)
            if view.topic(row.topic_id_partition.topic_id) is not None
        )

    def _submit(self, row: LedPartition, round_of: Round) -> None:
        try:
            self._pool.submit(row.topic_id_partition.key, lambda: round_of(row))
        except Busy as error:
            log.warning("lane_busy", lane=self._pool.name, error=str(error))

    def _forget_others(self, keys: Iterable[PartitionKey]) -> None:
        now = set(keys)
        for key in self._known - now:
            self._pool.forget(key)
            self._forget(key)
        self._known = now
