"""How fast this service copies, and how long the rest takes: for status, metrics and the log.

The rate is that of the last minute, over all partitions of the service. While nothing is copied it
falls. It must not know what is left; the caller says so.
"""

from collections import deque
from dataclasses import dataclass

_WINDOW_MS = 60_000
_LOG_INTERVAL_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What may be copied now and is not, and how fast copies go.

    `bytes_per_second`: None until two segments were copied. `left_ms`: for what is left now at that
    rate; None where the rate is not known, or 0.
    """

    segments_left: int
    bytes_left: int
    bytes_per_second: int | None
    left_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """The progress of the partitions of which it is known what is left, and the number of others
    that should be copied too. `limit_bytes_per_second`: how fast copies may go now.
    """

    progress: Progress
    unmeasured_partitions: int
    limit_bytes_per_second: int


class CopyProgress:
    """Rate of all copies; times are monotonic."""

    def __init__(self) -> None:
        self._copied: deque[tuple[int, int]] = deque()
        self._next_log_ms: int | None = None

    def is_due(self, now_ms: int, size_bytes: int) -> bool:
        """Count a segment that was copied now. True once in half a minute of copies."""
        self._copied.append((now_ms, size_bytes))
        while len(self._copied) > 2 and now_ms - self._copied[0][0] > _WINDOW_MS:
            self._copied.popleft()
        if self._next_log_ms is None or now_ms > self._next_log_ms + _LOG_INTERVAL_MS:
            self._next_log_ms = now_ms + _LOG_INTERVAL_MS  # copies begin, or begin again
            return False
        if now_ms < self._next_log_ms:
            return False
        self._next_log_ms = now_ms + _LOG_INTERVAL_MS
        return True

    def of(self, now_ms: int, segments_left: int, bytes_left: int) -> Progress:
        """The progress with so much left."""
        rate = self._rate(now_ms)
        return Progress(
            segments_left=segments_left,
            bytes_left=bytes_left,
            bytes_per_second=rate,
            left_ms=-(-bytes_left * 1000 // rate) if rate else None,
        )

    def _rate(self, now_ms: int) -> int | None:
        """The next copy is not late before it took as long as those before it did on average."""
        if len(self._copied) < 2:
            return None
        (first_ms, first_bytes), last_ms = self._copied[0], self._copied[-1][0]
        took_ms = last_ms - first_ms
        if now_ms - last_ms > took_ms // (len(self._copied) - 1):
            took_ms = now_ms - first_ms
        copied = sum(size_bytes for _, size_bytes in self._copied) - first_bytes
        return copied * 1000 // took_ms if took_ms else None
