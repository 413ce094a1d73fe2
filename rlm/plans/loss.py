"""When the broker's own retention deletes records that are not remote (H15). Pure.

In mode copy, and wherever a retention is bounded, the broker deletes closed segments whether they
were copied or not. For each partition the oldest segment that is not remote is the first to be
lost: by age when the newest record up to its end is older than retention.ms, by size when what
follows it reaches retention.bytes, at the growth that its segments show. An active segment that
nobody writes to is deleted by age too, and is never copied; that is a loss only where the remote
log keeps records for longer than the broker.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlm.log_dir.scanner import LocalSegment
from rlm.plans.coverage import Cover
from rlm.plans.problems import human_bytes, human_duration
from rlm.plans.retention import UNLIMITED
from rlmm.settings_records import TotalRetention

_SHORTEST_MS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LossView:
    """One snapshot. `start`: of the local offsets that readers may ask for; `retention`: the
    broker's own, -1 = no limit; `total_ms`: of both tiers, -1 = unlimited; `now_ms`: wall time.
    """

    segments: Sequence[LocalSegment]
    covered: Cover
    start: int
    retention: TotalRetention
    total_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingLoss:
    """[start_offset, next_offset) is lost at `at_ms` (wall), unless it is copied; the active
    segment has no `next_offset`. `span_ms`: how long the broker keeps records at all.
    """

    start_offset: int
    next_offset: int | None
    size_bytes: int
    at_ms: int
    span_ms: int

    def in_ms(self, now_ms: int) -> int:
        """Time left; 0 = any moment."""
        return max(0, self.at_ms - now_ms)

    def is_near(self, now_ms: int, lead_ms: int) -> bool:
        """Whether it is due within `lead_ms`, or half of what the broker keeps if that is less."""
        return self.in_ms(now_ms) < min(lead_ms, self.span_ms // 2)

    def words(self, now_ms: int) -> str:
        """One sentence for an operator."""
        when = f"in {human_duration(left)}" if (left := self.in_ms(now_ms)) else "at any moment"
        if self.next_offset is None:
            return (
                f"{when} the broker's own retention deletes the active segment from offset "
                f"{self.start_offset}, which is copied only once it is closed: produce to it, or "
                "set segment.ms below the broker's retention.ms"
            )
        return (
            f"{when} the broker's own retention deletes offsets {self.start_offset} to "
            f"{self.next_offset} ({human_bytes(self.size_bytes)}), which are not remote: mend "
            "what holds up the copies, or raise the broker's retention"
        )


def coming_loss(view: LossView) -> ComingLoss | None:
    """The first loss; None where there is none to come, or nobody knows when (by size alone, of a
    log whose growth is not known).
    """
    uncopied = [
        index
        for index, one in enumerate(view.segments)
        if one.size_bytes
        and one.next_offset is not None
        and one.next_offset > view.start
        and not view.covered.holds(max(one.base_offset, view.start), one.next_offset)
    ]
    if uncopied:
        return min(_losses(view, uncopied[0]), key=lambda loss: loss.at_ms, default=None)
    return _active_loss(view)


def _losses(view: LossView, index: int) -> Iterable[ComingLoss]:
    age_ms, most_bytes = view.retention.retention_ms, view.retention.retention_bytes
    if age_ms != UNLIMITED:
        yield _loss(view, index, _newest_ms(view.segments[: index + 1]) + age_ms, age_ms)
    if most_bytes == UNLIMITED:
        return
    rate = _bytes_per_ms(view.segments)
    missing_bytes = most_bytes - sum(one.size_bytes for one in view.segments[index + 1 :])
    span_ms = _SHORTEST_MS if rate is None else max(_SHORTEST_MS, int(most_bytes / rate))
    if missing_bytes <= 0:
        yield _loss(view, index, view.now_ms, span_ms)
    elif rate is not None:
        yield _loss(view, index, view.now_ms + int(missing_bytes / rate), span_ms)


def _active_loss(view: LossView) -> ComingLoss | None:
    age_ms = view.retention.retention_ms
    is_ended_first = view.total_ms != UNLIMITED and view.total_ms <= age_ms
    if age_ms == UNLIMITED or is_ended_first or not view.segments:
        return None
    active = view.segments[-1]
    if active.next_offset is not None or not active.size_bytes:
        return None
    return _loss(view, len(view.segments) - 1, _newest_ms(view.segments) + age_ms, age_ms)


def _loss(view: LossView, index: int, at_ms: int, span_ms: int) -> ComingLoss:
    segment = view.segments[index]
    return ComingLoss(
        start_offset=max(segment.base_offset, view.start),
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        at_ms=at_ms,
        span_ms=span_ms,
    )


def _newest_ms(segments: Sequence[LocalSegment]) -> int:
    """Retention deletes from the beginning, and stops at the first segment that stays."""
    return max(one.max_timestamp_ms for one in segments)


def _bytes_per_ms(segments: Sequence[LocalSegment]) -> float | None:
    """How fast the log grows, by the sizes and times of its segments; None = not known."""
    if len(segments) < 2:
        return None
    span_ms = segments[-1].max_timestamp_ms - segments[0].max_timestamp_ms
    size_bytes = sum(one.size_bytes for one in segments[1:])
    return size_bytes / span_ms if span_ms > 0 and size_bytes else None
