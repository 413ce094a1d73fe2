"""Estimates how fast a topic grows on this broker's disk and how long it lasts with trim off (H18).

The growth is read from the ledger of the last day: what was copied is what was produced. Free space
is that of the fullest of this broker's log.dirs.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kip405.errors import Unavailable
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.problems import human_bytes
from rsm_plugins.threads import Threads

DAY_MS = 86_400_000
_LEAST_SPAN_MS = 60_000
_FAR_DAYS = 3_650


class LogDirSpace:
    """Free bytes of the fullest of some directories."""

    def __init__(self, log_dirs: Sequence[Path], threads: Threads) -> None:
        self._log_dirs = tuple(log_dirs)
        self._threads = threads

    async def free_bytes(self) -> int:
        """Unavailable where the free space of a directory cannot be read."""
        try:
            return await self._threads.run(self._free_bytes)
        except OSError as error:
            raise Unavailable(f"log.dirs: free space is not known: {error.strerror}") from error

    def _free_bytes(self) -> int:
        return min(shutil.disk_usage(path).free for path in self._log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Growth of a topic's replicas on one broker."""

    bytes_a_day: int
    free_bytes: int

    def words(self, topic: str, now_ms: int) -> str:
        """One sentence for an operator."""
        free = f"{human_bytes(self.free_bytes)} are free in its log.dirs"
        if self.bytes_a_day <= 0:
            return (
                f"the local log of {topic} grows from now on; how fast is not known yet, as "
                f"nothing was copied in the last day; {free}"
            )
        days = self.free_bytes / self.bytes_a_day
        until = "for more than ten years"
        if days < _FAR_DAYS:
            end = datetime.fromtimestamp((now_ms + days * DAY_MS) / 1000, tz=UTC)
            until = f"until about {end:%Y-%m-%d %H:%M} UTC"
        return (
            f"the local log of {topic} grows from now on, on this broker by "
            f"{human_bytes(self.bytes_a_day)} a day; {free}, which lasts {until}"
        )


def bytes_a_day(segments: Iterable[RemoteLogSegmentMetadata], now_ms: int) -> int:
    """Bytes of FINISHED segments of the last 24 h, scaled up where the data is younger."""
    finished = [
        segment
        for segment in segments
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        and segment.max_timestamp_ms <= now_ms
    ]
    recent = [one for one in finished if one.max_timestamp_ms > now_ms - DAY_MS]
    if not recent:
        return 0
    oldest_ms = min(segment.max_timestamp_ms for segment in finished)
    span_ms = min(DAY_MS, max(now_ms - oldest_ms, _LEAST_SPAN_MS))
    return sum(segment.segment_size_bytes for segment in recent) * DAY_MS // span_ms
