"""The copy task: takes a snapshot of a partition we lead and copies its eligible segments in order.

Several segments are copied at a time (copy_order). The first failure ends the partition's run:
order is kept, nothing is skipped. The values that `status` shows are kept per partition. CopyTask
must not know of pools: a job of a TaskPool calls `run`.

A segment waits for its producer snapshot only so long (copy.snapshot.wait.ms). Kafka writes a
snapshot right after it rolls, but one that is missing permanently (a log older than snapshots at
every roll, files that were lost) would block the copies of its partition. So after the wait the
segment is copied without a snapshot. An empty snapshot instead would claim that there were no
producers. Readers need none, and a broker that gets a download rebuilds it from the records.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType

import structlog

from kip405.errors import Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.log_dir.scanner import Closed, LocalSegment
from rlm.plans.copy import (
    CopyPlan,
    CopyView,
    NeedsFlush,
    WhyNot,
    needed_recovery_point,
    plan_copy,
    refuse_topic,
    with_missing,
)
from rlm.plans.copy_turns import gives_way, is_backlog
from rlm.plans.coverage import (
    NO_RECORDS,
    Cover,
    DoubtfulSegment,
    OffsetRange,
    covered,
    doubtful_segments,
    empty_ranges,
)
from rlm.plans.offload import CopyDelay, OffloadPolicy
from rlm.plans.problems import Finding, ProblemKind
from rlm.remote_log.log_starts import publish_first
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots
from rlm.tasks.copy_attempt import Copier
from rlm.tasks.copy_order import Turn, run_in_order
from rlm.tasks.copy_progress import CopyProgress, Progress
from rlm.tasks.copy_request import CopyRequest
from rlm.tasks.copy_slots import CopyLimit
from rlm.tasks.good_runs import GoodRun, GoodRuns
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.segment_data import DamagedSegment
from rlm.tasks.segment_holds import SegmentHolds
from rlmm.ledger import Hole


class SnapshotWaits:
    """How long producer snapshots of closed segments have been missing, by scans of the disk.

    `wait_ms` is copy.snapshot.wait.ms; all times are monotonic.
    """

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self._since_ms: dict[PartitionKey, dict[int, int]] = {}

    def over(self, snapshot: PartitionSnapshot, now_ms: int) -> frozenset[int]:
        """Base offsets of the segments whose snapshot has been missing long enough."""
        before = self._since_ms.get(snapshot.key, {})
        since = {
            one.base_offset: before.get(one.base_offset, now_ms)
            for one in snapshot.log.segments
            if one.closed is Closed.SNAPSHOT_MISSING and one.size_bytes
        }
        self._since_ms[snapshot.key] = since
        return frozenset(base for base, at in since.items() if now_ms - at >= self._wait_ms)

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._since_ms.pop(key, None)


log = structlog.get_logger()
_NOT_YET = (WhyNot.LAST_STABLE_OFFSET, WhyNot.RECOVERY_POINT, WhyNot.SNAPSHOT_MISSING)
Copied = Callable[[str, int], None]
"""Called with topic and size in bytes of every copied segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """Result of the last snapshot. `copied_next_offset`: end of in-lineage remote data, 0 for none.

    `pending_*`: what may be copied now; `lag_*`: all closed segments that are not remote (CopyLag;
    `lag_oldest_ms` is of the last snapshot). Monotonic times: `measured_at_ms` that of the
    snapshot, or of the last segment copied since; `behind_since_ms` since when there is a lag and
    no segment was copied, None without a lag. `doubtful`: segments of 0 bytes that may have lost
    their records. `without_snapshot`: bases of segments in the log that no longer wait for their
    producer snapshot (copy.snapshot.wait.ms). `lost`: starts of the remote segments that were not
    found in their store and begin below the local log.
    """

    topic: str
    partition: int
    leader_epoch: int
    reason: str
    detail: str
    frozen: str | None
    copied_next_offset: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    pending_segments: int
    pending_bytes: int
    lag_segments: int
    lag_bytes: int
    measured_at_ms: int
    behind_since_ms: int | None
    doubtful: tuple[DoubtfulSegment, ...] = ()
    without_snapshot: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    lag_oldest_ms: int | None = None

    def findings(self) -> Iterator[Finding]:
        """Findings that need an operator's attention."""
        for one in self.doubtful:
            yield self._finding(
                ProblemKind.CANNOT_COPY,
                f"{one.path} has 0 bytes and should hold offsets {one.base_offset} to "
                f"{one.next_offset - 1}, which may be lost: {one.why}; nothing is trimmed beyond "
                f"{one.base_offset} until `rlm partition accept-loss`",
            )
        if self.lost:
            yield self._finding(
                ProblemKind.SEGMENT_LOST,
                f"remote segments at {_some(self.lost)} were not found in their store, and the "
                "local log does not have them whole; restore their objects, or "
                "`rlm partition accept-loss`",
            )
        if self.without_snapshot:
            yield self._finding(
                ProblemKind.SNAPSHOT_MISSING,
                f"segments at {_some(self.without_snapshot)} are copied without their producer "
                "snapshots, which the broker does not have",
            )

    def _finding(self, kind: ProblemKind, text: str) -> Finding:
        subject = f"{self.topic}-{self.partition}"
        return Finding(kind=kind, subject=subject, topic=self.topic, text=text)


