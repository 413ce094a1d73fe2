"""What is wrong with the processes of a service with proxy workers (H24, H38). Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlm.plans.problems import Finding, ProblemKind, human_duration

MISSING_MS = 15_000
"""A worker says something every second; one that is started again is back sooner."""
_RECENT_MS = 600_000
_MANY_ENDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessObservation:
    """`quiet_ms`: since the core has heard it, or since the core began. `up_ms`: since it connected
    to the core, 0 = it has not. `recent_ends`: how often it had ended by itself in the ten minutes
    before its start.
    """

    name: str
    quiet_ms: int
    up_ms: int
    recent_ends: int

    @property
    def is_missing(self) -> bool:
        return self.quiet_ms > MISSING_MS


def process_findings(processes: Iterable[ProcessObservation]) -> Iterator[Finding]:
    """Workers that are not there, and processes that keep ending."""
    for one in processes:
        if one.is_missing:
            yield Finding(
                kind=ProblemKind.PROCESS_MISSING,
                subject=one.name,
                text=f"the core has heard nothing of it for {human_duration(one.quiet_ms)}: fewer "
                "processes serve Kafka clients; see `child_ended` and `child_not_started` in the "
                "log of `rlm serve`",
            )
        elif one.recent_ends >= _MANY_ENDS and one.up_ms < _RECENT_MS:
            yield Finding(
                kind=ProblemKind.PROCESS_ENDS,
                subject=one.name,
                text=f"it had ended {one.recent_ends} times in ten minutes when it was started "
                "last; see `child_ended` in the log of `rlm serve`",
            )
