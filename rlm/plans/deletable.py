"""Which records a shorter total retention would make deletable now. Pure.

The same plan as that of the expiry task, made twice: by the retention in force, and by the one that
somebody wants. It is for people: nothing is deleted by it.
"""

from dataclasses import dataclass, replace

from rlm.plans.expiry import ExpiryView, plan_expiry
from rlmm.settings_records import TotalRetention


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableRecords:
    """Offsets [start_offset, next_offset) of a partition, and the segments that hold them.

    `oldest_ms`, `newest_ms`: the newest timestamps of the first and of the last of these segments
    by time; -1 where no record has a timestamp.
    """

    partition: int
    start_offset: int
    next_offset: int
    size_bytes: int
    oldest_ms: int
    newest_ms: int


def deletable_records(
    view: ExpiryView, *, before: TotalRetention, after: TotalRetention
) -> DeletableRecords | None:
    """What `after` ends beyond what `before` ends; None = nothing. The view's own retention does
    not count.
    """
    start = plan_expiry(replace(view, retention=before)).new_start
    plan = plan_expiry(replace(view, retention=after))
    if plan.new_start <= start:
        return None
    segments = [one for one in plan.segments if one.next_offset > start]
    times = [one.max_timestamp_ms for one in segments if one.max_timestamp_ms >= 0]
    return DeletableRecords(
        partition=view.ledger.key.partition,
        start_offset=start,
        next_offset=plan.new_start,
        size_bytes=sum(one.segment_size_bytes for one in segments),
        oldest_ms=min(times, default=-1),
        newest_ms=max(times, default=-1),
    )