class CopyTask:
    """Copies the partitions that this node leads; `copied` counts copied segments."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        copier: Copier,
        ledger: Ledger,
        settings: Settings,
        clock: Clock,
        lost: LostSegments,
        holes: HoleRecords,
        offload: OffloadPolicy,
        snapshot_wait_ms: int,
        limit: CopyLimit,
        needs_flush: NeedsFlush,
        holds: SegmentHolds,
        good_runs: GoodRuns,
        copied: Copied = lambda _topic, _size_bytes: None,
    ) -> None:
        self._snapshots = snapshots
        self._copier = copier
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._lost = lost
        self._holes = holes
        self._offload = offload
        self._snapshot_waits = SnapshotWaits(snapshot_wait_ms)
        self._limit = limit
        self._needs_flush = needs_flush
        self._holds = holds
        self._good_runs = good_runs
        self._copied = copied
        self._progress = CopyProgress()
        self._statuses: dict[PartitionKey, CopyStatus] = {}
        self.copied_at_ms: int | None = None
        """When any segment was last copied, monotonic."""

    @property
    def statuses(self) -> Mapping[PartitionKey, CopyStatus]:
        return MappingProxyType(self._statuses)

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._statuses.pop(key, None)
        self._lost.forget(key)
        self._snapshot_waits.forget(key)
        self._holds.forget(key)
        self._good_runs.forget(GoodRun.COPY, key)

    async def run(
        self,
        led: LedPartition,
        request: CopyRequest | None = None,
        others_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        """One run: copy every eligible segment, oldest first; the first error ends it.

        With a request, thresholds do not count, and it counts what is done. While `others_wait`, a
        run with a backlog ends early (rlm.plans.copy_turns); `has_backlog` then says that there is
        more.
        """
        began_ms = self._clock.monotonic_ms()
        if not (self._ledger.is_ready and self._settings.is_ready):
            raise Unavailable(f"{led.topic_id_partition}: settings or ledger are not read yet")
        snapshot = await self._snapshots.take(led)
        start = await self._ensure_start(snapshot)
        await self._record_empty(snapshot, start)
        is_asked = request is not None
        plan = self._plan(snapshot, start, await self._lost.gone(snapshot), is_asked=is_asked)
        self._note(snapshot, plan)
        wanted = plan.segments if request is None else request.planned(plan)
        if wanted:
            await self._copier.check_target(led.topic_id_partition)

        async def copy(segment: LocalSegment, turn: Turn) -> None:
            await self._copy(snapshot, segment, turn)
            if request is not None:
                request.copied(segment)

        await run_in_order(
            wanted,
            self._limit,
            copy,
            lambda segment: segment.size_bytes,
            lambda: gives_way(
                pending_segments=self._pending(led.key),
                ran_ms=self._clock.monotonic_ms() - began_ms,
                others_wait=others_wait(),
            ),
        )
        self._good_runs.note(GoodRun.COPY, led.key)

    def has_backlog(self, key: PartitionKey) -> bool:
        """Whether the partition's copies come after those of others, by what is known of it."""
        return is_backlog(self._pending(key))

    def _pending(self, key: PartitionKey) -> int:
        status = self._statuses.get(key)
        return status.pending_segments if status else 0

    async def _copy(self, snapshot: PartitionSnapshot, segment: LocalSegment, turn: Turn) -> None:
        await self._fill_holes(snapshot, segment)
        try:
            finished = await self._copier.copy(self._holds.source(snapshot, segment), segment, turn)
        except DamagedSegment:
            if segment in self._holds.missing(snapshot):  # nothing can mend it
                self._holds.drop(snapshot.key, {segment.base_offset})
            raise
        topic, partition = snapshot.led.topic_id_partition.topic, snapshot.key.partition
        log.info(
            "segment_copied",
            topic=topic,
            partition=partition,
            start_offset=finished.start_offset,
            next_offset=finished.next_offset,
            size_bytes=finished.segment_size_bytes,
            segment_id=str(finished.segment_id.id),
        )
        if segment.closed is Closed.SNAPSHOT_MISSING:
            log.warning("copied_without_producer_snapshot", path=segment.snapshot_path)
        self._copied(topic, finished.segment_size_bytes)
        self._note_copied(snapshot, finished.next_offset, segment.size_bytes)
        self._log_progress(segment.size_bytes)

    def _log_progress(self, size_bytes: int) -> None:
        if not self._progress.is_due(self._clock.monotonic_ms(), size_bytes):
            return
        found = self.progress(self._statuses)
        if found.segments_left and found.bytes_per_second is not None:
            log.info("copy_progress", **asdict(found))

    def progress(self, partitions: Container[PartitionKey]) -> Progress:
        """What is left of these partitions by their last runs, and how long it takes."""
        known = [one for key, one in self._statuses.items() if key in partitions]
        return self._progress.of(
            self._clock.monotonic_ms(),
            sum(one.pending_segments for one in known),
            sum(one.pending_bytes for one in known),
        )

    def is_due(self, snapshot: PartitionSnapshot) -> bool:
        """Whether a run would have work, or soon may have, by a snapshot that another task took."""
        start = snapshot.remote_log_start_offset
        if start is None or not (self._ledger.is_ready and self._settings.is_ready):
            return True
        plan = self._plan(snapshot, start)
        self._note(snapshot, plan)
        is_due = bool(plan.segments) or plan.reason in _NOT_YET or self._lost.is_due(snapshot)
        if not is_due:
            self._good_runs.note(GoodRun.COPY, snapshot.key)
        return is_due

    def planned(self, snapshot: PartitionSnapshot) -> CopyPlan:
        """What a run would do now, by what is known of the stores; nothing is changed."""
        suspects = {one.segment_id.id for one in self._lost.suspects(snapshot)}
        gone = suspects | self._lost.damaged(snapshot).keys()
        return self._plan(snapshot, snapshot.remote_log_start_offset or 0, gone)

    def waits_for_broker(self, key: PartitionKey) -> bool:
        """Whether the last snapshot showed a closed segment that will be eligible soon."""
        status = self._statuses.get(key)
        return status is not None and status.reason in [why.value for why in _NOT_YET]

    async def _ensure_start(self, snapshot: PartitionSnapshot) -> int:
        """The durable remote log start; the broker's log start where none was ever written (H2).
        Unavailable: there may have been one.
        """
        if snapshot.remote_log_start_offset is not None:
            return snapshot.remote_log_start_offset
        start = snapshot.watermarks.log_start_offset
        if refuse_topic(snapshot.topic.state) is None:
            await publish_first(
                self._settings,
                snapshot.led.topic_id_partition,
                start,
                leader_epoch=snapshot.led.leader_epoch,
                ledger=snapshot.ledger,
                damage=(
                    self._ledger.damage_of(snapshot.key)
                    or self._settings.damage_of_start(snapshot.key)
                ),
            )
        return start

    async def _record_empty(self, snapshot: PartitionSnapshot, start: int) -> None:
        """Record segments that the log cleaner left empty: readers miss nothing there (H15)."""
        if snapshot.frozen is not None or refuse_topic(snapshot.topic.state) is not None:
            return
        known = self._settings.view.holes(snapshot.key)
        on_record = Cover.of(OffsetRange(start=one.start, next_offset=one.end) for one in known)
        new = [
            Hole(start=one.start, end=one.next_offset, cause=NO_RECORDS)
            for one in empty_ranges(snapshot.log, known)
            if one.next_offset > start and not on_record.holds(one.start, one.next_offset)
        ]
        if new:
            await self._holes.add(snapshot.key, new, snapshot.led.leader_epoch)

    async def _fill_holes(self, snapshot: PartitionSnapshot, segment: LocalSegment) -> None:
        """Remove an accepted loss where our log has the records after all (H15)."""
        if segment.next_offset is not None:
            start, epoch = segment.base_offset, snapshot.led.leader_epoch
            await self._holes.fill(snapshot.key, start, segment.next_offset, epoch)

    def _plan(
        self,
        snapshot: PartitionSnapshot,
        remote_log_start_offset: int,
        gone: Container[Uuid] = (),
        *,
        is_asked: bool = False,
    ) -> CopyPlan:
        """`gone`: segments whose objects are missing; they cover nothing (H11)."""
        view = self._view(snapshot, remote_log_start_offset, gone)
        if is_asked:
            view = replace(view, delay=None)
        return with_missing(plan_copy(view), view, self._holds.missing(snapshot))

    def uncopied(self, snapshot: PartitionSnapshot) -> tuple[LocalSegment, ...]:
        """What is to be copied below the last stable offset, however long it may wait. What was not
        found in its store counts as not copied: it may be the only copy (H11).
        """
        suspects = {one.segment_id.id for one in self._lost.suspects(snapshot)}
        view = replace(
            self._view(snapshot, snapshot.remote_log_start_offset or 0, suspects),
            recovery_point=None,
            without_snapshot=frozenset(one.base_offset for one in snapshot.log.segments),
            delay=None,
        )
        return with_missing(plan_copy(view), view, self._holds.missing(snapshot)).segments

    def _view(
        self, snapshot: PartitionSnapshot, remote_log_start_offset: int, gone: Container[Uuid] = ()
    ) -> CopyView:
        log_end_offset = snapshot.log_end_offset
        return CopyView(
            topic=snapshot.topic.state,
            segments=snapshot.log.segments,
            local_log_start_offset=snapshot.watermarks.log_start_offset,
            remote_log_start_offset=remote_log_start_offset,
            last_stable_offset=snapshot.watermarks.last_stable_offset,
            recovery_point=needed_recovery_point(
                self._needs_flush,
                replicas=len(snapshot.led.replicas),
                recovery_point=snapshot.log.recovery_point,
            ),
            covered=covered(snapshot.ledger, snapshot.lineage, log_end_offset, without=gone),
            frozen=snapshot.frozen,
            without_snapshot=self._snapshot_waits.over(snapshot, self._clock.monotonic_ms()),
            delay=self._delay(snapshot),
            now_ms=self._clock.now_ms(),
        )

    def _delay(self, snapshot: PartitionSnapshot) -> CopyDelay | None:
        topic = snapshot.topic
        if topic.record is None:
            return None
        return self._offload.copy_delay(topic.record, topic.broker_retention)

    def _note(self, snapshot: PartitionSnapshot, plan: CopyPlan) -> None:
        before = self._statuses.get(snapshot.key)
        now_ms = self._clock.monotonic_ms()
        self._statuses[snapshot.key] = CopyStatus(
            topic=snapshot.led.topic_id_partition.topic,
            partition=snapshot.led.topic_id_partition.partition,
            leader_epoch=snapshot.led.leader_epoch,
            reason=plan.summary.value,
            detail=plan.detail,
            frozen=snapshot.frozen.reason if snapshot.frozen else None,
            copied_next_offset=snapshot.ledger.highest_end(
                snapshot.lineage, snapshot.log_end_offset
            )
            or 0,
            log_start_offset=snapshot.watermarks.log_start_offset,
            last_stable_offset=snapshot.watermarks.last_stable_offset,
            high_watermark=snapshot.watermarks.high_watermark,
            pending_segments=len(plan.segments),
            pending_bytes=sum(segment.size_bytes for segment in plan.segments),
            lag_segments=plan.lag.segments,
            lag_bytes=plan.lag.size_bytes,
            lag_oldest_ms=plan.lag.oldest_ms,
            measured_at_ms=now_ms,
            behind_since_ms=_behind_since(snapshot, plan, before, now_ms),
            doubtful=self._doubtful(snapshot),
            lost=tuple(
                one.start_offset
                for one in self._lost.suspects(snapshot)
                if one.start_offset < snapshot.watermarks.log_start_offset
            ),
            without_snapshot=tuple(sorted(self._snapshot_waits.over(snapshot, now_ms))),
        )

    def _doubtful(self, snapshot: PartitionSnapshot) -> tuple[DoubtfulSegment, ...]:
        start = max(snapshot.watermarks.log_start_offset, snapshot.remote_log_start_offset or 0)
        holes = self._settings.view.holes(snapshot.key)
        gone = {one.segment_id.id for one in self._lost.suspects(snapshot)}
        return doubtful_segments(snapshot.log, start, holes, partial(snapshot.copied, gone))

    def change_slots(self, slots: int) -> None:
        """So many segments of all partitions are copied at a time from now on."""
        self._copier.change_slots(slots)

    def _note_copied(self, snapshot: PartitionSnapshot, next_offset: int, size_bytes: int) -> None:
        now_ms = self.copied_at_ms = self._clock.monotonic_ms()
        self._good_runs.note(GoodRun.COPY, snapshot.key)  # a backlog is one long run
        before = self._statuses.get(snapshot.key)
        if before is None:
            return
        is_last = before.lag_segments <= 1
        self._statuses[snapshot.key] = replace(
            before,
            reason=WhyNot.CAUGHT_UP.value if is_last else before.reason,
            copied_next_offset=max(before.copied_next_offset, next_offset),
            pending_segments=before.pending_segments - 1,
            pending_bytes=before.pending_bytes - size_bytes,
            lag_segments=before.lag_segments - 1,
            lag_bytes=before.lag_bytes - size_bytes,
            lag_oldest_ms=None if is_last else before.lag_oldest_ms,
            measured_at_ms=now_ms,
            behind_since_ms=None if is_last else now_ms,
        )


def _some(offsets: Sequence[int]) -> str:
    more = len(offsets) - 3
    return ", ".join(map(str, offsets[:3])) + (f" and {more} more" if more > 0 else "")


def _behind_since(
    snapshot: PartitionSnapshot, plan: CopyPlan, before: CopyStatus | None, now_ms: int
) -> int | None:
    """Restarts with each leader epoch: the previous leader may have copied until then. Segments
    that wait as their topic says are not behind.
    """
    is_meant = plan.reason is WhyNot.COPY_LAG and not plan.segments
    if is_meant or not plan.lag.segments:
        return None
    if before is None or before.leader_epoch != snapshot.led.leader_epoch:
        return now_ms
    return now_ms if before.behind_since_ms is None else before.behind_since_ms
