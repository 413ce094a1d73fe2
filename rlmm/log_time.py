"""Computes the age of a record of the settings topic without its writer's clock (G1, H16). Pure.

Brokers stamp the records (LogAppendTime), so one clock, even a wrong one, measures the time between
them. The monotonic clock of this process measures the time since a record was read. A record is at
least as old as either says. A record that was appended long before the last one is old even if it
was read just now (a backlog, after this process or its broker was paused), and a record that
nothing followed ages too.

A record that existed before this process began to follow the log says nothing about now: its writer
may have died years ago with nothing written since.
"""

from dataclasses import dataclass

MOST_SKEW_MS = 60_000
"""A writer's clock further away from the brokers' is an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTimes:
    """`appended_ms` by the broker's clock, `read_ms` by this process's monotonic one; None = in the
    replay.
    """

    appended_ms: int
    read_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSkew:
    """How far a service's clock is ahead of the brokers' by its last heartbeat; below 0 = behind.

    `node_id` is -1 for a reader, `who` its key in the settings topic.
    """

    node_id: int
    who: str
    skew_ms: int


class LogTime:
    """The current time by the log: the append time of the last record read, and when it was
    read.
    """

    def __init__(self) -> None:
        self._last: RecordTimes | None = None

    def note(self, times: RecordTimes) -> None:
        """The next record was read."""
        self._last = times

    def least_age_ms(self, times: RecordTimes | None, monotonic_ms: int) -> int | None:
        """How old a record is at least; None where the append time was not told. Of a replay the
        time before its end does not count: for showing, not for relying upon.
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
