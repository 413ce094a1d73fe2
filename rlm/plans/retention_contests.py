"""Decides whether a foreign change of a taken-over retention is reverted, and how long trims wait.

A tool that sets its own value at each of its runs (GitOps, an operator of Kubernetes) undoes every
revert. So a retention is set back at most twice within 15 minutes (H14); from then on it is left as
it is until nobody has bounded it for 15 minutes. Nothing is trimmed for that long either: the next
bound may come at any moment. What this process has not seen is not known to it: after a restart the
count begins again. Times are monotonic ms. Pure.
"""

from dataclasses import dataclass, replace

CONTEST_MS = 900_000
MOST_REVERTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """`bounded_at_ms`: when a foreign bound was last seen; `reverted_at_ms`: our reverts."""

    bounds: str
    bounded_at_ms: int
    reverted_at_ms: tuple[int, ...] = ()
    is_given_up: bool = False


class RetentionContests:
    """By topic name. A contest ends when no foreign bound was seen for 15 minutes."""

    def __init__(self) -> None:
        self._contests: dict[str, _Contest] = {}

    def bounded(self, topic: str, bounds: str, now_ms: int) -> None:
        """Somebody else's bound was seen."""
        known = self._at(topic, now_ms)
        if known is None:
            self._contests[topic] = _Contest(bounds=bounds, bounded_at_ms=now_ms)
            return
        recent = tuple(at for at in known.reverted_at_ms if now_ms - at <= CONTEST_MS)
        self._contests[topic] = _Contest(
            bounds=bounds,
            bounded_at_ms=now_ms,
            reverted_at_ms=recent,
            is_given_up=known.is_given_up or len(recent) >= MOST_REVERTS,
        )

    def reverted(self, topic: str, now_ms: int) -> None:
        """The bound that was seen last was set back."""
        known = self._at(topic, now_ms)
        if known is not None:
            reverted = (*known.reverted_at_ms, now_ms)
            self._contests[topic] = replace(known, reverted_at_ms=reverted)

    def is_given_up(self, topic: str, now_ms: int) -> bool:
        """Whether the bound is left as it is."""
        known = self._at(topic, now_ms)
        return known is not None and known.is_given_up

    def words(self, topic: str, now_ms: int) -> str | None:
        """Why nothing of the topic is trimmed; None where nobody contests its retention."""
        known = self._at(topic, now_ms)
        if known is None:
            return None
        ago_s = (now_ms - known.bounded_at_ms) // 1000
        return f"somebody bounded it {ago_s} s ago ({known.bounds})"

    def _at(self, topic: str, now_ms: int) -> _Contest | None:
        known = self._contests.get(topic)
        if known is not None and now_ms - known.bounded_at_ms > CONTEST_MS:
            del self._contests[topic]
            return None
        return known
