"""Verifies one partition that we lead: order of its offsets, gaps, and its objects in the stores.

`rlm/plans/verification.py` decides what is an issue. This task supplies a snapshot, and takes a
second one before it believes a finding. Objects are asked for by size, in batches, with the rules
of a trim (StoreEvidence): asked twice, in stores of the right identity. A deep run also reads every
byte (`deep_check.py`). A segment that left the ledger meanwhile, or ended below the remote log
start, is no finding.

Nothing is changed. What is lost or damaged is reported to LostSegments, so that alarms, trims and
copies treat it as what a reader did not get. What could not be checked is a result of its own
(H38).
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_protocol.apis.offsets import DEBUGGING_REPLICA_ID, LATEST_TIMESTAMP
from kip405.errors import Corrupt, Invalid, NotFound, RemoteStorageError
from kip405.ids import MAX_OFFSET, PartitionKey, TopicPartition, Uuid
from kip405.segment_check import Flaw, FlawKind, SegmentCheck
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock, backoff_ms
from rlm.plans.coverage import doubtful_segments
from rlm.plans.verification import (
    Issue,
    IssueKind,
    PartitionOffsets,
    PartitionView,
    confirmed,
    partition_issues,
    segment_issue,
    unlisted_issue,
)
from rlm.remote_log.ports import Broker, Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, SnapshotTaker
from rlm.tasks.deep_check import MANIFEST, DeepCheck
from rlm.tasks.evidence import StoreEvidence, store_of
from rlm.tasks.lost_segments import LostSegments
from rlm.tasks.unlisted_segments import UnlistedSegments
from rlmm.ledger import UsableSegment
from rsm_plugins.layout.keys import layout_of, segment_stem, suffix_in

_ASKED_AT_ONCE = 200
_CONFIRM_MS = 2_000
_TRIES = 3
_FAILURES_MAX = 3
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_UNREADABLE = frozenset(
    {FlawKind.MISSING, FlawKind.SIZE, FlawKind.CHECKSUM, FlawKind.INDEXES, FlawKind.BATCH}
)
"""Damage with which readers do not get the segment; other flaws are reported and no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Progress since the last step; bytes are negative before a segment is read again."""

    segments: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """The result of one partition, after its issues. `offsets` None = not known.

    `segments` were checked. `unchecked` says what was not, and why; empty = everything was.
    """

    partition: TopicPartition
    segments: int
    findings: int
    offsets: PartitionOffsets | None
    unchecked: tuple[str, ...]


Step = Issue | Checked | PartitionReport


@dataclass(slots=True, kw_only=True)
class _Run:
    """What one run has found so far."""

    led: LedPartition
    deep: bool
    segments: int = 0
    findings: int = 0
    unchecked: list[str] = field(default_factory=list)

    @property
    def key(self) -> PartitionKey:
        return self.led.key

    @property
    def partition(self) -> TopicPartition:
        return self.led.topic_partition

    def report(self, offsets: PartitionOffsets | None) -> PartitionReport:
        return PartitionReport(
            partition=self.partition,
            segments=self.segments,
            findings=self.findings,
            offsets=offsets,
            unchecked=tuple(self.unchecked),
        )


class PartitionVerifier:
    """Verifies partitions of one service, any number of them at once."""

    def __init__(
        self,
        *,
        snapshots: SnapshotTaker,
        broker: Broker,
        ledger: Ledger,
        settings: Settings,
        evidence: StoreEvidence,
        deep_check: DeepCheck,
        unlisted: UnlistedSegments,
        lost: LostSegments,
        clock: Clock,
        barrier_deadline_ms: int,
    ) -> None:
        self._snapshots = snapshots
        self._broker = broker
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._deep_check = deep_check
        self._unlisted = unlisted
        self._lost = lost
        self._clock = clock
        self._barrier_deadline_ms = barrier_deadline_ms

    async def run(self, led: LedPartition, *, deep: bool) -> AsyncGenerator[Step, None]:
        """Issues and progress, then one PartitionReport, which also has what could not be done."""
        run = _Run(led=led, deep=deep)
        offsets: PartitionOffsets | None = None
        try:
            before = await self._unlisted.listing(led.topic_id_partition)
            view, issues = await self._confirmed(run)
            offsets = view.offsets
            for issue in issues:
                run.findings += issue.is_finding
                yield issue
            for unlisted in await self._unlisted.confirmed(led.topic_id_partition, before):
                issue = unlisted_issue(run.partition, unlisted, offsets.remote_log_start_offset)
                run.findings += issue.is_finding
                yield issue
            run.unchecked += before.errors
            async for step in self._objects(run, view):
                yield step
        except RemoteStorageError as error:
            run.unchecked.append(str(error))
        yield run.report(offsets)

    # -- offsets

    async def _confirmed(self, run: _Run) -> tuple[PartitionView, Sequence[Issue]]:
        """A view, and the findings that an earlier one had too."""
        view = await self._view(run)
        issues = partition_issues(view)
        if any(issue.is_finding for issue in issues):
            await self._clock.sleep_ms(_CONFIRM_MS)
            view = await self._view(run)
            issues = confirmed(issues, partition_issues(view))
        return view, issues

    async def _view(self, run: _Run) -> PartitionView:
        """Last stable offset and log end are asked for again, after the ledger of the snapshot."""
        snapshot = await self._snapshots.take(run.led)
        run.unchecked[:] = self._doubts(snapshot)
        ledger, local_start = snapshot.ledger, snapshot.watermarks.log_start_offset
        stable = await self._offset(run.led, read_committed=True)
        end = await self._offset(run.led, replica_id=DEBUGGING_REPLICA_ID)
        start = snapshot.remote_log_start_offset
        usable = ledger.usable(snapshot.lineage, MAX_OFFSET, start or 0)
        if start is None:
            start = min([local_start, *(one.metadata.start_offset for one in usable)])
        holes = self._settings.view.holes(run.key)
        return PartitionView(
            partition=run.partition,
            offsets=PartitionOffsets(
                local_log_start_offset=local_start,
                last_stable_offset=stable,
                local_log_end_offset=end,
                remote_log_start_offset=start,
                remote_log_end_offset=max([start, *(one.next_offset for one in usable)]),
            ),
            usable=usable,
            entries=tuple(ledger.entries.values()),
            holes=holes,
            doubtful=doubtful_segments(snapshot.log, max(start, local_start), holes),
            frozen=snapshot.frozen.reason if snapshot.frozen else None,
            is_enabled=snapshot.topic.state.enabled,
        )

    def _doubts(self, snapshot: PartitionSnapshot) -> Iterator[str]:
        """Why the list of segments itself may be wrong (H6)."""
        for problem in (
            self._ledger.problem,
            self._settings.problem,
            snapshot.ledger.deletion_problem,
        ):
            if problem is not None:
                yield problem

    async def _offset(
        self, led: LedPartition, *, read_committed: bool = False, replica_id: int = -1
    ) -> int:
        partition = led.topic_id_partition
        answer = await self._broker.list_offset(
            partition.topic,
            partition.partition,
            LATEST_TIMESTAMP,
            leader_epoch=led.leader_epoch,
            read_committed=read_committed,
            replica_id=replica_id,
        )
        return answer.offset

    # -- objects

    async def _objects(self, run: _Run, view: PartitionView) -> AsyncGenerator[Step, None]:
        """A store that is away does not keep the segments of the others from being checked."""
        by_store: dict[Uuid, list[UsableSegment]] = {}
        for one in view.usable:
            try:
                by_store.setdefault(store_of(one.metadata), []).append(one)
            except Invalid as error:
                run.findings += 1
                yield segment_issue(run.partition, one, IssueKind.DAMAGED, "", str(error))
        for store_id, segments in by_store.items():
            before = run.segments
            try:
                async for step in self._in_store(run, segments):
                    yield step
            except RemoteStorageError as error:
                left = len(segments) - (run.segments - before)
                run.unchecked.append(f"{left} segments in store {store_id}: {error}")

    async def _in_store(
        self, run: _Run, segments: Sequence[UsableSegment]
    ) -> AsyncGenerator[Step, None]:
        """Segments of one store; an error ends its check."""
        for at in range(0, len(segments), _ASKED_AT_ONCE):
            batch = segments[at : at + _ASKED_AT_ONCE]
            missing = await self._evidence.missing([one.metadata for one in batch])
            whole = [one for one in batch if one.metadata.segment_id.id not in missing]
            for issue in await self._not_whole(run, batch, missing):
                yield issue
            if not run.deep:
                self._lost.found(run.key, (one.metadata.segment_id.id for one in whole))
                run.segments += len(batch)
                yield Checked(segments=len(batch))
                continue
            run.segments += len(missing)
            for one in whole:
                async for step in self._deep(run, one):
                    yield step
                run.segments += 1
                yield Checked(segments=1)

    async def _not_whole(
        self, run: _Run, batch: Sequence[UsableSegment], missing: Mapping[Uuid, str]
    ) -> Sequence[Issue]:
        """Segments of which an object is missing or has another size."""
        doubted = [one for one in batch if one.metadata.segment_id.id in missing]
        listed = await self._still_listed(run, doubted)
        if not listed:
            return ()
        ids = {one.metadata.segment_id.id for one in listed}
        unreadable = await self._evidence.missing(
            [one.metadata for one in listed], needs_manifest=False
        )
        self._lost.suspect(run.key, ids)
        for segment_id, text in unreadable.items():
            self._report(run, segment_id, NotFound(text))
        run.findings += len(listed)
        return [
            segment_issue(
                run.partition,
                one,
                IssueKind.OBJECTS,
                self._stem(one.metadata),
                missing[one.metadata.segment_id.id],
            )
            for one in listed
        ]

    async def _deep(self, run: _Run, segment: UsableSegment) -> AsyncGenerator[Step, None]:
        """Every byte of one segment, read again where the store fails to answer."""
        metadata = segment.metadata
        check, size_bytes = SegmentCheck(metadata), 0
        for attempt in range(_TRIES):
            try:
                async for read_bytes in self._deep_check.feed(check, metadata):
                    size_bytes += read_bytes
                    yield Checked(size_bytes=read_bytes)
                break
            except RemoteStorageError:
                if attempt == _TRIES - 1:
                    raise
                yield Checked(size_bytes=-size_bytes)
                check, size_bytes = SegmentCheck(metadata), 0
                await self._clock.sleep_ms(backoff_ms(attempt))
        if not check.flaws:
            self._lost.found(run.key, [metadata.segment_id.id], is_read=True)
        elif await self._still_listed(run, [segment]):
            for flaw in check.flaws:
                run.findings += 1
                yield self._flaw(run, segment, flaw)

    def _flaw(self, run: _Run, segment: UsableSegment, flaw: Flaw) -> Issue:
        metadata, text = segment.metadata, f"{flaw.kind.value}: {flaw.detail}"
        kind = IssueKind.MANIFEST if flaw.suffix == MANIFEST else IssueKind.DAMAGED
        if kind is IssueKind.DAMAGED and flaw.kind in _UNREADABLE:
            is_missing = flaw.kind is FlawKind.MISSING
            error = NotFound(text) if is_missing else Corrupt(text)
            self._report(run, metadata.segment_id.id, error)
        suffix = suffix_in(layout_of(self._evidence.locator(metadata)), flaw.suffix)
        name = f"{self._stem(metadata)}.{suffix}"
        return segment_issue(run.partition, segment, kind, name, text)

    def _report(self, run: _Run, segment_id: Uuid, error: NotFound | Corrupt) -> None:
        self._lost.report(run.key, segment_id, error, self._ledger.ledger(run.key).entries)

    async def _still_listed(
        self, run: _Run, segments: Sequence[UsableSegment]
    ) -> Sequence[UsableSegment]:
        """Those that the ledger has as finished, above the remote log start, behind a barrier."""
        if not segments:
            return ()
        await self._settings.barrier(self._barrier_deadline_ms)
        await self._ledger.barrier(run.key, self._barrier_deadline_ms)
        start = self._settings.view.remote_log_start(run.key) or 0
        entries = self._ledger.ledger(run.key).entries
        return [
            one
            for one in segments
            if one.next_offset > start
            and (entry := entries.get(one.metadata.segment_id.id)) is not None
            and (entry.state is _FINISHED or entry.disputed)
        ]

    def _stem(self, metadata: RemoteLogSegmentMetadata) -> str:
        return segment_stem(self._evidence.locator(metadata))
