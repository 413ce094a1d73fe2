"""Copies that operators ask for: all closed segments of some partitions now, with progress.

A run copies one partition, whatever its thresholds, as a job of the pool of copy tasks. Then it
trims, where that was asked for, as a job of the pool of cleanups, by the evidence of G1.
Requests for a partition whose run has not ended join it. While somebody watches, a run that fails
is repeated, and one that is held by what ends by itself waits for that; without a watcher it ends.
So a request that is cancelled stops only the watching: what was begun is finished, and asked again,
a run continues with what is left. `run_unwatched` sees to that: a run's next job may find another
one of its partition in the queue, and a job that waits is dropped when the partition moves. Must
not know gRPC, or other services.
"""

import enum
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from kip405.errors import Busy, Fenced, RemoteStorageError
from kip405.ids import PartitionKey, TopicPartition
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.plans.copy import WhyNot
from rlm.plans.trim import NoTrim
from rlm.tasks.copy import CopyStatus
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.pool import Job, TaskPool
from rlm.tasks.trim import TrimStatus

_POLL_MS = 200
_UNWATCHED_MS = 1_000
_STILL_THERE_MS = 10_000
_FEWEST_FAILURES = 5
_FAILING_MS = 60_000
"""So many in a row, for so long; then the run ends: a broker restarts, or a machine is busy."""
_LONGEST_PAUSE_MS = 5_000
_COPIED_WITHIN_MS = 90_000
"""Kafka flushes closed segments soon, and says so each log.flush.offset.checkpoint.interval.ms."""
_TRIMMED_WITHIN_MS = 60_000
"""A late heartbeat, a broker that did not answer and a replica that lags are over by then."""
_LED_WITHIN_MS = 60_000
_ALL_COPIED = (WhyNot.CAUGHT_UP, WhyNot.NO_CLOSED_SEGMENT)
_COPIED_SOON = (WhyNot.SNAPSHOT_MISSING, WhyNot.LAST_STABLE_OFFSET, WhyNot.RECOVERY_POINT)
_HELD = frozenset(reason.value for reason in NoTrim)
_TRIMMED_SOON = (
    NoTrim.SETTINGS_NOT_READY.value,
    NoTrim.LEDGER_PROBLEM.value,  # a leader that has just begun has confirmed nothing yet
    NoTrim.RETENTION_UNKNOWN.value,
    NoTrim.NO_LIVE_SERVICE.value,
    NoTrim.PAST_PROXIES.value,
    NoTrim.ISR_HOLD.value,
    NoTrim.GAP_NOT_SETTLED.value,
)
_ALL_TRIMMED = (NoTrim.WITHIN_RETENTION.value, NoTrim.NOTHING_COPIED.value)


