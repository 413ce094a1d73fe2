"""Bugs that the simulator must see, as changes of the running product (H34).

Each takes one rule away, and every guard behind it where there are several: a bug that another
guard still catches would show nothing about the simulator. `broken` is part of the message of the
invariant that must break.
"""

from dataclasses import replace
from typing import Any

from kip405.segments import RemoteLogSegmentState
from rlm.plans import coverage, sweep, unreferenced
from rlm.plans.expiry import ExpiryPlan
from rlm.remote_log.client_deletions import ClientDeletions
from rlm.remote_log.leader_view import LocalTier
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.tasks import certain_time, cleanup
from rlm.tasks.cleanup import CleanupTask
from rlm.tasks.copy import CopyTask
from rlm.tasks.copy_attempt import Copier
from rlm.tasks.expiry import ExpiryTask
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.tasks.trim import TrimTask
from rlmm.publisher import OutcomeUnknown
from rlmm.replay import LedgerState
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import Stamp, StartRecord
from rlmm.settings_view import SettingsView
from tests.builders.audit import MemoryAudit, nothing_to_check
from tests.simulation.frozen import frozen
from tests.simulation.planted_ends import ENDS
from tests.simulation.planting import Patch, Planted, nothing
from tests.simulation.replaced import replaced

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def _end_of(
    snapshot: PartitionSnapshot, start: int, states: set[RemoteLogSegmentState], without: Any
) -> int:
    """Contiguous end of all segments in these states, whatever their lineage."""
    return coverage.Cover.of(
        coverage.OffsetRange(start=one.metadata.start_offset, next_offset=one.metadata.next_offset)
        for one in snapshot.ledger.entries.values()
        if one.state in states and one.metadata.segment_id.id not in without
    ).end_from(start)


def _trim_before_finished() -> list[Patch]:
    def contiguous_end(self: Any, snapshot: Any, start: int, *, without: Any = ()) -> int:
        return _end_of(snapshot, start, {_STARTED, _FINISHED}, without)

    return [(TrimTask, "_contiguous_end", contiguous_end)]


def _no_lineage() -> list[Patch]:
    def contiguous_end(self: Any, snapshot: Any, start: int, *, without: Any = ()) -> int:
        return _end_of(snapshot, start, {_FINISHED}, without)

    return [(TrimTask, "_contiguous_end", contiguous_end), (TrimTask, "_prove_bytes", nothing)]


def _sweep_without_adoption() -> list[Patch]:
    def decide(entry: sweep.SweepEntry, *_: Any, **__: Any) -> sweep.Decision:
        return sweep.Delete(reason="planted")

    async def has_returned(self: Any, metadata: Any) -> bool:
        return False

    return [
        (cleanup, "decide", decide),
        (CleanupTask, "_check_reason_stands", nothing),
        (SegmentDeleter, "_has_returned", has_returned),
    ]


def _unstable_replay() -> list[Patch]:
    """Illegal records are ignored, as one would do it without compaction (H3)."""
    take = LedgerState._take

    def lawful_only(self: Any, partition: Any, segment: Any, record: Any) -> None:
        before = partition.known(segment)
        take(self, partition, segment, record)
        taken = partition.known(segment)
        if taken is not None and taken.why:
            partition.segments.remove(segment)
            partition.forget(segment)
            if before is not None:
                partition.take(segment, before)

    return [(LedgerState, "_take", lawful_only)]


def _start_in_memory() -> list[Patch]:
    """The start is known to the process that decided it, and to nobody else (H2)."""

    async def ensure_start(self: Any, snapshot: PartitionSnapshot) -> int:
        view = self._settings.view
        known: int | None = view.remote_log_start(snapshot.key)
        if known is not None:
            return known
        start = snapshot.watermarks.log_start_offset
        epoch = snapshot.led.leader_epoch
        record = StartRecord(
            partition=snapshot.key,
            remote_log_start_offset=start,
            cause="enable",
            decided_epoch=epoch,
        )
        stamp = Stamp(
            node_id=0, leader_epoch=epoch, writer=self._copier._settings.writer, time_ms=0
        )
        key, value = encode_settings_record(record, stamp)
        view.apply(key=key, value=value, offset=view.next_offset - 1)
        return start

    return [(CopyTask, "_ensure_start", ensure_start)]


def _trim_as_deletion() -> list[Patch]:
    """The broker's log start, where our own trim put it, is taken for a user's deletion (H1)."""
    run_on = CleanupTask.run_on

    async def adopting(self: Any, snapshot: PartitionSnapshot, live_before: Any) -> None:
        start = snapshot.watermarks.log_start_offset
        if (snapshot.remote_log_start_offset or 0) < start:
            starts = LogStarts(
                settings=self._settings, audit=MemoryAudit(), barrier_deadline_ms=5_000
            )
            await starts.raise_to(
                snapshot.led.topic_id_partition,
                start,
                leader_epoch=snapshot.led.leader_epoch,
                cause="delete-records",
                check=nothing_to_check,
            )
        await run_on(self, snapshot, live_before)

    return [(CleanupTask, "run_on", adopting)]


def _stale_out_of_range() -> list[Patch]:
    """The tier answers from the view that it has, without a barrier (H17)."""

    async def barrier(self: LocalTier, topic: Any, partition: int, deadline_ms: int) -> Any:
        return self.partition(topic, partition)

    return [(LocalTier, "barrier", barrier), (LocalTier, "ready", lambda self: True)]


