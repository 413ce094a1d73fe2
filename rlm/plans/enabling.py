"""What it means to enable topics: bytes, objects, requests and hours of the first copy, memory of
the ledger, and what a trim frees. Pure.

rlm.plans.measuring says what there is to copy. What is produced meanwhile is not part of the plan.
Commands import this module, so it knows nothing of what a service needs.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kip405.process import LEDGER_BYTES_OF_SEGMENT

OBJECTS_OF_SEGMENT = 3
"""Log, indexes and manifest (rsm_plugins.layout.keys)."""

_HOUR_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMeasure:
    """What there is to copy of one log, and what a trim would free of it; of one replica."""

    segments: int
    size_bytes: int
    local_bytes: int
    freed_bytes: int
    requests: int

    @property
    def objects(self) -> int:
        return self.segments * OBJECTS_OF_SEGMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A measure with who leads the partition. `copy_bytes_per_second`: of all copies of the
    leader's service.
    """

    measure: PartitionMeasure
    leader: int
    replicas: int
    copy_bytes_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTotal:
    """Sums over partitions. `local_bytes` and `freed_bytes` are those of all replicas; `hours`: of
    the service that takes longest, None where there is nothing to copy.
    """

    partitions: int
    segments: int
    size_bytes: int
    local_bytes: int
    freed_bytes: int
    objects: int
    requests: int
    ledger_bytes: int
    hours: float | None


def requests_of(size_bytes: int, part_bytes: int | None) -> int:
    """Requests that write one segment. A store with parts of `part_bytes` begins a larger log,
    takes each part, and completes it; None = it takes each object at once.
    """
    if part_bytes is None or size_bytes <= part_bytes:
        return OBJECTS_OF_SEGMENT
    return OBJECTS_OF_SEGMENT + 1 + -(-size_bytes // part_bytes)


def total_of(partitions: Iterable[PlannedPartition]) -> PlannedTotal:
    """Services copy side by side, each within its own limit."""
    rows = tuple(partitions)
    seconds: dict[int, float] = defaultdict(float)
    for row in rows:
        seconds[row.leader] += row.measure.size_bytes / row.copy_bytes_per_second
    segments = sum(row.measure.segments for row in rows)
    return PlannedTotal(
        partitions=len(rows),
        segments=segments,
        size_bytes=sum(row.measure.size_bytes for row in rows),
        local_bytes=sum(row.measure.local_bytes * row.replicas for row in rows),
        freed_bytes=sum(row.measure.freed_bytes * row.replicas for row in rows),
        objects=sum(row.measure.objects for row in rows),
        requests=sum(row.measure.requests for row in rows),
        ledger_bytes=segments * LEDGER_BYTES_OF_SEGMENT,
        hours=max(seconds.values()) / _HOUR_S if segments else None,
    )
