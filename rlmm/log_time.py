"""Computes how old a record of a topic is, without believing any one clock (G1, H16). Pure.

Brokers stamp the records (LogAppendTime), so one clock, even a wrong one, measures the time between
them. The monotonic clock of this process measures the time since a record was read. A record is at
least as old as either says: one that was appended long before the last one is old even if it was
read just now (a backlog, after this process or its broker was paused), and one that nothing
followed ages too. A record that existed before this process began to follow the log says nothing
about now: its writer may have died years ago with nothing written since.

What must not happen too early needs a certain age. The leader of the topic may change to a broker
whose clock is ahead, or its clock may be corrected. So the time between append times counts only as
far as our own clock confirms it, from the append time and from the writer's time. A writer's time
that is in the future by our clock and by the brokers' is wrong: it does not count, or what the
writer decided would wait until then.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTimes:
    """`appended_ms` by the broker's clock, `read_ms` by this process's monotonic one; None = in the
    replay.
    """

    appended_ms: int
    read_ms: int | None


class LogTime:
    """The current time by the log: the append time of the last record read, and when it was
    read.
    """

    def __init__(self) -> None:
        self._last: RecordTimes | None = None
        self._followed_since_ms: int | None = None

    def note(self, times: RecordTimes) -> None:
        """The next record was read."""
        self._last = times
        if self._followed_since_ms is None:
            self._followed_since_ms = times.read_ms

    def followed_ms(self, monotonic_ms: int) -> int:
        """Since when a record was read that is not of the replay; 0 = none was."""
        since_ms = self._followed_since_ms
        return 0 if since_ms is None else monotonic_ms - since_ms

    def now_ms(self, monotonic_ms: int) -> int | None:
        """The brokers' wall time; None while only records of the replay were read, since nobody
        knows how long ago those were appended.
        """
        if self._last is None or self._last.read_ms is None:
            return None
        return self._last.appended_ms + max(0, monotonic_ms - self._last.read_ms)

    def least_age_ms(self, times: RecordTimes | None, monotonic_ms: int) -> int | None:
        """How old a record is at least; None where the append time is not known. The
        time before the end of a replay does not count: show the age, but do not rely on it.
        """
        if times is None or self._last is None:
            return None
        behind_ms = max(0, self._last.appended_ms - times.appended_ms)
        since_read_ms = 0 if times.read_ms is None else monotonic_ms - times.read_ms
        since_last_ms = 0 if self._last.read_ms is None else monotonic_ms - self._last.read_ms
        return max(behind_ms + since_last_ms, since_read_ms)

    def heard_age_ms(self, times: RecordTimes | None, monotonic_ms: int) -> int | None:
        """How long ago a record was heard; None = not since this process follows the log."""
        if times is None or times.read_ms is None:
            return None
        return self.least_age_ms(times, monotonic_ms)

    def certain_age_ms(
        self, times: RecordTimes, written_ms: int, *, monotonic_ms: int, now_ms: int
    ) -> int:
        """How old a record certainly is even if one clock is wrong: the brokers', now or when it
        was appended, its writer's (`written_ms`), or our own (`now_ms`).
        """
        known_ms = self.followed_ms(monotonic_ms)
        if times.read_ms is not None:
            known_ms = monotonic_ms - times.read_ms
        log_now_ms = self.now_ms(monotonic_ms)
        is_refuted = log_now_ms is not None and written_ms > max(now_ms, log_now_ms)
        decided_ms = times.appended_ms if is_refuted else max(times.appended_ms, written_ms)
        by_log_ms = self.least_age_ms(times, monotonic_ms) or 0
        return max(known_ms, min(by_log_ms, now_ms - decided_ms))