class Doing(enum.Enum):
    """What a run does now."""

    WAITING = "waiting"
    COPYING = "copying"
    TRIMMING = "trimming"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """What to copy. `keep_local_bytes`: how much of each partition's log stays then, at least; None
    = nothing is trimmed. `up_to_offset`: only segments that begin below it.
    """

    partitions: Collection[TopicPartition]
    keep_local_bytes: int | None = None
    up_to_offset: int | None = None

    def holds(self, led: LedPartition) -> bool:
        """Whether the partition is meant."""
        return led.topic_id_partition.topic_partition in self.partitions

    def wants_the_same(self, other: "CopyTarget") -> bool:
        """Of a partition that both mean."""
        ours = (self.keep_local_bytes, self.up_to_offset)
        return ours == (other.keep_local_bytes, other.up_to_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """How far one partition is; totals are those of its last plan. `error`: of the last try, or
    what the run waits for.
    """

    partition: TopicPartition
    doing: Doing
    segments: int
    segments_total: int
    size_bytes: int
    size_total_bytes: int
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """The end of one partition's run. `is_complete`: all that was asked for is done; else `why`.

    `first_uncopied_offset`, `local_log_start_offset`: -1 = not known.
    """

    partition: TopicPartition
    segments: int
    size_bytes: int
    first_uncopied_offset: int
    local_log_start_offset: int
    is_complete: bool
    why: str


CopyEvent = CopyProgress | CopyReport


@dataclass(slots=True, kw_only=True)
class _Run:
    """One partition's run; `is_queued`: a job of it waits or runs. `failures`: in a row, since
    `failing_since_ms`. `waited_ms`: how long it has waited in all for what ends by itself;
    `leaderless_since_ms`: since when for a leader.
    """

    led: LedPartition
    target: CopyTarget
    request: CopyRequest
    doing: Doing = Doing.WAITING
    is_copied: bool = False
    is_queued: bool = False
    failures: int = 0
    failing_since_ms: int = 0
    waited_ms: int = 0
    leaderless_since_ms: int | None = None
    again_at_ms: int = 0
    error: str = ""
    watchers: int = 0
    report: CopyReport | None = None

    @property
    def key(self) -> PartitionKey:
        return self.led.key

    @property
    def partition(self) -> TopicPartition:
        return self.led.topic_id_partition.topic_partition

    def progress(self) -> CopyProgress:
        """How far it is now."""
        request = self.request
        return CopyProgress(
            partition=self.partition,
            doing=self.doing,
            segments=request.segments,
            segments_total=request.segments_total,
            size_bytes=request.size_bytes,
            size_total_bytes=request.size_total_bytes,
            error=self.error,
        )


class CopyRuns:
    """`led`: the partitions of enabled topics that are led here now. `has_no_leader`: one is led
    nowhere, as a broker that seems dead leads nothing for a moment. `copy` and `trim` are one run
    of the task for one partition, which leave its status in `copied` and `trimmed`. `refuse` raises
    where no task may run now.
    """

    def __init__(
        self,
        *,
        led: Callable[[], Collection[LedPartition]],
        has_no_leader: Callable[[PartitionKey], bool],
        copy: Callable[[LedPartition, CopyRequest], Awaitable[None]],
        trim: Callable[[LedPartition, int], Awaitable[None]],
        copied: Mapping[PartitionKey, CopyStatus],
        trimmed: Mapping[PartitionKey, TrimStatus],
        copy_pool: TaskPool,
        cleanup_pool: TaskPool,
        refuse: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._led = led
        self._has_no_leader = has_no_leader
        self._copy = copy
        self._trim = trim
        self._copied = copied
        self._trimmed = trimmed
        self._copy_pool = copy_pool
        self._cleanup_pool = cleanup_pool
        self._refuse = refuse
        self._clock = clock
        self._runs: dict[PartitionKey, _Run] = {}

    async def run(self, target: CopyTarget) -> AsyncGenerator[CopyEvent, None]:
        """Progress, and a report for each partition of the target that is led here.

        Busy: a run of one of them that wants something else has not ended.
        """
        rows = [row for row in self._led() if target.holds(row)]
        watched = [self._joined(row, target) for row in rows]
        for run in watched:
            run.watchers += 1
        try:
            async for event in self._events(watched):
                yield event
        finally:
            for run in watched:
                self._leave(run)

    async def run_unwatched(self) -> None:
        """Finish the runs that nobody watches any more, until cancelled."""
        while True:
            for run in tuple(self._runs.values()):
                if not run.watchers:
                    self._advance(run)
            await self._clock.sleep_ms(_UNWATCHED_MS)

    async def _events(self, watched: Sequence[_Run]) -> AsyncIterator[CopyEvent]:
        shown: dict[PartitionKey, tuple[CopyProgress, int]] = {}
        left = list(watched)
        while left:
            for run in left:
                self._advance(run)
                now, now_ms = run.progress(), self._clock.monotonic_ms()
                before, shown_ms = shown.get(run.key, (None, now_ms))
                if now != before or now_ms - shown_ms >= _STILL_THERE_MS:
                    shown[run.key] = now, now_ms
                    yield now
                if run.report is not None:
                    yield run.report
            left = [run for run in left if run.report is None]
            if left:
                await self._clock.sleep_ms(_POLL_MS)

    def _joined(self, led: LedPartition, target: CopyTarget) -> _Run:
        run = self._runs.get(led.key)
        if run is None:
            request = CopyRequest(up_to_offset=target.up_to_offset)
            run = self._runs[led.key] = _Run(led=led, target=target, request=request)
        elif not run.target.wants_the_same(target):
            raise Busy(f"{run.partition}: a copy with other options runs; ask again when it ends")
        return run

    def _leave(self, run: _Run) -> None:
        run.watchers -= 1
        if not (run.watchers or run.is_queued):
            self._forget(run)

    def _forget(self, run: _Run) -> None:
        if self._runs.get(run.key) is run:
            del self._runs[run.key]

    def _advance(self, run: _Run) -> None:
        """Queue the next job of the run, unless one waits or runs already."""
        if run.report is not None or self._clock.monotonic_ms() < run.again_at_ms:
            return
        row = next((row for row in self._led() if row.key == run.key), None)
        if row is None:
            if not self._is_led_soon(run):
                self._end(run, why="it is not led here any more; ask again")
            return
        run.leaderless_since_ms = None
        pool = self._cleanup_pool if run.is_copied else self._copy_pool
        if run.is_queued and (pool.is_waiting(run.key) or pool.is_running(run.key)):
            return
        run.led = row
        job = self._trimming(run) if run.is_copied else self._copying(run)
        with suppress(Busy):  # the queue is full: the next time
            run.is_queued = pool.submit(run.key, job)

    def _is_led_soon(self, run: _Run) -> bool:
        if not (run.watchers and self._has_no_leader(run.key)):
            return False
        now_ms = self._clock.monotonic_ms()
        if run.leaderless_since_ms is None:
            run.leaderless_since_ms, run.error = now_ms, "it has no leader"
        return now_ms - run.leaderless_since_ms < _LED_WITHIN_MS

    def _copying(self, run: _Run) -> Job:
        async def copy() -> None:
            before = run.request.segments
            async with self._attempt(run, Doing.COPYING):
                try:
                    await self._copy(run.led, run.request)
                finally:
                    run.failures = 0 if run.request.segments > before else run.failures
            if run.request.segments < run.request.segments_total:
                self._advance(run)  # it gave way to others; this job comes again
                return
            why = [*_why_not_copied(run.request, self._first_uncopied(run))]
            if run.request.reason in _COPIED_SOON and self._waits(run, why, _COPIED_WITHIN_MS):
                return  # who watches has it run again
            run.is_copied, run.waited_ms = True, 0
            if run.target.keep_local_bytes is None:
                self._end(run)
            else:
                self._advance(run)

        return copy

    def _waits(self, run: _Run, why: Sequence[str], most_ms: int) -> bool:
        """Whether the run is repeated because `why` will end by itself, and it has not waited long
        yet. Each try takes a snapshot: the pauses grow. All of them count, also those after which
        more was copied: a topic that is written to has another segment to wait for each time.
        """
        if not (why and run.watchers):
            return False
        if run.waited_ms >= most_ms:
            return False
        pause_ms = min(max(run.waited_ms, _POLL_MS), _LONGEST_PAUSE_MS)
        run.waited_ms += pause_ms
        run.again_at_ms = self._clock.monotonic_ms() + pause_ms
        run.error = "; ".join(why)
        return True

    def _trimming(self, run: _Run) -> Job:
        async def trim() -> None:
            async with self._attempt(run, Doing.TRIMMING):
                await self._trim(run.led, run.target.keep_local_bytes or 0)
            status = self._trimmed.get(run.key)
            is_held_for_now = status is not None and status.reason in _TRIMMED_SOON
            why = [*_why_not_trimmed(status)]
            if is_held_for_now and self._waits(run, why, _TRIMMED_WITHIN_MS):
                return  # who watches has it run again
            self._end(run)

        return trim

    @asynccontextmanager
    async def _attempt(self, run: _Run, doing: Doing) -> AsyncIterator[None]:
        run.doing = doing
        try:
            self._refuse()
            yield
        except Exception as error:
            if not run.failures:
                run.failing_since_ms = self._clock.monotonic_ms()
            run.failures, run.error = run.failures + 1, str(error)
            if not run.watchers or self._is_final(run, error):
                self._end(run, why=run.error)
            raise
        finally:
            run.is_queued = False
        run.failures, run.error = 0, ""

    def _is_final(self, run: _Run, error: Exception) -> bool:
        """Whether the run ends by the error. Fenced drops a plan; the next one may be carried out,
        or say what it is held by.
        """
        is_repeated = run.failures < _FEWEST_FAILURES
        if isinstance(error, Fenced) or not isinstance(error, RemoteStorageError):
            return not is_repeated
        failing_ms = self._clock.monotonic_ms() - run.failing_since_ms
        return not error.retriable or not (is_repeated or failing_ms < _FAILING_MS)

    def _first_uncopied(self, run: _Run) -> int:
        copied = self._copied.get(run.key)
        return -1 if copied is None else max(copied.copied_next_offset, copied.log_start_offset)

    def _end(self, run: _Run, why: str = "") -> None:
        copied, trimmed = self._copied.get(run.key), self._trimmed.get(run.key)
        first = self._first_uncopied(run)
        reasons = [why] if why else [*_why_not_copied(run.request, first)]
        if not why and run.target.keep_local_bytes is not None:
            reasons += _why_not_trimmed(trimmed)
        start = -1 if copied is None else copied.log_start_offset
        run.report = CopyReport(
            partition=run.partition,
            segments=run.request.segments,
            size_bytes=run.request.size_bytes,
            first_uncopied_offset=first,
            local_log_start_offset=max(start, trimmed.local_log_start_offset if trimmed else -1),
            is_complete=not reasons,
            why="; ".join(reasons),
        )
        run.doing = Doing.DONE
        self._forget(run)


def _why_not_copied(request: CopyRequest, first_uncopied_offset: int) -> Iterator[str]:
    is_far_enough = (
        request.up_to_offset is not None and first_uncopied_offset >= request.up_to_offset
    )
    if request.reason is not None and request.reason not in _ALL_COPIED and not is_far_enough:
        yield f"not all is copied: {request.reason.value} {request.detail}".rstrip()


def _why_not_trimmed(status: TrimStatus | None) -> Iterator[str]:
    """A trim that was carried out leaves its plan as the reason."""
    if status is None:
        yield "not trimmed: its settings are not known"
    elif status.reason in _HELD and status.reason not in _ALL_TRIMMED:
        yield f"not trimmed: {status.reason} {status.detail}".rstrip()
