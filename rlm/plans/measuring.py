"""What there is to copy of a partition's log, and what a trim would free, if its topic was enabled.

A closed segment counts as it would for a copy (rlm.plans.copy), except that it waits for nothing:
sooner or later it is copied. Pure.
"""

from kip405.ids import MAX_OFFSET
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.copy import CopyView, TopicState, plan_copy
from rlm.plans.coverage import Cover
from rlm.plans.enabling import PartitionMeasure, requests_of
from rlm.plans.retention import LocalRetention
from rlm.plans.trim import segments_beyond

_COPIED = TopicState(enabled=True, internal=False, cleanup_policy="delete", native_tiering=False)


def measured(
    log: PartitionLog,
    *,
    covered: Cover,
    remote_log_start_offset: int,
    retention: LocalRetention,
    part_bytes: int | None,
    now_ms: int,
) -> PartitionMeasure:
    """`covered`: what is remote already. `part_bytes`: see `requests_of`. `now_ms`: wall time."""
    view = CopyView(
        topic=_COPIED,
        segments=log.segments,
        local_log_start_offset=0,
        remote_log_start_offset=remote_log_start_offset,
        last_stable_offset=MAX_OFFSET,
        recovery_point=None,
        covered=covered,
        frozen=None,
        without_snapshot={segment.base_offset for segment in log.segments},
    )
    sizes = [segment.size_bytes for segment in plan_copy(view).segments]
    freed = (
        ()
        if retention.is_unlimited
        else segments_beyond(log.segments, retention, start=0, now_ms=now_ms)
    )
    return PartitionMeasure(
        segments=len(sizes),
        size_bytes=sum(sizes),
        local_bytes=log.size_bytes,
        freed_bytes=sum(segment.size_bytes for segment in freed),
        requests=sum(requests_of(size, part_bytes) for size in sizes),
    )
