"""Verifies all partitions that this service leads, or those of one topic, and counts progress.

At most two runs at once; one more is Busy. A run is cancelled by closing the generator. This module
must not know gRPC, or other services.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass

from kip405.errors import Busy
from kip405.segments import RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.verification import Issue
from rlm.remote_log.ports import Ledger
from rlm.tasks.verification import Checked, PartitionReport, PartitionVerifier

_RUNS_AT_ONCE = 2
_PROGRESS_MS = 500
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come; `size_*` are 0 where bytes are not read. Totals are estimates: those
    of the ledger when the run began.
    """

    segments: int
    segments_total: int
    size_bytes: int
    size_total_bytes: int


_NOTHING_YET = Progress(segments=0, segments_total=0, size_bytes=0, size_total_bytes=0)
Event = Issue | Progress | PartitionReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningVerify:
    """A run as it is now; `topic` empty = all."""

    topic: str
    deep: bool
    progress: Progress


class VerifyRuns:
    """`led`: the partitions of enabled and kept topics that are led here now."""

    def __init__(
        self,
        *,
        verifier: PartitionVerifier,
        led: Callable[[], Collection[LedPartition]],
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self._verifier = verifier
        self._led = led
        self._ledger = ledger
        self._clock = clock
        self._running: dict[object, RunningVerify] = {}

    def running(self) -> tuple[RunningVerify, ...]:
        """The runs, in the order of their begin."""
        return tuple(self._running.values())

    async def run(self, topic: str, *, deep: bool) -> AsyncGenerator[Event, None]:
        """Issues, progress, and a report for each partition; `topic` empty = all."""
        if len(self._running) >= _RUNS_AT_ONCE:
            raise Busy(f"{len(self._running)} verifications run on this service already")
        run = object()
        self._running[run] = RunningVerify(topic=topic, deep=deep, progress=_NOTHING_YET)
        try:
            async with aclosing(self._events(topic, deep)) as events:
                async for event in events:
                    if isinstance(event, Progress):
                        self._running[run] = RunningVerify(topic=topic, deep=deep, progress=event)
                    yield event
        finally:
            del self._running[run]

    async def _events(self, topic: str, deep: bool) -> AsyncGenerator[Event, None]:
        led = [row for row in self._led() if topic in ("", row.topic_id_partition.topic)]
        segments_total, size_total_bytes = self._totals(led)
        segments = size_bytes = 0
        reported_ms = self._clock.monotonic_ms()

        def progress() -> Progress:
            return Progress(
                segments=segments,
                segments_total=max(segments, segments_total),
                size_bytes=size_bytes,
                size_total_bytes=max(size_bytes, size_total_bytes if deep else 0),
            )

        yield progress()
        for row in led:
            async with aclosing(self._verifier.run(row, deep=deep)) as steps:
                async for step in steps:
                    if not isinstance(step, Checked):
                        yield step
                        continue
                    segments += step.segments
                    size_bytes += step.size_bytes
                    now_ms = self._clock.monotonic_ms()
                    if now_ms - reported_ms >= _PROGRESS_MS:
                        reported_ms = now_ms
                        yield progress()
        yield progress()

    def _totals(self, led: Collection[LedPartition]) -> tuple[int, int]:
        """Segments, and bytes of log and indexes objects."""
        finished = [
            entry.metadata
            for row in led
            for entry in self._ledger.ledger(row.key).in_state(_FINISHED)
        ]
        return len(finished), sum(one.segment_size_bytes for one in finished)
