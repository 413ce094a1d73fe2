"""Keeps where each window of `proxy.history` begins in each partition that is led here.

A start is computed again when the segments have changed, or when its first segment has become too
old. Segments are looked at in groups of neighbours, whose newest record is kept with them: so each
is looked at once and not with every snapshot, which matters for a partition of a million of them,
and nothing that was found before has to be held against what has happened since. The time is the
earlier one of our clock and the brokers', so that a clock that is ahead hides nothing (H16).
"""

from collections.abc import Callable
from dataclasses import dataclass

from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.plans.client_history import WindowStart, window_start
from rlm.remote_log.history import RemoteHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was found, of what, and until when it holds by the wall clock; it was found at
    `found_ms`.
    """

    history: RemoteHistory
    bounds: tuple[int, int]
    starts: tuple[WindowStart, ...]
    found_ms: int
    until_ms: int | None

    def holds(self, history: RemoteHistory, bounds: tuple[int, int], now_ms: int) -> bool:
        if self.history is not history or self.bounds != bounds or now_ms < self.found_ms:
            return False
        return self.until_ms is None or now_ms <= self.until_ms


class HistoryWindows:
    """`windows_ms`: those of the settings. Without any it is falsy, and costs nothing."""

    def __init__(self, windows_ms: tuple[int, ...], clock: Clock) -> None:
        self._windows_ms = windows_ms
        self._clock = clock
        self._known: dict[PartitionKey, _Known] = {}

    def __bool__(self) -> bool:
        return bool(self._windows_ms)

    def starts(
        self,
        history: RemoteHistory,
        *,
        remote_log_start_offset: int,
        local_log_start_offset: int,
        log_time_ms: Callable[[int], int | None],
    ) -> tuple[WindowStart, ...]:
        """Where each window begins. `log_time_ms`: the brokers' wall time at a time of the
        monotonic clock, None = not known.
        """
        now_ms = self._clock.now_ms()
        brokers_ms = log_time_ms(self._clock.monotonic_ms())
        now_ms = now_ms if brokers_ms is None else min(now_ms, brokers_ms)
        bounds = remote_log_start_offset, local_log_start_offset
        key = history.ledger.key
        known = self._known.get(key)
        if known is None or not known.holds(history, bounds, now_ms):
            known = self._known[key] = self._found(history, bounds, now_ms)
        return known.starts

    def _found(self, history: RemoteHistory, bounds: tuple[int, int], now_ms: int) -> _Known:
        start, local_start = bounds
        found = {
            window_ms: window_start(
                history.ledger.extents_since(
                    now_ms - window_ms, history.lineage, history.log_end_offset, start
                ),
                window_ms=window_ms,
                now_ms=now_ms,
                remote_log_start_offset=start,
                local_log_start_offset=local_start,
            )
            for window_ms in self._windows_ms
        }
        ends = [one.until_ms for one in found.values() if one.until_ms is not None]
        return _Known(
            history=history,
            bounds=bounds,
            starts=tuple(WindowStart(window, one.offset) for window, one in found.items()),
            found_ms=now_ms,
            until_ms=min(ends, default=None),
        )
