"""Gives up the remote part of a frozen partition that an operator has discarded (H4, G4).

    delay over -> STARTED -> remote log start raised to where the log begins -> all segments
    (rlm/tasks/partition_end.py) -> FINISHED -> settings of the old offsets removed, remote log
    start -> tombstone -> decision removed

A step of the expiration task, of whoever leads the partition: only the leader's log shows whether
it is the one that the operator saw. Each step is taken by a new snapshot, and the decision and the
leadership are asked again before each group of segments, so an interruption anywhere is continued
by the next run, here or at the next leader. `rlm/plans/discard.py` decides what is due. While a
partition-delete record is there, no service trims, sweeps or copies the partition. No step is taken
while the time is not certain (H16).
"""

import asyncio
from dataclasses import replace
from functools import partial

import structlog

from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.plans.discard import (
    DiscardStep,
    has_foreign_trim,
    has_newer_copies,
    is_same_log,
    next_step,
    start_alone,
)
from rlm.plans.guards import DeletionGuards, refusal
from rlm.remote_log import ports
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.snapshots import PartitionSnapshot, Snapshots
from rlm.tasks.audit_log import Audit
from rlm.tasks.certain_time import CertainTime
from rlm.tasks.partition_end import EndPermit, PartitionEnd
from rlmm.settings_records import (
    CAUSE_COMMAND,
    STOPS_DELETE,
    DiscardRecord,
    DivergenceRecord,
    HolesRecord,
    StartRecord,
    TrimRecord,
)

log = structlog.get_logger()
CAUSE_DISCARDED = f"{CAUSE_COMMAND}: partition discard"
_MOST_STEPS = 3  # begin, delete, settle
_NOT_NOW = (None, DiscardStep.WAIT)


