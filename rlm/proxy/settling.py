"""Finds out behind barriers what a broker's answer to one Fetch leaves open.

A view may be older than a client's offset, so nothing is said of an OFFSET_OUT_OF_RANGE, or of an
epoch that has ended, before settings and ledger have been read as far as they go now (H17, H37).
What follows from that is decided in `splice`. A barrier may take longer than the client waits, and
no other barrier can stand in for it: it has to begin after the broker's answer. So the Fetch waits
longer. This module must not know the broker's frames.
"""

import asyncio

from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.proxy.fetch_plan import PartitionFetch, Source
from rlm.proxy.reads import frozen, guarded, watermarks_or_none
from rlm.proxy.settings import ProxyMetrics
from rlm.proxy.splice import (
    not_ready,
    refuse_follower,
    refuse_storage,
    settle_doubted,
    settle_gap,
    settle_out_of_range,
)
from rlm.remote_log.tier import EpochEnd, Tier, TierPartition

_LEAST_BARRIER_MS = 100  # also for clients with a max_wait of 0
_PAUSE_MS = 30_000  # after a wait in vain: five seconds in thirty-five are lost to others at most


class BarrierLimit:
    """How long a Fetch waits for barriers though its max_wait is over; all connections share it.

    Whoever waits for less than a barrier takes would never be a step further. So a Fetch waits as
    long as the ListOffsets does that a client sends after an OFFSET_OUT_OF_RANGE, which is rare.
    Its other partitions wait with it, so that after a wait in vain, while the ledger is away, every
    Fetch ends with its max_wait for a time (G6).
    """

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        """`wait_ms`: from the beginning of a Fetch."""
        self._clock, self._wait_ms = clock, wait_ms
        self._pause_ends_ms = -1

    def wait_ms(self) -> int:
        """For a Fetch that begins now; 0 = no longer than its max_wait."""
        return 0 if self._clock.monotonic_ms() < self._pause_ends_ms else self._wait_ms

    def waited_in_vain(self) -> None:
        """A Fetch has waited longer than its max_wait, and its client is no step further."""
        self._pause_ends_ms = self._clock.monotonic_ms() + _PAUSE_MS


class Settling:
    """Of one Fetch, whose max_wait ends at `deadline_ms` on the monotonic clock. It may wait for
    barriers until `until_ms`, which is not earlier.
    """

    def __init__(
        self,
        tier: Tier,
        clock: Clock,
        metrics: ProxyMetrics,
        limit: BarrierLimit,
        *,
        deadline_ms: int,
        until_ms: int,
    ) -> None:
        self._tier, self._clock, self._metrics = tier, clock, metrics
        self._limit = limit
        self._deadline_ms, self._until_ms = deadline_ms, max(deadline_ms, until_ms)
        self._is_tier_late = False

    def _left_ms(self) -> int:
        return self._until_ms - self._clock.monotonic_ms()

    def _failed(self, began_ms: int) -> None:
        """What was waited for has not come. Where others had to wait for it, that was enough. What
        had no more time than in any Fetch shows nothing.
        """
        beyond_ms = self._clock.monotonic_ms() - max(began_ms, self._deadline_ms)
        had_time = self._until_ms - max(began_ms, self._deadline_ms) > _LEAST_BARRIER_MS
        if had_time and beyond_ms > _LEAST_BARRIER_MS:
            self._limit.waited_in_vain()

    def _settled(self, one: PartitionFetch, view: TierPartition | None, began_ms: int) -> None:
        """A barrier has passed. A client that is no step further asks again, for as long as the
        partition is frozen or something in it is not settled.
        """
        if view is None or one.source not in (Source.NOT_READY, Source.REFUSED):
            return
        if view.frozen or one.asked.fetch_offset < view.unsettled_next_offset:
            self._failed(began_ms)

    @property
    def has_waited(self) -> bool:
        """Whether the client has waited for another partition already, as long as it may."""
        return self._is_tier_late and self._left_ms() <= 0

    async def leave_open(self, partition: PartitionFetch) -> None:
        """Answer an OFFSET_OUT_OF_RANGE without a barrier: no records, and no error."""
        index = partition.asked.index
        watermarks = await watermarks_or_none(self._tier, partition.ref, index, _LEAST_BARRIER_MS)
        not_ready(partition, watermarks)

    async def out_of_range(self, group: asyncio.TaskGroup, partition: PartitionFetch) -> bool:
        """Settle an OFFSET_OUT_OF_RANGE; True when the broker must be asked again."""
        if partition.tiered is not None and not partition.tiered.led_here:
            refuse_follower(partition)
            return False
        began_ms, index = self._clock.monotonic_ms(), partition.asked.index
        bound_ms = max(self._left_ms(), _LEAST_BARRIER_MS)
        asking = group.create_task(watermarks_or_none(self._tier, partition.ref, index, bound_ms))
        view = await self._barrier(partition, bound_ms)
        if view is None:
            asking.cancel()
            return settle_out_of_range(partition, None, None)
        watermarks = await asking
        if watermarks is None:
            self._failed(began_ms)
        if frozen(view):
            refuse_storage(partition, watermarks)
        elif isinstance(view, RemoteStorageError):
            self._is_tier_late = True
            not_ready(partition, watermarks)
        else:
            epoch_end = self._epoch_end(partition, view)
            again = settle_out_of_range(partition, view, watermarks, epoch_end)
            self._settled(partition, view, began_ms)
            return again
        return False

    async def doubted(self, partition: PartitionFetch) -> None:
        """Decide whether the broker's or the merged lineage's answer about the last fetched epoch
        is right (H37).
        """
        view = await self._barrier(partition, max(self._left_ms(), _LEAST_BARRIER_MS))
        if frozen(view):
            refuse_storage(partition, partition.watermarks)
        elif isinstance(view, RemoteStorageError):
            not_ready(partition, partition.watermarks)
        else:
            epoch_end = None if view is None else self._epoch_end(partition, view)
            settle_doubted(partition, view, epoch_end)

    async def gap(self, partition: PartitionFetch, read_from: TierPartition) -> None:
        """Decide what is behind the last remote records, where a read of this view found none up to
        the end of the remote data (H15).
        """
        began_ms = self._clock.monotonic_ms()
        view = await self._barrier(partition, max(self._left_ms(), _LEAST_BARRIER_MS))
        if frozen(view):
            refuse_storage(partition, partition.watermarks)
        elif isinstance(view, RemoteStorageError):
            self._is_tier_late = True
            not_ready(partition, partition.watermarks)
        else:
            settle_gap(partition, view, read_from)
            self._settled(partition, view, began_ms)

    async def _barrier(
        self, partition: PartitionFetch, bound_ms: int
    ) -> TierPartition | RemoteStorageError | None:
        began_ms = self._clock.monotonic_ms()
        passed = False
        try:
            view = await guarded(self._tier.barrier(partition.ref, partition.asked.index, bound_ms))
            passed = not isinstance(view, RemoteStorageError)
        finally:  # a client that waits no longer has left
            if not passed:
                self._failed(began_ms)
        self._metrics.barrier_waited(self._clock.monotonic_ms() - began_ms, passed=passed)
        return view

    def _epoch_end(self, partition: PartitionFetch, view: TierPartition) -> EpochEnd | None:
        epoch = partition.asked.last_fetched_epoch
        if epoch < 0:
            return None
        return self._tier.epoch_end(view.topic_id, view.partition, epoch)