def _unknown_is_failure() -> list[Patch]:
    """An attempt whose publish has no answer removes its objects (H10)."""
    attempt = Copier._attempt

    async def cleaning(self: Any, snapshot: Any, segment: Any, segment_id: Any, *rest: Any) -> Any:
        try:
            return await attempt(self, snapshot, segment, segment_id, *rest)
        except OutcomeUnknown:
            entry = self._ledger.ledger(snapshot.key).entries.get(segment_id)
            if entry is not None:
                store = self._stores.manager(entry.metadata.custom().store_id)
                await store.delete_log_segment_data(
                    entry.metadata.locator(self._settings.cluster_id)
                )
            raise

    return [(Copier, "_attempt", cleaning)]


def _finished_unchecked() -> list[Patch]:
    """Nothing is checked between the upload and FINISHED (H3, H13)."""
    return [(Copier, "_check_unchanged", nothing)]


def _tombstone_first() -> list[Patch]:
    """The ledger forgets a segment before its objects are deleted (G4)."""

    async def delete_group(self: Any, group: Any, permit: Any, progress: Any) -> None:
        group = await self._check(group, permit, progress)
        for one in group:
            await self._begin(one, permit)
            await self._end(one, permit)
            await self._evidence.delete([one])
            progress.result.deleted.append(one)

    return [(SegmentDeleter, "_delete_group", delete_group)]


def _no_presence() -> list[Patch]:
    """A trim believes FINISHED and asks no store (H11)."""
    return [(TrimTask, "_see_copies", nothing)]


def _expiry_by_the_broker() -> list[Patch]:
    """The remote log start follows the broker's, as if only retention moved that (H1)."""
    plan = ExpiryTask.plan

    def following(self: Any, snapshot: PartitionSnapshot) -> ExpiryPlan:
        found = plan(self, snapshot)
        start = max(found.new_start, snapshot.watermarks.log_start_offset)
        return replace(found, new_start=start) if found.remote_log_start_offset >= 0 else found

    return [(ExpiryTask, "plan", following)]


def _delete_first() -> list[Patch]:
    """Expired segments are deleted before the remote log start is read back (H2, G4)."""
    raise_remote_start, delete = ExpiryTask._raise_start, ExpiryTask._delete

    async def delete_then_raise(self: Any, snapshot: PartitionSnapshot, plan: ExpiryPlan) -> None:
        await delete(self, snapshot, plan)
        if plan.raises:
            await raise_remote_start(self, snapshot, plan)

    return [
        (ExpiryTask, "_raise_start", nothing),
        (ExpiryTask, "_delete", delete_then_raise),
        (ExpiryTask, "_check_ended", nothing),
    ]


def _own_clock() -> list[Patch]:
    """A service's own clock alone says how old records are (H16)."""
    return [(certain_time, "retention_now", lambda clocks: clocks.own_ms)]


def _answered_early() -> list[Patch]:
    """A client's DeleteRecords is answered before the remote log start has followed (H26)."""

    async def raise_later(self: Any, view: Any, offset: int) -> int:
        self._tasks.create_task(self._outcome(view, offset))
        return offset

    return [(ClientDeletions, "raise_start", raise_later)]


def _uncovered_goes() -> list[Patch]:
    """A segment of a dead history is deleted whether or not others have its offsets (H8)."""
    return [(unreferenced, "_is_covered", lambda *_: True)]


def _freeze_ignored() -> list[Patch]:
    """Nobody asks the settings whether deletions are frozen (G1)."""
    return [(SettingsView, "stopped_by", lambda *_: None)]


PLANTED: tuple[Planted, ...] = (
    Planted(
        name="trim before FINISHED read back",
        broken=("early trim",),
        patches=_trim_before_finished,
    ),
    Planted(name="no lineage in trim bound", broken=("early trim",), patches=_no_lineage),
    Planted(
        name="sweep without adoption",
        broken=("early deletion",),
        patches=_sweep_without_adoption,
    ),
    Planted(
        name="replay not compaction-stable",
        broken=("replaying the ledger",),
        patches=_unstable_replay,
    ),
    Planted(
        name="remote start not durable",
        broken=("fetch at", "not quiet", "remote log start", "early deletion"),
        patches=_start_in_memory,
    ),
    Planted(
        name="own trim seen as user delete",
        broken=("remote log start",),
        patches=_trim_as_deletion,
    ),
    Planted(name="stale ledger OOR", broken=("fetch at",), patches=_stale_out_of_range),
    Planted(
        name="unknown outcome as failure",
        broken=("early deletion", "offset", "early trim"),
        patches=_unknown_is_failure,
    ),
    Planted(
        name="FINISHED after epoch change",
        broken=("unchecked FINISHED",),
        patches=_finished_unchecked,
    ),
    Planted(name="tombstone before delete", broken=("object",), patches=_tombstone_first),
    Planted(name="trim without asking the store", broken=("early trim",), patches=_no_presence),
    Planted(
        name="expiry by the broker's log start",
        broken=("early expiry",),
        patches=_expiry_by_the_broker,
    ),
    Planted(
        name="delete before start read back",
        broken=("early deletion",),
        patches=_delete_first,
    ),
    Planted(name="clock a year ahead", broken=("early expiry",), patches=_own_clock),
    Planted(
        name="DeleteRecords answered before the start moved",
        broken=("answered at",),
        patches=_answered_early,
    ),
    Planted(
        name="a freeze is not heeded",
        broken=("frozen for",),
        patches=_freeze_ignored,
        among=(frozen,),
    ),
    Planted(
        name="an unreferenced segment is deleted without cover",
        broken=("nothing has replaced",),
        patches=_uncovered_goes,
        among=(replaced,),
    ),
    *ENDS,
)