class DiscardTask:
    """Takes the steps that are due. `lock` is held while the deletion begins: whoever undoes the
    decision holds it too.
    """

    def __init__(
        self,
        *,
        snapshots: Snapshots,
        ledger: ports.Ledger,
        settings: ports.Settings,
        starts: LogStarts,
        partition_end: PartitionEnd,
        audit: Audit,
        clock: Clock,
        time: CertainTime,
        barrier_deadline_ms: int,
    ) -> None:
        self._snapshots = snapshots
        self._ledger = ledger
        self._settings = settings
        self._starts = starts
        self._partition_end = partition_end
        self._audit = audit
        self._clock = clock
        self._time = time
        self._barrier_deadline_ms = barrier_deadline_ms
        self._held: dict[PartitionKey, str] = {}
        self.lock = asyncio.Lock()
        self.unmark = partition_end.unmark

    async def run_on(self, snapshot: PartitionSnapshot) -> bool:
        """Take all steps that are due; whether there were any. `snapshot` is fresh.

        Fenced: stopped, led elsewhere, or undone meanwhile. Unavailable: a store, the broker or a
        topic of ours does not answer; the next run continues.
        """
        if not self._may_step(snapshot):
            return False
        for _ in range(_MOST_STEPS):
            fresh = await self._snapshots.take(snapshot.led)
            if not self._may_step(fresh):
                break
            await self._take(fresh)
        return True

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._held.pop(key, None)

    def _may_step(self, snapshot: PartitionSnapshot) -> bool:
        """Whether a step is due and nothing holds it; what does is logged once."""
        step = self._due(snapshot)
        held = None if step in _NOT_NOW else self._why_held(snapshot, step)
        if held is None:
            self._held.pop(snapshot.key, None)
            return step not in _NOT_NOW
        if self._held.get(snapshot.key) != held:
            self._held[snapshot.key] = held
            partition = snapshot.led.topic_id_partition
            log.warning("discard_held", partition=str(partition), why=held)
        return False

    def _due(self, snapshot: PartitionSnapshot) -> DiscardStep | None:
        view, key = self._settings.view, snapshot.key
        record = view.discard(key)
        if not snapshot.topic.state.enabled:
            return None
        if record is None:
            age_ms, same_log = 0, False
        else:
            same_log = is_same_log(record, snapshot.log.lineage, snapshot.log_end_offset)
            age_ms = view.certain_age_ms(
                record.key,
                monotonic_ms=self._clock.monotonic_ms(),
                now_ms=self._clock.now_ms(),
            )
        state = snapshot.ledger.deletion_state
        return next_step(record, state, same_log=same_log, age_ms=age_ms)

    def _why_held(self, snapshot: PartitionSnapshot, step: DiscardStep | None) -> str | None:
        if step is DiscardStep.REFUSE:
            return (
                "another log leads than the one that the decision is about: nothing is deleted; "
                "`rlm deletions undo` takes the decision back"
            )
        if step is DiscardStep.BEGIN and (why := self._why_not_begun(snapshot)) is not None:
            return why
        return self._refusal(snapshot.key)

    def _why_not_begun(self, snapshot: PartitionSnapshot) -> str | None:
        view, key = self._settings.view, snapshot.key
        if (record := view.discard(key)) is None:
            return None
        did = None
        if has_newer_copies(record, snapshot.ledger):
            did = "copied more"
        elif has_foreign_trim(record, view.trim(key), snapshot.log.lineage):
            did = "trimmed its log"
        if did is not None:
            return (
                f"another leader has {did} since: nothing is deleted; decide again after "
                "`rlm deletions undo`"
            )
        if not self._is_freeze_published(key):
            return "readers of the remote tier alone may not know yet that the partition is frozen"
        return None

    def _is_freeze_published(self, key: PartitionKey) -> bool:
        try:
            history = self._settings.view.history(key)
        except RemoteStorageError:  # this version cannot read it
            return False
        return history is not None and history.frozen is not None

    def _refusal(self, key: PartitionKey) -> str | None:
        """Why nothing may be deleted now. The partition is frozen, and has a partition-delete
        record: these are no reasons here.
        """
        guards = DeletionGuards(
            ready=self._ledger.is_ready and self._settings.is_ready,
            ledger_problem=self._ledger.problem
            or self._settings.problem
            or self._ledger.ledger(key).later_problem,
            freeze_record=self._settings.view.stopped_by(key.topic_id, STOPS_DELETE),
            frozen=None,
        )
        return refusal(guards) or self._time.why_not()

    async def _take(self, snapshot: PartitionSnapshot) -> None:
        """The step that is due by this snapshot."""
        step, record = self._due(snapshot), self._settings.view.discard(snapshot.key)
        partition = snapshot.led.topic_id_partition
        if record is None:
            return
        permit = EndPermit(
            refusal=partial(self._refusal, snapshot.key),
            check_right=partial(self._check_decision, snapshot, record),
            cause=CAUSE_DISCARDED,
            leader_epoch=snapshot.led.leader_epoch,
        )
        if step is DiscardStep.BEGIN:
            async with self.lock:
                await self._partition_end.mark(partition)
                await self._partition_end.begin(partition, permit)
        elif step is DiscardStep.DELETE:
            await self._raise_start(snapshot, permit)
            deleted = await self._partition_end.delete(partition, permit)
            log.warning("remote_part_deleted", partition=str(partition), segments=deleted)
        elif step is DiscardStep.SETTLE:
            await self._settle(snapshot, record, permit)

    async def _check_decision(self, snapshot: PartitionSnapshot, record: DiscardRecord) -> None:
        """Fenced unless the decision counts, and the leader is the one whose log was seen. A log
        changes its course under another leader epoch only.
        """
        await self._snapshots.check_leadership(snapshot.led)
        await self._settings.barrier(self._barrier_deadline_ms)
        if self._settings.view.discard(snapshot.key) != record:
            raise Fenced(f"{snapshot.led.topic_id_partition}: the decision was taken back")

    async def _raise_start(self, snapshot: PartitionSnapshot, permit: EndPermit) -> None:
        """Where the log begins above it, before anything is deleted (G4)."""
        known = snapshot.remote_log_start_offset
        if known is not None and (start := self._start_alone(snapshot, known)) > known:
            await self._starts.raise_to(
                snapshot.led.topic_id_partition,
                start,
                leader_epoch=snapshot.led.leader_epoch,
                cause=CAUSE_DISCARDED,
                check=permit.check,
            )

    def _start_alone(self, snapshot: PartitionSnapshot, known: int) -> int:
        return start_alone(
            snapshot.log.lineage,
            log_start_offset=snapshot.watermarks.log_start_offset,
            remote_log_start_offset=known,
            decided_epoch=self._settings.view.remote_log_start_epoch(snapshot.key),
        )

    async def _settle(
        self, snapshot: PartitionSnapshot, record: DiscardRecord, permit: EndPermit
    ) -> None:
        """Nothing remote is left. The decision goes last: until then the partition is frozen, and
        an interrupted run is repeated.
        """
        led, key, epoch = snapshot.led, snapshot.key, snapshot.led.leader_epoch
        known = snapshot.remote_log_start_offset
        start = self._settled_start(snapshot, record)
        await permit.check()
        await self._audit.partition_discarded(
            led.topic_id_partition, by=record.by, before=known, remote_log_start_offset=start
        )
        divergence = DivergenceRecord(
            partition=key,
            action="discard",
            epoch=epoch,
            offset=snapshot.log_end_offset,
            cause=f"given up by {record.by}; {record.why}",
        )
        await self._settings.publish(divergence, epoch)
        for kind in (TrimRecord.KIND, HolesRecord.KIND):
            await self._remove(f"{kind}/{key}", epoch)
        await self._move_start(record, start, epoch)
        await self.unmark(key)
        await self._remove(record.key, epoch)
        log.warning(
            "partition_discarded",
            partition=str(led.topic_id_partition),
            by=record.by,
            remote_log_start_offset=start,
        )

    def _settled_start(self, snapshot: PartitionSnapshot, record: DiscardRecord) -> int:
        """By the start on record, and by the former one where an interrupted run removed it."""
        start, known = snapshot.watermarks.log_start_offset, snapshot.remote_log_start_offset
        if known is not None:
            start = self._start_alone(snapshot, known)
        if record.former_start is None or record.former_start_epoch is None:
            return start
        former = start_alone(
            snapshot.log.lineage,
            log_start_offset=start,
            remote_log_start_offset=record.former_start,
            decided_epoch=record.former_start_epoch,
        )
        return max(start, former)

    async def _move_start(self, record: DiscardRecord, start: int, epoch: int) -> None:
        """A start never comes down (H2). That of a log whose offsets are used again is another
        one, so the old one is removed first; until the new one is written the decision has it.
        """
        view, key = self._settings.view, record.partition
        now = view.remote_log_start(key)
        if now is not None and now > start:
            if record.former_start is None or record.former_start < now:
                decided = view.remote_log_start_epoch(key)
                former = replace(record, former_start=now, former_start_epoch=decided, delay_ms=0)
                await self._settings.publish(former, epoch)  # its delay is over, and stays so
            await self._remove(f"{StartRecord.KIND}/{key}", epoch)
        if now != start:
            written = StartRecord(
                partition=key,
                remote_log_start_offset=start,
                cause=CAUSE_DISCARDED,
                decided_epoch=epoch,
            )
            await self._settings.publish(written, epoch)

    async def _remove(self, name: str, epoch: int) -> None:
        if self._settings.view.get(name) is not None:
            await self._settings.tombstone(name, epoch)
