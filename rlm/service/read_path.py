"""Wires the read path of one service, in every role: reader, caches, quotas, threads."""

import asyncio

from kip405.contracts import SegmentReader
from rlm.clock import Clock, processor_ms
from rlm.config import CommonConfig
from rlm.reading.disk_cache import DiskCache
from rlm.reading.limits import ReadLimits
from rlm.reading.reader import RemoteReader
from rlm.reading.throttle import ReadThrottle, ThrottleLimits
from rsm_plugins.threads import Threads


def build_reader(
    config: CommonConfig,
    store: SegmentReader,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    threads: Threads,
    disk: DiskCache | None,
) -> RemoteReader:
    """The read path over a store; contacts nothing."""
    return RemoteReader(
        store=store,
        cluster_id=config.cluster_id,
        tasks=tasks,
        threads=threads,
        clock=clock,
        limits=ReadLimits(
            memory_bytes=config.fetch_chunk_cache_bytes,
            range_bytes=config.fetch_range_max_bytes,
            window_bytes=config.fetch_read_ahead_max_bytes,
            ranges_at_once=config.fetch_ranges_max_in_flight,
            most_waiting=config.remote_log_reader_max_pending_tasks,
        ),
        disk=disk,
    )


def build_throttle(config: CommonConfig, clock: Clock) -> ReadThrottle:
    """The quotas on historical reads; the whole service shares one throttle."""
    limits = ThrottleLimits(
        service_bytes_per_second=config.remote_log_manager_fetch_max_bytes_per_second,
        client_bytes_per_second=config.remote_fetch_client_max_bytes_per_second,
        cores=config.remote_fetch_cpu_max_cores,
    )
    return ReadThrottle(limits, clock, processor_ms)


def build_disk_cache(
    config: CommonConfig, tasks: asyncio.TaskGroup, threads: Threads
) -> DiskCache | None:
    """The disk cache, if configured; it opens its folder in the background."""
    if config.fetch_chunk_cache_path is None:
        return None
    disk = DiskCache(
        config.fetch_chunk_cache_path, config.fetch_chunk_cache_disk_bytes, threads=threads
    )
    tasks.create_task(disk.run())
    return disk
