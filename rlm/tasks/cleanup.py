"""The cleanup task: repairs the ledger, republishes overruled settings, and sweeps leftovers.

Sweeping adopts or deletes by evidence (plans/sweep). A deletion follows the order of G4
(tasks/segment_deletion); the reason for it is checked again between DELETE_SEGMENT_STARTED and the
objects. After an interruption at any point, the next run continues from there. Attempts of
other services are left alone while the time is not certain, and nothing is deleted while clocks
disagree (H16); our own attempts are adopted nevertheless.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import structlog

from kip405.contracts import Presence
from kip405.errors import Fenced, Invalid, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.lineage import usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.plans.call_sizes import MOST_SEGMENTS
from rlm.plans.coverage import accepted, has_ended, is_superseded, overlapping
from rlm.plans.expiry import Held
from rlm.plans.guards import refusal
from rlm.plans.sweep import (
    SUPERSEDED,
    Adopt,
    Alarm,
    Decision,
    Delete,
    Evidence,
    SweepEntry,
    Sweeper,
    decide,
    leftovers,
)
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots, deletion_guards
from rlm.tasks.audit_log import Audit
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.copy_attempt import LiveAttempts
from rlm.tasks.evidence import StoreEvidence, store_of
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.segment_deletion import DeletionPermit, Deletions, SegmentDeleter
from rlmm.ledger import SegmentEntry
from rlmm.settings_records import STOPS_SWEEP

log = structlog.get_logger()
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSettings:
    """`grace_ms`: sweep.grace.ms, above the copy deadline (H12)."""

    node_id: int
    writer: Uuid
    grace_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupStatus:
    """Result of the last run; `refused`: why nothing (more) was swept, `alarms` need operators."""

    refused: str | None
    leftovers: int
    adopted: int = 0
    deleted: int = 0
    repaired: int = 0
    alarms: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sweep:
    """What one run has done so far. `away`: the errors of stores that cannot be asked; `refused`:
    of those that did not delete. `stopped`: why the rest is not swept.
    """

    count: int = 0
    adopted: int = 0
    deleted: int = 0
    stopped: str | None = None
    alarms: list[str] = field(default_factory=list)
    away: dict[Uuid, RemoteStorageError] = field(default_factory=dict)
    refused: list[RemoteStorageError] = field(default_factory=list)


class CleanupTask:
    """Cleans the partitions its service leads; a job of the cleanup pool calls `run`."""

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        ledger: Ledger,
        settings: Settings,
        evidence: StoreEvidence,
        deleter: SegmentDeleter,
        lost: LostSegments,
        holes: HoleRecords,
        live: LiveAttempts,
        audit: Audit,
        time: CertainTime,
        config: CleanupSettings,
    ) -> None:
        self._snapshots = snapshots
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._deleter = deleter
        self._lost = lost
        self._holes = holes
        self._live = live
        self._audit = audit
        self._time = time
        self._config = config
        self._statuses: dict[PartitionKey, CleanupStatus] = {}

    @property
    def statuses(self) -> Mapping[PartitionKey, CleanupStatus]:
        return MappingProxyType(self._statuses)

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._statuses.pop(key, None)

    async def run(self, led: LedPartition) -> None:
        """One run: repair the records first, then sweep what is left."""
        live_before = self.live_attempts()
        await self.run_on(await self._snapshots.take(led), live_before)

    def live_attempts(self) -> frozenset[Uuid]:
        """The copy attempts that are running; must be read before the snapshot of a run (H6)."""
        return frozenset(self._live)

    async def run_on(self, snapshot: PartitionSnapshot, live_before: frozenset[Uuid]) -> None:
        """The same with a snapshot that is fresh and the attempts that were live before it."""
        led = snapshot.led
        await self._settings.reassert(snapshot.key, led.leader_epoch)
        repaired = await self._ledger.repair(snapshot.key, led.leader_epoch)
        refused = self._refusal(snapshot)
        entries = [] if refused else self._leftovers(snapshot.key, live_before)
        self._statuses[snapshot.key] = CleanupStatus(
            refused=refused, leftovers=len(entries), repaired=repaired
        )
        if entries:
            await self._sweep(snapshot, entries, repaired)
        if refused is None and self._time.disagreement() is None:
            await self._retire_lost(snapshot)

    def _refusal(self, snapshot: PartitionSnapshot) -> str | None:
        return refusal(deletion_guards(snapshot, self._ledger, self._settings, STOPS_SWEEP))

    def _leftovers(self, key: PartitionKey, live_before: Iterable[Uuid]) -> list[SweepEntry]:
        """A view does not decide about an attempt that was live before or after it was taken."""
        entries = (_sweep_entry(one) for one in self._ledger.ledger(key).entries.values())
        sweeper = Sweeper(
            node_id=self._config.node_id,
            writer=self._config.writer,
            live={*live_before, *self._live},
            grace_ms=self._config.grace_ms,
        )
        now_ms = self._time.now_ms()
        return list(leftovers(entries, sweeper, None if isinstance(now_ms, Held) else now_ms))

    async def _sweep(
        self, snapshot: PartitionSnapshot, entries: Sequence[SweepEntry], repaired: int
    ) -> None:
        """Decide and act. Segments in a store that is away, or is another one, wait; the error is
        raised.

        A store that refuses to delete is handled alike: the other segments are still swept (G6).
        """
        done = _Sweep()
        for first in range(0, len(entries), MOST_SEGMENTS):
            if done.stopped is None:
                await self._sweep_part(snapshot, entries[first : first + MOST_SEGMENTS], done)
        self._statuses[snapshot.key] = CleanupStatus(
            refused=done.stopped,
            leftovers=done.count,
            adopted=done.adopted,
            deleted=done.deleted,
            repaired=repaired,
            alarms=tuple(done.alarms),
        )
        for error in (*done.away.values(), *done.refused):
            raise error

    async def _sweep_part(
        self, snapshot: PartitionSnapshot, entries: Sequence[SweepEntry], done: _Sweep
    ) -> None:
        """What is to be deleted for the same reason is deleted together."""
        deletions: dict[Delete, list[RemoteLogSegmentMetadata]] = {}
        for entry in entries:
            done.stopped = self._refusal(snapshot)  # a freeze counts during a run, too (G1)
            if done.stopped is not None:
                return
            done.count += 1
            match await self._decide(snapshot, entry, done.away):
                case Adopt(finished=finished):
                    await self._adopt(snapshot, entry, finished)
                    done.adopted += 1
                case Delete() as deletion:
                    deletions.setdefault(deletion, []).append(entry.metadata)
                case Alarm(reason=reason):
                    done.alarms.append(f"{entry.metadata.segment_id}: {reason}")
        if deletions:
            done.stopped = self._why_not_deleted(snapshot)
        if done.stopped is not None:
            return
        for deletion, segments in deletions.items():
            result = await self._delete(snapshot, segments, deletion)
            done.deleted += len(result.deleted)
            done.refused += result.store_errors

    async def _decide(
        self, snapshot: PartitionSnapshot, entry: SweepEntry, away: dict[Uuid, RemoteStorageError]
    ) -> Decision | None:
        """What the segment's own store requires; None while that store cannot be asked."""
        try:
            store_id = store_of(entry.metadata)
        except Invalid as error:
            return Alarm(reason=str(error))
        if store_id in away:
            return None
        try:
            evidence = await self._examine(snapshot, entry.metadata)
        except RemoteStorageError as error:
            away[store_id] = error
            return None
        return decide(entry, evidence, has_ended=self._has_ended(snapshot, entry.metadata))

    def _has_ended(self, snapshot: PartitionSnapshot, metadata: RemoteLogSegmentMetadata) -> bool:
        start = snapshot.remote_log_start_offset or 0
        epoch = self._settings.view.remote_log_start_epoch(snapshot.key)
        return has_ended(metadata, start, epoch)

    async def _examine(
        self, snapshot: PartitionSnapshot, metadata: RemoteLogSegmentMetadata
    ) -> Evidence:
        """What the segment's own store has; Invalid where it is not the expected store (H11)."""
        await self._evidence.check_identity([metadata])
        found = await self._evidence.manifest(metadata)
        presence = Presence.MISSING
        if found.metadata is not None and found.metadata.custom_metadata is not None:
            presence = await self._evidence.presence(found.metadata)
        broken = found.metadata is not None and presence is not Presence.COMPLETE
        return Evidence(
            presence=presence,
            manifest=found.metadata,
            unreadable=found.unreadable,
            superseded=broken and await self._is_superseded(snapshot, found.metadata or metadata),
        )

    async def _retire_lost(self, snapshot: PartitionSnapshot) -> None:
        """Remove lost segments from the ledger if other copies have their records or none is
        missed.

        In the order of every deletion, so that any remaining objects are deleted too.
        """
        for metadata in self._lost.suspects(snapshot):
            entry = snapshot.ledger.entries[metadata.segment_id.id]
            if entry.state is not _FINISHED or not await self._is_superseded(snapshot, metadata):
                continue
            deletion = Delete(reason=SUPERSEDED, despite_manifest=True)
            result = await self._delete(snapshot, [entry.metadata], deletion)
            for error in result.store_errors:
                raise error
            status = self._statuses.get(snapshot.key)
            if status is not None:  # it is led here
                self._statuses[snapshot.key] = replace(status, deleted=status.deleted + 1)

    async def _is_superseded(
        self, snapshot: PartitionSnapshot, metadata: RemoteLogSegmentMetadata
    ) -> bool:
        """Whether its objects are missing now, and other copies seen now have its records.

        An accepted loss does not replace a copy that only lacks its manifest: readers can still
        read its records. A loss that nobody accepted replaces none: its objects may come back.
        """
        usable = snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset)
        others = overlapping(metadata, usable)
        found = await self._lost.ask(snapshot, (metadata, *(one.metadata for one in others)))
        if metadata.segment_id.id not in found.gone:
            return False
        is_readable = await self._evidence.is_readable(metadata)
        return is_superseded(
            metadata,
            others,
            lineage=snapshot.lineage,
            remote_log_start_offset=snapshot.remote_log_start_offset or 0,
            holes=() if is_readable else accepted(self._settings.view.holes(snapshot.key)),
            seen=found.whole,
        )

    async def _adopt(
        self, snapshot: PartitionSnapshot, entry: SweepEntry, finished: RemoteLogSegmentMetadata
    ) -> None:
        """What was accepted as lost is there after all, so the copy must not count as replaced."""
        led, start = snapshot.led, finished.start_offset
        end = usable_end(finished, snapshot.lineage)
        await self._holes.fill(led.key, start, end, led.leader_epoch)
        await self._snapshots.check_leadership(led)
        await self._ledger.publish(finished, led.leader_epoch, int(entry.metadata.state))
        log.warning("segment_adopted", **_fields_of(finished), start_offset=start)

    async def _delete(
        self,
        snapshot: PartitionSnapshot,
        segments: Sequence[RemoteLogSegmentMetadata],
        deletion: Delete,
    ) -> Deletions:
        """Whatever its stores did not delete the next run continues with."""
        permit = DeletionPermit(
            leader_epoch=snapshot.led.leader_epoch,
            refusal=partial(self._refusal_text, snapshot),
            check_right=partial(self._snapshots.check_leadership, snapshot.led),
            check_reason=partial(self._check_reason_stands, snapshot, deletion),
            may_be_written=lambda _: True,
            record=partial(self._audit.segments_deleted, cause=deletion.reason),
        )
        result = await self._deleter.delete(segments, permit)
        for one in result.deleted:
            log.info("segment_swept", **_fields_of(one), reason=deletion.reason)
        if result.stopped is not None:
            raise result.stopped
        return result

    def _refusal_text(self, snapshot: PartitionSnapshot) -> str | None:
        stopped = self._why_not_deleted(snapshot)
        return None if stopped is None else f"{snapshot.led.topic_id_partition}: {stopped}"

    def _why_not_deleted(self, snapshot: PartitionSnapshot) -> str | None:
        return self._refusal(snapshot) or self._time.disagreement()

    async def _check_reason_stands(
        self, snapshot: PartitionSnapshot, deletion: Delete, metadata: RemoteLogSegmentMetadata
    ) -> None:
        """Fenced where the object to be deleted became valid meanwhile: the next run adopts it.
        What has ended stays ended, because a remote log start never moves back.
        """
        if not deletion.despite_manifest:
            await self._check_still_without_manifest(metadata)
        elif deletion.reason == SUPERSEDED:
            # The record of an attempt has no sizes of indexes, without which nothing is whole.
            found = await self._evidence.manifest(metadata)
            if not await self._is_superseded(snapshot, found.metadata or metadata):
                raise Fenced(f"{metadata.segment_id} is not superseded any more")

    async def _check_still_without_manifest(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Fenced where the attempt has its manifest after all (H6)."""
        found = await self._evidence.manifest(metadata)
        if found.metadata is not None or found.unreadable:
            raise Fenced(f"{metadata.segment_id} has a manifest now")


def _sweep_entry(entry: SegmentEntry) -> SweepEntry:
    return SweepEntry(
        metadata=entry.metadata,
        writer=entry.writer,
        timestamp_ms=entry.timestamp_ms,
        disputed=bool(entry.disputed),
    )


def _fields_of(metadata: RemoteLogSegmentMetadata) -> dict[str, object]:
    partition = metadata.topic_id_partition.topic_partition
    return {**partition._asdict(), "segment_id": str(metadata.segment_id.id)}
