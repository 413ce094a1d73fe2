"""Runs a restore: some partitions at once, each from its committed progress to the source's end.

A failure that may pass ends the session of its partition; the next one goes on from what was
committed, and repeated failures without any progress end the restore. `stop` ends it between two
transactions.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from kip405.errors import Fenced, Invalid, RemoteStorageError, Unavailable
from rlm.clock import Clock, backoff_ms
from rlm.download.plan import PartitionPlan
from rlm.download.verified import VerifiedReads
from rlm.restore.brokers import Brokers
from rlm.restore.source import PORTION_BYTES, PartitionSource, Portion, gap_of, holes_of, start_of
from rlm.restore.target import NewTopic, Target, committed_behind, log_bounds, prepared, unfit
from rlm.restore.transactions import Progress, Session, TargetPartition, first_error
from rsm_plugins.threads import Threads

V = TypeVar("V")
_PARTITIONS_AT_ONCE = 4
_ATTEMPTS = 15
"""In a row without any progress; with the pauses between them, about a minute."""
_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to restore, and what is allowed. `partition` None: all."""

    topic: str
    to_topic: str
    partition: int | None = None
    partitions: int | None = None
    replicas: int = -1
    configs: dict[str, str] = field(default_factory=dict)
    skips_holes: bool = False
    allows_others: bool = False
    allows_retention: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """How far one partition is. `log_end_offset` is the target's when this command began there,
    None before; `is_repeated`: attempts that were broken off left aborted records in the target.
    """

    plan: PartitionPlan
    progress: Progress | None
    log_end_offset: int | None
    is_repeated: bool = False

    @property
    def is_complete(self) -> bool:
        done = self.progress is not None and self.progress.source_offset >= self.plan.next_offset
        return done or not self.plan.pieces


