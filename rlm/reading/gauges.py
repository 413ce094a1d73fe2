"""The gauges of the read path, by the names of rlm/service/metrics.py."""

from collections.abc import Mapping

from rlm.reading.disk_cache import DiskCache
from rlm.reading.reader import RemoteReader
from rlm.reading.throttle import ThrottleCounts


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
    return shown if disk is None else shown | _disk_gauges(disk)


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


def _disk_gauges(disk: DiskCache) -> dict[str, Mapping[tuple[str, ...], float]]:
    return {
        "rlm_read_disk_cache_bytes": {(): disk.kept_bytes},
        "rlm_read_disk_cache_on": {(): int(disk.is_on)},
        "rlm_read_disk_cache_damaged_total": {(): disk.counts.damaged},
        "rlm_read_disk_cache_dropped_writes_total": {(): disk.counts.dropped_writes},
    }
