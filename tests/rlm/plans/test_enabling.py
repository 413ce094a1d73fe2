"""What enabling topics means in bytes, requests, hours and memory."""

import pytest

from kip405.lineage import Lineage
from kip405.process import LEDGER_BYTES_OF_SEGMENT
from rlm.log_dir.scanner import Closed, LocalSegment, PartitionLog
from rlm.plans.coverage import Cover, OffsetRange
from rlm.plans.enabling import (
    PartitionMeasure,
    PlannedPartition,
    requests_of,
    total_of,
)
from rlm.plans.measuring import measured
from rlm.plans.retention import LocalRetention

UNLIMITED = LocalRetention(max_age_ms=None, max_bytes=None)
NOTHING = Cover.of([])


def segment(base: int, size_bytes: int, **changes: object) -> LocalSegment:
    values: dict[str, object] = {
        "base_offset": base,
        "next_offset": base + 100,
        "closed": Closed.CLOSED,
        "size_bytes": size_bytes,
        "inode": base,
        "path": f"{base}.log",
        "max_timestamp_ms": base * 10,
    }
    return LocalSegment(**(values | changes))  # type: ignore[arg-type]  # as the test says


ACTIVE = segment(300, 7, next_offset=None, closed=Closed.ACTIVE)
SEGMENTS = (
    segment(0, 1_000),
    segment(100, 2_000, closed=Closed.SNAPSHOT_MISSING),
    segment(200, 3_000),
    ACTIVE,
)


def log_of(*segments: LocalSegment) -> PartitionLog:
    return PartitionLog(
        topic="t",
        partition=0,
        topic_id=None,
        directory="t-0",
        segments=segments,
        lineage=Lineage(()),
        recovery_point=None,
    )


def measure(
    *segments: LocalSegment,
    covered: Cover = NOTHING,
    start: int = 0,
    retention: LocalRetention = UNLIMITED,
    part_bytes: int | None = None,
    now_ms: int = 3_000,
) -> PartitionMeasure:
    return measured(
        log_of(*(segments or SEGMENTS)),
        covered=covered,
        remote_log_start_offset=start,
        retention=retention,
        part_bytes=part_bytes,
        now_ms=now_ms,
    )


def test_all_closed_segments_count_whatever_they_wait_for_now() -> None:
    found = measure()
    assert (found.segments, found.size_bytes, found.local_bytes) == (3, 6_000, 6_007)
    assert (found.objects, found.requests, found.freed_bytes) == (9, 9, 0)


def test_what_is_remote_or_ended_is_not_copied() -> None:
    remote = Cover.of([OffsetRange(start=100, next_offset=200)])
    assert measure(covered=remote).size_bytes == 4_000
    assert measure(start=100).size_bytes == 5_000
    assert measure(ACTIVE).segments == 0


@pytest.mark.parametrize(
    ("age_ms", "most_bytes", "freed"),
    [
        (None, None, 0),
        (500, None, 6_000),
        (1_500, None, 3_000),
        (2_500, None, 1_000),
        (None, 3_007, 3_000),
        (None, 3_006, 3_000),
        (None, 7, 6_000),
        (None, 1 << 40, 0),
    ],
)
def test_what_local_retention_frees(age_ms: int | None, most_bytes: int | None, freed: int) -> None:
    retention = LocalRetention(max_age_ms=age_ms, max_bytes=most_bytes)
    assert measure(retention=retention).freed_bytes == freed


@pytest.mark.parametrize(
    ("size", "part", "requests"),
    [(10, None, 3), (10, 10, 3), (11, 10, 6), (20, 10, 6), (21, 10, 7)],
)
def test_a_log_larger_than_a_part_takes_more_requests(
    size: int, part: int | None, requests: int
) -> None:
    assert requests_of(size, part) == requests
    assert measure(segment(0, size), ACTIVE, part_bytes=part).requests == requests


def planned(leader: int, size_bytes: int, *, limit: int = 1_000) -> PlannedPartition:
    one = PartitionMeasure(
        segments=2, size_bytes=size_bytes, local_bytes=10, freed_bytes=4, requests=7
    )
    return PlannedPartition(measure=one, leader=leader, replicas=3, copy_bytes_per_second=limit)


def test_services_copy_side_by_side_each_within_its_limit() -> None:
    hour = 3_600 * 1_000
    rows = [planned(1, hour), planned(1, hour), planned(2, hour), planned(3, hour, limit=400)]
    assert total_of(rows[:3]).hours == 2.0
    assert total_of(rows).hours == 2.5
    assert total_of([]).hours is None


def test_local_bytes_are_those_of_all_replicas_and_remote_ones_are_there_once() -> None:
    total = total_of([planned(1, 500), planned(2, 500)])
    assert (total.partitions, total.segments, total.size_bytes) == (2, 4, 1_000)
    assert (total.local_bytes, total.freed_bytes) == (60, 24)
    assert (total.objects, total.requests) == (12, 14)
    assert total.ledger_bytes == 4 * LEDGER_BYTES_OF_SEGMENT
