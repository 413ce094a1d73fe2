"""Plans which closed segments a leader copies next, in which order, or why none.

A segment is eligible when it is closed and stable (G2): the next segment's base lies at or below
the last stable offset, and at or below the recovery point where the setting requires durability
(H35). A segment that remote data covers completely is skipped. One that is covered in part, since
another leader's segments have other borders, is uploaded whole, as Kafka does. A closed segment of
0 bytes is skipped. A topic's thresholds may let segments wait (KIP-1241, rlm.plans.offload).
Source: RLMCopyTask.candidateLogSegments.
"""

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rlm.log_dir.scanner import Closed, LocalSegment
from rlm.plans.coverage import Cover
from rlm.plans.freeze import Frozen
from rlm.plans.offload import CopyDelay
from rlm.plans.problems import human_bytes


class NeedsFlush(enum.Enum):
    """Which segments are copied only once the broker has flushed them: copy.recovery.point."""

    ONE_REPLICA = "rf1"
    ALWAYS = "always"
    NEVER = "never"


class WhyNot(enum.Enum):
    """Reasons why nothing is copied, as `status` shows them."""

    NOT_ENABLED = "topic is not enabled"
    INTERNAL = "internal topic"
    CLEANUP_POLICY = "cleanup.policy is not exactly delete"
    NATIVE_TIERING = "the broker's own tiered storage is on"
    FROZEN = "partition is frozen"
    TO_BE_COPIED = "closed segments are to be copied"
    CAUGHT_UP = "all closed segments are remote"
    NO_CLOSED_SEGMENT = "no closed segment"
    SNAPSHOT_MISSING = "waiting for the producer snapshot"
    LAST_STABLE_OFFSET = "waiting for the last stable offset"
    RECOVERY_POINT = "waiting for the recovery point"
    COPY_LAG = "waiting for the copy lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """What copy and trim must know of a topic before every step (H35)."""

    enabled: bool
    internal: bool
    cleanup_policy: str
    native_tiering: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyView:
    """One snapshot of a partition. Offsets; `recovery_point` None = durability is not required.

    `without_snapshot`: bases of segments that no longer wait for their producer snapshot. `delay`:
    which segments wait at `now_ms` (wall time), None = none.
    """

    topic: TopicState
    segments: Sequence[LocalSegment]
    local_log_start_offset: int
    remote_log_start_offset: int
    last_stable_offset: int
    recovery_point: int | None
    covered: Cover
    frozen: Frozen | None
    without_snapshot: Collection[int] = ()
    delay: CopyDelay | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """Closed segments with records that are not remote, whether they may be copied now or not.

    `oldest_ms`: the largest timestamp of the first of them (see LocalSegment), None without any.
    """

    segments: int = 0
    size_bytes: int = 0
    oldest_ms: int | None = None

    @property
    def words(self) -> str:
        """For people."""
        is_one = self.segments == 1
        which = "1 closed segment is" if is_one else f"{self.segments} closed segments are"
        return f"{which} not remote, {human_bytes(self.size_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """Segments to copy in this order, and the reason why the plan ends there."""

    segments: tuple[LocalSegment, ...]
    reason: WhyNot
    detail: str = ""
    lag: CopyLag = CopyLag()

    @property
    def summary(self) -> WhyNot:
        """Why the plan ends there; "all is remote" is said only when it is true."""
        ends_well = self.reason in (WhyNot.CAUGHT_UP, WhyNot.NO_CLOSED_SEGMENT, WhyNot.COPY_LAG)
        return WhyNot.TO_BE_COPIED if self.segments and ends_well else self.reason


def plan_copy(view: CopyView) -> CopyPlan:
    """The next segments to copy, oldest first."""
    return replace(_decided(view), lag=_lag(view))


def with_missing(plan: CopyPlan, view: CopyView, missing: Sequence[LocalSegment]) -> CopyPlan:
    """The plan with segments first that the broker's log has no more and that are held open (H14).
    They were eligible when they were opened, and wait for nothing.
    """
    if refuse_topic(view.topic) is not None or view.frozen is not None:
        return plan
    start = view.remote_log_start_offset
    uncopied = tuple(
        one
        for one in missing
        if one.next_offset is not None
        and one.next_offset > start
        and not view.covered.holds(max(one.base_offset, start), one.next_offset)
    )
    if not uncopied:
        return plan
    lag = CopyLag(
        segments=plan.lag.segments + len(uncopied),
        size_bytes=plan.lag.size_bytes + sum(one.size_bytes for one in uncopied),
        oldest_ms=uncopied[0].max_timestamp_ms,
    )
    return replace(plan, segments=(*uncopied, *plan.segments), lag=lag)


def needed_recovery_point(
    needs: NeedsFlush, *, replicas: int, recovery_point: int | None
) -> int | None:
    """The `recovery_point` of a CopyView; one that is not known proves nothing (H35)."""
    is_needed = needs is NeedsFlush.ALWAYS or (needs is NeedsFlush.ONE_REPLICA and replicas <= 1)
    return (recovery_point or 0) if is_needed else None


def _lag(view: CopyView) -> CopyLag:
    start = max(view.local_log_start_offset, view.remote_log_start_offset)
    behind = [
        segment
        for segment in view.segments
        if segment.size_bytes > 0
        and segment.next_offset is not None
        and segment.next_offset > start
        and not view.covered.holds(max(segment.base_offset, start), segment.next_offset)
    ]
    return CopyLag(
        segments=len(behind),
        size_bytes=sum(segment.size_bytes for segment in behind),
        oldest_ms=behind[0].max_timestamp_ms if behind else None,
    )


def _decided(view: CopyView) -> CopyPlan:
    refused = refuse_topic(view.topic)
    if refused is not None:
        return CopyPlan(segments=(), reason=refused[0], detail=refused[1])
    if view.frozen is not None:
        return CopyPlan(segments=(), reason=WhyNot.FROZEN, detail=view.frozen.reason)
    start = max(view.local_log_start_offset, view.remote_log_start_offset)
    wanted: list[LocalSegment] = []
    newer_bytes = sum(segment.size_bytes for segment in view.segments)
    for segment in view.segments:
        newer_bytes -= segment.size_bytes
        next_offset = segment.next_offset
        if next_offset is not None and next_offset <= start:
            continue
        stopped = _not_eligible(segment, view)
        if stopped is not None:
            return _plan(wanted, stopped, segment, view)
        if segment.size_bytes == 0:
            continue  # there is nothing to copy, whatever the reason (empty_segments)
        if next_offset is not None and not view.covered.holds(
            max(segment.base_offset, start), next_offset
        ):
            if view.delay is not None and view.delay.holds(segment, newer_bytes, view.now_ms):
                return _plan(wanted, WhyNot.COPY_LAG, segment, view)
            wanted.append(segment)
    return CopyPlan(segments=tuple(wanted), reason=WhyNot.NO_CLOSED_SEGMENT)


def refuse_topic(topic: TopicState) -> tuple[WhyNot, str] | None:
    """Why nothing of this topic may be copied or trimmed, None where it may (H35)."""
    if not topic.enabled:
        return WhyNot.NOT_ENABLED, ""
    if topic.internal:
        return WhyNot.INTERNAL, ""
    if topic.cleanup_policy != "delete":
        return WhyNot.CLEANUP_POLICY, f"cleanup.policy={topic.cleanup_policy}"
    if topic.native_tiering:
        return WhyNot.NATIVE_TIERING, "remote.storage.enable=true"
    return None


def _not_eligible(segment: LocalSegment, view: CopyView) -> WhyNot | None:
    if segment.closed is Closed.ACTIVE or segment.next_offset is None:
        return WhyNot.CAUGHT_UP
    if segment.next_offset > view.last_stable_offset:
        return WhyNot.LAST_STABLE_OFFSET
    if view.recovery_point is not None and segment.next_offset > view.recovery_point:
        return WhyNot.RECOVERY_POINT
    is_waited_for = segment.size_bytes > 0 and segment.base_offset not in view.without_snapshot
    if segment.closed is Closed.SNAPSHOT_MISSING and is_waited_for:
        return WhyNot.SNAPSHOT_MISSING
    return None


def _plan(
    wanted: Sequence[LocalSegment], stopped: WhyNot, segment: LocalSegment, view: CopyView
) -> CopyPlan:
    details = {
        WhyNot.LAST_STABLE_OFFSET: f"segment ends at {segment.next_offset}, last stable offset is "
        f"{view.last_stable_offset}",
        WhyNot.RECOVERY_POINT: f"segment ends at {segment.next_offset}, flushed up to "
        f"{view.recovery_point}",
        WhyNot.SNAPSHOT_MISSING: f"{segment.next_offset}.snapshot is not there yet",
        WhyNot.COPY_LAG: view.delay.words if view.delay else "",
    }
    return CopyPlan(segments=tuple(wanted), reason=stopped, detail=details.get(stopped, ""))
