"""Finds out behind barriers what a broker's answer to one Fetch leaves open.

A view may be older than a client's offset, so nothing is said of an OFFSET_OUT_OF_RANGE, or of an
epoch that has ended, before settings and ledger have been read as far as they go now (H17, H37).
What follows from that is decided in `splice`. This module must not know the broker's frames.
"""

import asyncio

from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.proxy.fetch_plan import PartitionFetch
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


class Settling:
    """Of one Fetch, up to its deadline on the monotonic clock."""

    def __init__(self, tier: Tier, clock: Clock, metrics: ProxyMetrics, deadline_ms: int) -> None:
        self._tier, self._clock, self._metrics = tier, clock, metrics
        self._deadline_ms = deadline_ms
        self._is_tier_late = False

    def _left_ms(self) -> int:
        return self._deadline_ms - self._clock.monotonic_ms()

    @property
    def has_waited(self) -> bool:
        """Whether the client has waited for another partition already, as long as it wants to."""
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
        bound_ms = max(self._left_ms(), _LEAST_BARRIER_MS)
        index = partition.asked.index
        asking = group.create_task(watermarks_or_none(self._tier, partition.ref, index, bound_ms))
        view = await self._barrier(partition, bound_ms)
        if view is None:
            asking.cancel()
            return settle_out_of_range(partition, None, None)
        watermarks = await asking
        if frozen(view):
            refuse_storage(partition, watermarks)
        elif isinstance(view, RemoteStorageError):
            self._is_tier_late = True
            not_ready(partition, watermarks)
        else:
            return settle_out_of_range(
                partition, view, watermarks, self._epoch_end(partition, view)
            )
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
        view = await self._barrier(partition, max(self._left_ms(), _LEAST_BARRIER_MS))
        if frozen(view):
            refuse_storage(partition, partition.watermarks)
        elif isinstance(view, RemoteStorageError):
            self._is_tier_late = True
            not_ready(partition, partition.watermarks)
        else:
            settle_gap(partition, view, read_from)

    async def _barrier(
        self, partition: PartitionFetch, bound_ms: int
    ) -> TierPartition | RemoteStorageError | None:
        began_ms = self._clock.monotonic_ms()
        view = await guarded(self._tier.barrier(partition.ref, partition.asked.index, bound_ms))
        passed = not isinstance(view, RemoteStorageError)
        self._metrics.barrier_waited(self._clock.monotonic_ms() - began_ms, passed=passed)
        return view

    def _epoch_end(self, partition: PartitionFetch, view: TierPartition) -> EpochEnd | None:
        epoch = partition.asked.last_fetched_epoch
        if epoch < 0:
            return None
        return self._tier.epoch_end(view.topic_id, view.partition, epoch)