Report = Callable[[PartitionReport], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a run did; partitions ascending."""

    target: Target
    partitions: tuple[PartitionReport, ...]

    @property
    def is_complete(self) -> bool:
        return all(one.is_complete for one in self.partitions)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be known of target and source, in sentences."""
        gaps = tuple(
            f"{one.plan.topic_partition.topic_partition}: no segment has offsets {gap[0]} to "
            f"{gap[1] - 1}: they were deleted by retention, or are lost"
            for one in self.partitions
            if (gap := gap_of(one.plan)) is not None
        )
        return (*self.target.remarks, *gaps)


class Restore:
    """One restore of one topic. `brokers` and what is behind `reads` belong to the caller."""

    def __init__(
        self,
        reads: VerifiedReads,
        brokers: Brokers,
        *,
        clock: Clock,
        threads: Threads,
        report: Report,
        portion_bytes: int = PORTION_BYTES,
    ) -> None:
        self._portion_bytes = portion_bytes
        self._reads = reads
        self._brokers = brokers
        self._clock = clock
        self._threads = threads
        self._report = report
        self._runs: list[_PartitionRun] = []
        self._stop = _Stop()

    async def run(self, wanted: Wanted) -> Restored:
        """Everything that the source has; less after `stop`. What was done before is not repeated.

        Invalid: the topic is no place for it, or offsets are missing. Corrupt, NotFound: an object
        is damaged or gone. Unavailable: it may go on later. Fenced: another restore has begun.
        Stopped: before anything was written.
        """
        plans = await self._stop.unless(partial(self._reads.plans, wanted.topic, None))
        count = wanted.partitions or _partition_count(plans)
        plans = _chosen(plans, wanted, count)
        new = NewTopic(partitions=count, replicas=wanted.replicas, configs=wanted.configs)
        target = await self._stop.unless(
            partial(
                prepared,
                self._brokers,
                wanted.to_topic,
                new,
                self._clock,
                allows_retention=wanted.allows_retention,
            )
        )
        self._runs = [self._run_of(plan, target, wanted) for plan in plans]
        try:
            async with asyncio.TaskGroup() as group:
                waiting = deque(self._runs)
                for _ in range(min(_PARTITIONS_AT_ONCE, len(waiting))):
                    group.create_task(self._work(waiting))
        except* (RemoteStorageError, OSError) as errors:
            raise first_error(errors) from errors
        return Restored(target=target, partitions=tuple(run.report() for run in self._runs))

    def stop(self) -> None:
        """End after the transactions that are being written; reads and pauses end at once."""
        self._stop.set()

    async def _work(self, waiting: "deque[_PartitionRun]") -> None:
        while waiting and not self._stop.is_set():
            run = waiting.popleft()
            with suppress(Stopped):
                await run.run()

    def _run_of(self, plan: PartitionPlan, target: Target, wanted: Wanted) -> "_PartitionRun":
        into = TargetPartition(
            topic=target.name,
            topic_id=target.topic_id,
            partition=plan.topic_partition.partition,
            source_topic_id=plan.topic_partition.topic_id,
        )
        return _PartitionRun(
            PartitionSource(self._reads, plan, self._threads, portion_bytes=self._portion_bytes),
            into,
            self._brokers,
            clock=self._clock,
            report=self._report,
            wanted=wanted,
            stop=self._stop,
        )


def _partition_count(plans: Sequence[PartitionPlan]) -> int:
    return max((plan.topic_partition.partition for plan in plans), default=0) + 1


def _chosen(
    plans: Sequence[PartitionPlan], wanted: Wanted, count: int
) -> tuple[PartitionPlan, ...]:
    """The partitions to restore. Invalid where there are none, or offsets are missing."""
    chosen = tuple(
        plan for plan in plans if wanted.partition in (None, plan.topic_partition.partition)
    )
    if not chosen:
        raise Invalid(f"{wanted.topic} has nothing to restore in partition {wanted.partition}")
    if _partition_count(plans) > count:
        raise Invalid(f"--partitions: the source has {_partition_count(plans)}, got {count}")
    holes = [(plan, hole) for plan in chosen for hole in holes_of(plan)]
    if holes and not wanted.skips_holes:
        names = ", ".join(
            f"{plan.topic_partition.topic_partition} {start} to {end - 1}"
            for plan, (start, end) in holes
        )
        raise Invalid(f"no segment has offsets {names}: with --skip-holes they are left out")
    return chosen


class Stopped(Exception):
    """The restore was stopped before anything was written."""


class _Stop:
    """Whether the restore is to end, and what may be broken off then: no transaction is open."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: set[asyncio.Task[Any]] = set()

    def set(self) -> None:
        self._is_set = True
        for task in self._waiting:
            task.cancel()

    def is_set(self) -> bool:
        return self._is_set

    async def unless(self, work: Callable[[], Awaitable[V]]) -> V:
        """Stopped: it was broken off, or not begun."""
        task = asyncio.current_task()
        if self._is_set or task is None:
            raise Stopped
        self._waiting.add(task)
        try:
            return await work()
        except asyncio.CancelledError:
            if not self.is_set() or task.uncancel():
                raise
            raise Stopped from None
        finally:
            self._waiting.discard(task)


class _PartitionRun:
    """One partition, over as many sessions as it takes."""

    def __init__(
        self,
        source: PartitionSource,
        target: TargetPartition,
        brokers: Brokers,
        *,
        clock: Clock,
        report: Report,
        wanted: Wanted,
        stop: _Stop,
    ) -> None:
        self._source = source
        self._target = target
        self._brokers = brokers
        self._clock = clock
        self._show = report
        self._wanted = wanted
        self._stop = stop
        self._progress: Progress | None = None
        self._log_end: int | None = None
        self._is_repeated = False

    def report(self) -> PartitionReport:
        return PartitionReport(
            plan=self._source.plan,
            progress=self._progress,
            log_end_offset=self._log_end,
            is_repeated=self._is_repeated,
        )

    async def run(self) -> None:
        """To the source's end. Stopped: before it."""
        if not self._source.plan.pieces:
            return
        failures, reached = 0, self._progress
        while True:
            try:
                await self._session()
                return
            except RemoteStorageError as error:
                failures = failures + 1 if reached == self._progress else 1
                reached = self._progress
                if not error.retriable or failures >= _ATTEMPTS:
                    raise
            pause_ms = backoff_ms(failures - 1)
            await self._stop.unless(partial(self._clock.sleep_ms, pause_ms))

    async def _session(self) -> None:
        """Until the end of the source, or the first failure."""
        begin = partial(Session.begin, self._brokers, self._target, self._clock)
        session = await self._stop.unless(begin)
        self._progress = await self._checked(session)
        self._show(self.report())
        async with aclosing(self._source.portions(self._progress.source_offset)) as portions:
            while True:
                portion = await self._stop.unless(partial(anext, portions, None))
                if portion is None:
                    return
                await self._write(session, portion)

    async def _write(self, session: Session, portion: Portion) -> None:
        """In one transaction, or in some where it takes long."""
        left = portion.batches
        try:
            while True:
                done = self._progress = await session.write(left, portion.next_offset)
                self._show(self.report())
                left = tuple(one for one in left if one.start_offset >= done.source_offset)
                if not left or self._stop.is_set():
                    return
        except BaseException as failure:
            if not isinstance(failure, Fenced):  # to fence back would stop the other restore
                with suppress(RemoteStorageError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                        await session.close()
            raise

    async def _checked(self, session: Session) -> Progress:
        """Where this session goes on; the first one of a restore notes that before any record."""
        progress, plan = session.progress, self._source.plan
        _refuse_older(self._target, progress, self._progress)
        start, end = await log_bounds(self._brokers, session.leader, self._target)
        problem = unfit(self._target, progress, start, end)
        if problem is not None:
            raise problem
        session.expected_offset = None if self._wanted.allows_others else end
        self._log_end = end if self._log_end is None else self._log_end
        if progress is None:
            first = Progress(source_offset=start_of(plan), target_offset=end, record_count=0)
            return await session.commit(first)
        if progress.source_offset < start_of(plan) and not self._wanted.skips_holes:
            raise Invalid(
                f"{self._target}: the source begins at {start_of(plan)} by now, and the restore "
                f"has come to {progress.source_offset}: with --skip-holes it goes on there"
            )
        if progress.source_offset < plan.next_offset:
            await self._refuse_records_behind(session, progress, end)
        return progress

    async def _refuse_records_behind(self, session: Session, progress: Progress, end: int) -> None:
        """Invalid where there are records behind what is said to be the last: of somebody else, or
        of a restore whose progress was lost (offsets reset, or a coordinator that lost them).
        """
        marker = 1 if progress.record_count else 0  # of the last transaction with records
        if end <= progress.target_offset + marker:
            return
        self._is_repeated = True
        if self._wanted.allows_others:
            return
        span = progress.target_offset, end
        found = await committed_behind(self._brokers, session.leader, self._target, span)
        if found is None:
            return
        offset, producer_id = found
        if producer_id == session.producer_id:
            raise Invalid(
                f"{self._target}: a restore has written offset {offset}, and its progress in group "
                f"{self._target.group} ends before, at {progress.target_offset}: newer progress "
                "was lost, and records would come twice; delete the topic and begin again"
            )
        raise Invalid(
            f"{self._target}: somebody else has written at offset {offset}, and records that "
            "are older would come behind it: with --allow-others they do"
        )


def _refuse_older(target: TargetPartition, found: Progress | None, known: Progress | None) -> None:
    """Unavailable where the coordinator does not know what was committed: it is an old one."""
    if known is None or (found is not None and found.source_offset >= known.source_offset):
        return
    there = "none" if found is None else f"source offset {found.source_offset}"
    raise Unavailable(
        f"{target}: group {target.group} has progress {there}, and {known.source_offset} was "
        "committed"
    )
