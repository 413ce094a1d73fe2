"""Wires the read path of one service, in every role: reader, caches, quotas, threads, gauges."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Protocol

from kip405.contracts import SegmentReader
from rlm.clock import Clock, processor_ms
from rlm.config import CommonConfig
from rlm.config.common import ON
from rlm.reading.disk_cache import DiskCache
from rlm.reading.ended_segments import EndedSegments
from rlm.reading.reader import RemoteReader
from rlm.reading.remote_index import RemoteIndex, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from rlm.reading.throttle import ReadThrottle, ThrottleCounts, ThrottleLimits
from rlm.reading.values import ReadLimits
from rlm.service.threads import ServiceThreads
from rlm.spans import Tracer
from rlm.stores.hedging import HedgeCounts
from rsm_plugins.threads import Threads


def build_reader(
    config: CommonConfig,
    store: SegmentReader,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    threads: ServiceThreads,
    disk: DiskCache | None,
    tracer: Tracer | None = None,
) -> RemoteReader:
    """The read path over a store; contacts nothing."""
    return RemoteReader(
        store=store,
        cluster_id=config.cluster_id,
        tasks=tasks,
        threads=threads.reads,
        clock=clock,
        limits=ReadLimits(
            memory_bytes=config.fetch_chunk_cache_bytes,
            range_bytes=config.fetch_range_max_bytes,
            window_bytes=config.fetch_read_ahead_max_bytes,
            ranges_at_once=config.fetch_ranges_max_in_flight,
            most_waiting=config.remote_log_reader_max_pending_tasks,
        ),
        disk=disk,
        remote_index=build_remote_index(config, clock, threads.remote_index),
        tracer=tracer,
    )


def build_remote_index(config: CommonConfig, clock: Clock, threads: Threads) -> RemoteIndex | None:
    """The remote index files, if they are switched on; opened by the first read or copy."""
    if config.remote_index_files != ON:
        return None
    limits = RemoteIndexLimits(
        rotation=Rotation(
            segment_bytes=config.remote_index_segment_bytes,
            segment_ms=config.remote_index_segment_ms,
        ),
        most_bytes=config.remote_index_max_bytes,
    )
    return RemoteIndex(RemoteIndexFiles(config.state_dir, limits, clock.now_ms), threads)


def build_throttle(config: CommonConfig, clock: Clock) -> ReadThrottle:
    """The quotas on historical reads; the whole service shares one throttle."""
    return ReadThrottle(throttle_limits(config), clock, processor_ms)


def throttle_limits(config: CommonConfig) -> ThrottleLimits:
    """The quotas that the settings name."""
    return ThrottleLimits(
        service_bytes_per_second=config.remote_log_manager_fetch_max_bytes_per_second,
        client_bytes_per_second=config.remote_fetch_client_max_bytes_per_second,
        cores=config.remote_fetch_cpu_max_cores,
        principal_bytes_per_second=config.remote_fetch_principal_max_bytes_per_second,
    )


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


class _Log(Protocol):
    async def wait_ready(self) -> None: ...


class _Ledger(Protocol):
    def finished_ids(self) -> Iterator[frozenset[bytes]]: ...


def build_ended_segments(
    log: _Log, ledger: _Ledger, reader: RemoteReader, disk: DiskCache | None, clock: Clock
) -> EndedSegments:
    """What drops cached chunks of deleted segments; a worker caches nothing of its own."""
    return EndedSegments(
        [cache for cache in (reader.chunks, disk, reader.remote_index) if cache is not None],
        wait_ready=log.wait_ready,
        finished_ids=ledger.finished_ids,
        clock=clock,
    )


def read_gauges(
    reader: RemoteReader, disk: DiskCache | None
) -> dict[str, Mapping[tuple[str, ...], float]]:
    """Values by metric name and labels."""
    counts, chunks = reader.counts, reader.chunks
    shown: dict[str, Mapping[tuple[str, ...], float]] = {
        "rlm_read_chunks_total": {
            ("memory",): counts.memory_hits,
            ("coming",): counts.joined,
            ("disk",): counts.disk_hits,
            ("store",): counts.misses,
        },
        "rlm_read_store_requests_total": {
            ("range",): counts.ranges,
            ("indexes",): counts.indexes,
        },
        "rlm_read_store_bytes_total": {(): counts.range_bytes},
        "rlm_read_refetches_total": {(): counts.refetches},
        "rlm_read_ahead_bytes_total": {(): counts.ahead_bytes},
        "rlm_read_ahead_wasted_bytes_total": {(): chunks.wasted_bytes},
        "rlm_read_evicted_bytes_total": {(): chunks.evicted_bytes},
        "rlm_read_memory_bytes": {
            ("chunks",): chunks.kept_bytes,
            ("indexes",): reader.indexes.kept_bytes,
            ("in_flight",): reader.memory.reserved_bytes,
        },
        "rlm_read_readers": {(): reader.reader_count},
        "rlm_read_waiting": {(): reader.range_scheduler.waiting_count},
        "rlm_read_running": {(): reader.range_scheduler.running_count},
    }
    if reader.remote_index is not None:
        shown |= _remote_index_gauges(reader.remote_index)
    return shown if disk is None else shown | _disk_gauges(disk)


def hedge_gauges(counts: HedgeCounts) -> dict[str, Mapping[tuple[str, ...], float]]:
    """Second requests for reads that were late."""
    second = counts.second_was_first
    return {"rlm_read_hedges_total": {("first",): counts.asked_twice - second, ("second",): second}}


def throttle_gauges(counts: ThrottleCounts) -> dict[str, Mapping[tuple[str, ...], float]]:
    """What was given out, and held back by quotas."""
    return {
        "rlm_read_given_bytes_total": {
            labels: given_bytes for labels, given_bytes in counts.given_bytes.items()
        },
        "rlm_read_throttled_seconds_total": {
            (kind,): held_ms / 1000 for kind, held_ms in counts.throttled_ms.items()
        },
    }


def _remote_index_gauges(files: RemoteIndex) -> dict[str, Mapping[tuple[str, ...], float]]:
    counts = files.counts
    return {
        "rlm_remote_index_reads_total": {("found",): counts.found, ("absent",): counts.absent},
        "rlm_remote_index_segments": {(): len(files.files.partition_of)},
        "rlm_remote_index_bytes": {(): counts.file_bytes},
        "rlm_remote_index_damaged_total": {(): counts.damaged},
        "rlm_remote_index_not_kept_total": {
            ("full",): counts.refused,
            ("failed",): counts.failed,
        },
    }


def _disk_gauges(disk: DiskCache) -> dict[str, Mapping[tuple[str, ...], float]]:
    return {
        "rlm_read_disk_cache_bytes": {(): disk.kept_bytes},
        "rlm_read_disk_cache_on": {(): int(disk.is_on)},
        "rlm_read_disk_cache_damaged_total": {(): disk.counts.damaged},
        "rlm_read_disk_cache_dropped_writes_total": {(): disk.counts.dropped_writes},
    }
