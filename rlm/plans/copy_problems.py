"""The rules that decide when copying is a problem: refused, stopped, behind, or not measured.

A copy may take long, and wait while others copy; see `rlm/plans/problem_rules.py`. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kip405.ids import TopicPartition
from rlm.plans.copy import CopyLag, WhyNot
from rlm.plans.problem_rules import Failure, Limits, partition_finding
from rlm.plans.problems import Finding, ProblemKind, human_duration

_TOPIC_REFUSED = (WhyNot.CLEANUP_POLICY, WhyNot.NATIVE_TIERING)
_FOREVER_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyMeasure:
    """The copy results of the last snapshot under this leader epoch, and its time."""

    at_ms: int
    lag: CopyLag
    behind_since_ms: int | None
    is_due: bool
    reason: WhyNot
    detail: str = ""

    @property
    def words(self) -> str:
        return " ".join((self.reason.value, self.detail)).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyObservation:
    """One partition's copying. `led_since_ms`: since when we lead it under this leader epoch.

    `service_copied_at_ms`: when this service last copied any segment of any partition.
    """

    partition: TopicPartition
    led_since_ms: int
    measure: CopyMeasure | None
    failure: Failure | None
    is_running: bool
    is_waiting: bool
    service_copied_at_ms: int | None = None


def known_lag(observed: CopyObservation, limits: Limits, now_ms: int) -> CopyLag | None:
    """The lag, None where it was not measured, or too long ago to be valid."""
    measure = observed.measure
    if measure is None or now_ms - measure.at_ms > _patience_ms(observed, limits, now_ms):
        return None
    return measure.lag


def copy_findings(observed: CopyObservation, limits: Limits, now_ms: int) -> Iterator[Finding]:
    """Problems with copying a partition."""
    failure = observed.failure
    if failure is not None and failure.is_final:
        yield partition_finding(
            observed.partition,
            ProblemKind.CANNOT_COPY,
            f"copying stops here ({_lag_words(observed, limits, now_ms)}): {failure.message}",
        )
    elif known_lag(observed, limits, now_ms) is None:
        yield from _unmeasured(observed, limits, now_ms)
    elif observed.measure is not None:
        yield from _behind(observed, observed.measure, limits, now_ms)


def _unmeasured(observed: CopyObservation, limits: Limits, now_ms: int) -> Iterator[Finding]:
    since_ms = observed.led_since_ms
    if observed.measure is not None:
        since_ms = max(since_ms, observed.measure.at_ms)
    if now_ms - since_ms > _patience_ms(observed, limits, now_ms):
        why = (
            observed.failure.message
            if observed.failure
            else "no snapshot of the partition succeeded"
        )
        yield partition_finding(
            observed.partition,
            ProblemKind.LAG_UNKNOWN,
            f"what is left to copy is not known for {human_duration(now_ms - since_ms)}, and "
            f"nothing may be copied: {why}",
        )


def _behind(
    observed: CopyObservation, measure: CopyMeasure, limits: Limits, now_ms: int
) -> Iterator[Finding]:
    if measure.reason in _TOPIC_REFUSED:
        yield partition_finding(
            observed.partition,
            ProblemKind.COPY_REFUSED,
            f"nothing is copied or trimmed: {measure.words}; set it back, or disable the topic",
        )
        return
    if measure.behind_since_ms is None or measure.reason is WhyNot.FROZEN:
        return
    patience_ms = _patience_ms(observed, limits, now_ms) if measure.is_due else limits.held_ms
    behind_ms = now_ms - measure.behind_since_ms
    if behind_ms > patience_ms:
        why = observed.failure.message if observed.failure else measure.words
        yield partition_finding(
            observed.partition,
            ProblemKind.NOTHING_COPIED,
            f"nothing was copied for {human_duration(behind_ms)}, while "
            f"{_lag_words(observed, limits, now_ms)}: {why}",
        )


def _patience_ms(observed: CopyObservation, limits: Limits, now_ms: int) -> int:
    """A running job may take its time; so may a job that waits while others copy."""
    if observed.failure is not None or not (observed.is_running or observed.is_waiting):
        return limits.copy_ms
    patience_ms = max(limits.copy_ms, limits.copy_deadline_ms)
    copied_at_ms = observed.service_copied_at_ms
    is_queued = observed.is_waiting and not observed.is_running
    if is_queued and copied_at_ms is not None and now_ms - copied_at_ms <= patience_ms:
        return _FOREVER_MS
    return patience_ms


def _lag_words(observed: CopyObservation, limits: Limits, now_ms: int) -> str:
    lag = known_lag(observed, limits, now_ms)
    if lag is None:
        return "how much is left to copy is not known"
    return lag.words
