"""A copy that somebody asked for, as the copy task counts it."""

from dataclasses import dataclass

from rlm.log_dir.scanner import LocalSegment
from rlm.plans.copy import CopyPlan, WhyNot


@dataclass(slots=True, kw_only=True)
class CopyRequest:
    """Somebody asked for a copy now: thresholds do not count. The other fields say how far it is.

    `up_to_offset`: only segments that begin below it. `reason`: why the plan ends there.
    """

    up_to_offset: int | None = None
    segments: int = 0
    segments_total: int = 0
    size_bytes: int = 0
    size_total_bytes: int = 0
    reason: WhyNot | None = None
    detail: str = ""

    def planned(self, plan: CopyPlan) -> tuple[LocalSegment, ...]:
        """The segments to copy; what an earlier run copied stays counted."""
        up_to = self.up_to_offset
        wanted = tuple(one for one in plan.segments if up_to is None or one.base_offset < up_to)
        self.segments_total = self.segments + len(wanted)
        self.size_total_bytes = self.size_bytes + sum(one.size_bytes for one in wanted)
        self.reason, self.detail = plan.reason, plan.detail
        return wanted

    def copied(self, segment: LocalSegment) -> None:
        """One more segment was copied."""
        self.segments += 1
        self.size_bytes += segment.size_bytes
