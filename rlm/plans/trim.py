"""Plans how far a leader's local log may be trimmed, or why not: this decision can lose records.

The bound counts only what is contiguously FINISHED inside the leader's merged lineage (H4), ends at
a border of the leader's own segments (H27), never in the active one, and never passes the last
stable offset, the high watermark or a share group's start (H19). Deleting what ended below the
remote log start (H2) is not trimming: it also happens with trim off, needs no copy, and has its own
kind of plan. Like Kafka's own retention it checks neither share groups (H19) nor replicas nor their
services: nobody may read these records any more. Pure: the task supplies the evidence and acts.
"""

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kip405.lineage import Lineage
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.copy import TopicState, refuse_topic
from rlm.plans.guards import DeletionGuards, Forbidden, forbidden
from rlm.plans.retention import LocalRetention


class NoTrim(enum.Enum):
    """Reasons why nothing is trimmed, as `status` shows them."""

    SETTINGS_NOT_READY = Forbidden.NOT_READY.value
    LEDGER_PROBLEM = Forbidden.LEDGER_PROBLEM.value
    FREEZE_RECORD = Forbidden.FREEZE_RECORD.value
    FROZEN = Forbidden.FROZEN.value
    RESTARTED = "the log holds newer records below the remote log start"
    TOPIC_REFUSED = "topic must not be trimmed"
    MODE_COPY = "topic is in mode copy"
    TRIM_OFF = "trim is off"
    RETENTION_BOUNDED = "a broker's own retention is bounded"
    RETENTION_UNKNOWN = "a broker did not say whether its own retention is off"
    NO_LIVE_SERVICE = "a broker with a replica has no live service"
    PAST_PROXIES = (
        "clients may learn the brokers' own addresses from a broker without a live service"
    )
    ISR_HOLD = "waiting for replicas to catch up"
    UNLIMITED = "local retention has no limit"
    NOTHING_COPIED = "nothing more is contiguously remote"
    WITHIN_RETENTION = "all is within local retention"
    DELETION_LAG = "waiting for the deletion lag"
    GAP_NOT_SETTLED = "no copy of what the broker deleted, and it is not on record as a hole (yet)"
    LINEAGE_UNKNOWN = "the ledger lacks copies, and with them leader epochs that the log had"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimGuards:
    """Everything that can forbid a trim, apart from offsets.

    `deletion`: what forbids every deletion. `retention_bounded`: text if there is one.
    `retention_unknown`: which broker did not answer for its retention, None if all did.
    `namers`: brokers that tell clients the addresses of brokers instead of those of proxies, unless
    a service does it for them (proxy.attach: rewrite). `replicas_short_ms`: how long ISR has been
    smaller than the replicas, None if it is not. `hold_max_ms`: trim.hold.max.ms.
    """

    deletion: DeletionGuards
    topic: TopicState
    mode_is_tier: bool
    trim_on: bool
    retention_bounded: str | None
    retention_unknown: str | None
    replicas: Sequence[int]
    live_nodes: Collection[int]
    namers: Collection[int]
    replicas_short_ms: int | None
    hold_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimOffsets:
    """All offsets that limit a trim.

    `contiguous_end`: end of the unbroken undisputed cover from max(remote start, local start) on;
    `released_end`: the same of the copies that were finished offload.deletion.lag.ms ago.
    `remote_log_start_epoch`: leader epoch under which the remote start was decided, -1 = unknown.
    `share_group_start`: None = no share group reads the topic. `keep_local_bytes`: what an operator
    asked to keep instead of local retention and the deletion lag, None = nobody asked.
    """

    leader_epoch: int
    lineage: Lineage
    segments: Sequence[LocalSegment]
    local_size_bytes: int
    local_log_start_offset: int
    remote_log_start_offset: int
    remote_log_start_epoch: int
    high_watermark: int
    last_stable_offset: int
    contiguous_end: int
    released_end: int
    share_group_start: int | None
    retention: LocalRetention
    keep_local_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimPlan:
    """DeleteRecords up to `bound`, once the copies from the local log start to there were seen."""

    bound: int
    local_log_start_offset: int
    leader_epoch: int
    lineage: Lineage
    planned_at_ms: int
    keep_local_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPlan:
    """DeleteRecords of what lies below the remote log start: retention or a user ended it (H2)."""

    bound: int
    leader_epoch: int
    lineage: Lineage
    planned_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Nothing to do now, and why."""

    reason: NoTrim
    detail: str = ""


def plan_trim(
    guards: TrimGuards, offsets: TrimOffsets, *, now_ms: int, planned_at_ms: int
) -> TrimPlan | EndedPlan | Held:
    """What to delete locally.

    `now_ms` is wall time, for retention; `planned_at_ms` is monotonic, for the plan's deadline.
    """
    held = _forbidden(guards) or _restarted(offsets)
    if held is not None:
        return held
    ended = _ended(offsets, planned_at_ms)
    if ended is not None:
        return ended
    held = _forbidden_trim(guards)
    if held is not None:
        return held
    return _bounded(offsets, now_ms, planned_at_ms)


def why_not_confirmed(plan: TrimPlan | EndedPlan, again: TrimPlan | EndedPlan | Held) -> str | None:
    """Why a second plan, by current guards and offsets, does not confirm the first, or None."""
    if isinstance(again, Held):
        return f"{again.reason.value}: {again.detail}" if again.detail else again.reason.value
    if type(again) is not type(plan):
        return "trimming and deleting what has ended were taken for one another"
    if (again.leader_epoch, again.lineage) != (plan.leader_epoch, plan.lineage):
        return "leader epochs changed since the plan"
    if again.bound < plan.bound:
        return f"at most {again.bound} may be deleted to by now, {plan.bound} was planned"
    return None


def is_hold_overdue(guards: TrimGuards) -> bool:
    """Whether replicas have lagged longer than the hold: trimming goes on, with a warning (H27)."""
    return guards.replicas_short_ms is not None and guards.replicas_short_ms >= guards.hold_max_ms


def _forbidden(guards: TrimGuards) -> Held | None:
    """What forbids every DeleteRecords."""
    deletion = forbidden(guards.deletion)
    if deletion is not None:
        return Held(reason=NoTrim(deletion[0].value), detail=deletion[1])
    refused = refuse_topic(guards.topic)
    if refused is not None:
        return Held(reason=NoTrim.TOPIC_REFUSED, detail=refused[1] or refused[0].value)
    if not guards.mode_is_tier:
        return Held(reason=NoTrim.MODE_COPY)
    return None


def _forbidden_trim(guards: TrimGuards) -> Held | None:
    """What forbids a trim but not the deletion of what has ended."""
    if not guards.trim_on:
        return Held(reason=NoTrim.TRIM_OFF)
    if guards.retention_bounded is not None:
        return Held(reason=NoTrim.RETENTION_BOUNDED, detail=guards.retention_bounded)
    if guards.retention_unknown is not None:
        return Held(reason=NoTrim.RETENTION_UNKNOWN, detail=guards.retention_unknown)
    dead = sorted(set(guards.replicas) - set(guards.live_nodes))
    if dead or not guards.replicas:
        return Held(reason=NoTrim.NO_LIVE_SERVICE, detail=_beside(dead))
    unproxied = sorted(set(guards.namers) - set(guards.live_nodes))
    if unproxied:
        return Held(reason=NoTrim.PAST_PROXIES, detail=_beside(unproxied))
    if guards.replicas_short_ms is not None and not is_hold_overdue(guards):
        return Held(reason=NoTrim.ISR_HOLD, detail=_for_seconds(guards.replicas_short_ms))
    return None


def _beside(nodes: Sequence[int]) -> str:
    """Goes on from `NoTrim.NO_LIVE_SERVICE`; empty for nodes that are not known."""
    if not nodes:
        return ""
    return f"beside broker{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"


def _for_seconds(duration_ms: int) -> str:
    """Empty for a wait that has only begun."""
    return f"for {duration_ms // 1000} s" if duration_ms >= 1000 else ""


def _restarted(offsets: TrimOffsets) -> Held | None:
    """Refuses to delete records of a later epoch than the decision's below the remote log start.
    Ended records are older than the decision; later ones are in a log that started again (emptied
    disk, unclean election), and no retention ended them (H4). Where the epoch of the decision is
    not known, every record counts as later.
    """
    start = offsets.remote_log_start_offset
    if offsets.local_log_start_offset >= start:
        return None
    later = offsets.lineage.higher(offsets.remote_log_start_epoch)
    if later is None or later.start_offset >= start:
        return None
    detail = f"epoch {later.epoch} begins at {later.start_offset}, the remote log start is {start}"
    return Held(reason=NoTrim.RESTARTED, detail=detail)


def _ended(offsets: TrimOffsets, planned_at_ms: int) -> EndedPlan | None:
    """All but the last record of the log (H8), which is deleted when another has followed.
    Meanwhile no reader gets it, as it lies below the remote log start.
    """
    bound = min(offsets.remote_log_start_offset, offsets.high_watermark - 1)
    if bound <= offsets.local_log_start_offset:
        return None
    return EndedPlan(
        bound=bound,
        leader_epoch=offsets.leader_epoch,
        lineage=offsets.lineage,
        planned_at_ms=planned_at_ms,
    )


def _bounded(offsets: TrimOffsets, now_ms: int, planned_at_ms: int) -> TrimPlan | Held:
    keep = offsets.keep_local_bytes
    is_asked = keep is not None
    retention = LocalRetention(max_age_ms=None, max_bytes=keep) if is_asked else offsets.retention
    if retention.is_unlimited:
        return Held(reason=NoTrim.UNLIMITED)
    start = max(offsets.remote_log_start_offset, offsets.local_log_start_offset)
    limit = _limit(offsets, start)
    copied = _whole_segments(offsets.segments, limit)
    if copied <= start:
        return Held(reason=NoTrim.NOTHING_COPIED, detail=f"up to {limit}")
    bound = min(
        copied,
        retention_target(
            offsets.segments,
            retention,
            local_size_bytes=offsets.local_size_bytes,
            local_log_start_offset=offsets.local_log_start_offset,
            now_ms=now_ms,
        ),
    )
    if bound <= start:
        return Held(reason=NoTrim.WITHIN_RETENTION)
    if not is_asked:
        bound = min(bound, _whole_segments(offsets.segments, offsets.released_end))
    if bound <= start:
        return Held(
            reason=NoTrim.DELETION_LAG, detail=f"copies up to {offsets.released_end} are over it"
        )
    return TrimPlan(
        bound=bound,
        local_log_start_offset=offsets.local_log_start_offset,
        leader_epoch=offsets.leader_epoch,
        lineage=offsets.lineage,
        planned_at_ms=planned_at_ms,
        keep_local_bytes=keep,
    )


def _limit(offsets: TrimOffsets, start: int) -> int:
    """At least one record stays, and with it an epoch in the broker's file: nothing would show
    which lineage a log without epochs belongs to (H8).
    """
    limits = [
        offsets.contiguous_end,
        offsets.last_stable_offset,
        offsets.high_watermark - 1,
    ]
    if offsets.share_group_start is not None:
        limits.append(offsets.share_group_start)
    return min(limits)


def _whole_segments(segments: Sequence[LocalSegment], limit: int) -> int:
    """The last border of closed segments at or below the limit, -1 for none."""
    ends = (segment.next_offset for segment in segments if segment.is_closed)
    return max((end for end in ends if end is not None and end <= limit), default=-1)


def retention_target(
    segments: Sequence[LocalSegment],
    retention: LocalRetention,
    *,
    local_size_bytes: int,
    local_log_start_offset: int,
    now_ms: int,
) -> int:
    """End of the oldest segments that breach local retention by age or by size; -1 for none.

    By size, a segment is dropped only if the rest still reaches the limit; by age, if its newest
    record is too old. Both stop at the first segment that stays. Source:
    UnifiedLog.deleteRetentionMs/SizeBreachedSegments.
    """
    target = -1
    age, most = retention.max_age_ms, retention.max_bytes
    excess = None if most is None else local_size_bytes - most
    for segment in segments:
        if not segment.is_closed or segment.next_offset is None:
            break
        is_gone = segment.next_offset <= local_log_start_offset
        too_old = age is not None and now_ms - segment.max_timestamp_ms > age
        too_much = excess is not None and excess >= segment.size_bytes
        if not (is_gone or too_old or too_much):
            break
        excess = None if excess is None else excess - segment.size_bytes
        target = segment.next_offset
    return target


def segments_beyond(
    segments: Sequence[LocalSegment], retention: LocalRetention, *, start: int, now_ms: int
) -> tuple[LocalSegment, ...]:
    """The closed segments from `start` on that local retention would drop if all were copied."""
    target = retention_target(
        segments,
        retention,
        local_size_bytes=sum(segment.size_bytes for segment in segments),
        local_log_start_offset=start,
        now_ms=now_ms,
    )
    return tuple(
        segment
        for segment in segments
        if segment.next_offset is not None and start < segment.next_offset <= target
    )
