"""Records what the broker deleted before it was copied as holes, on positive evidence (H15).

Each snapshot has the broker's log start and, behind a barrier, the ledger. What it shows missing is
recorded where this leader saw it uncopied in its own log before, also while the store is away; and
only by a snapshot of its own, since what was held open may have been copied and let go after an
older one. After a restart or a change of leadership nobody has seen it: then all stores are listed,
and a snapshot that was taken after that must show the same. What is not proven is a problem and
stays one.

A copy of lost records that is there after all, as one that was adopted again, ends their hole: as
long as it is on record, the copy would count as replaced and be deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from kip405.ids import PartitionKey
from rlm.broker.leadership import LedPartition
from rlm.clock import Clock
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.coverage import Ranges, missed
from rlm.plans.giveback import may_have_ended
from rlm.plans.holes import (
    BY_ANYBODY,
    BY_RETENTION,
    GIVEN_BACK,
    GapView,
    cannot_be_stored,
    copies_of_lost,
    gaps,
    in_both,
    may_turn_out_missing,
    uncopied,
)
from rlm.plans.problem_rules import partition_finding
from rlm.plans.problems import Finding, ProblemKind
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, SnapshotTaker, gap_view
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.unlisted_segments import UnlistedSegments
from rlmm.ledger import Hole
from rlmm.settings_records import TrimRecord

log = structlog.get_logger()
_LIST_AGAIN_MS = 600_000
_MOST_NAMED = 3


@dataclass(slots=True)
class _Seen:
    """What snapshots of one leader epoch have shown: ranges of our own log that were not copied.

    `unproven` are gaps that nothing proves to be holes, `why` the reason; the stores are listed
    again at `list_at_ms` (monotonic).
    """

    leader_epoch: int
    ranges: Ranges = ()
    unproven: Ranges = ()
    why: str = ""
    list_at_ms: int = 0


Held = Callable[[PartitionSnapshot], Sequence[LocalSegment]]
"""Segments that the broker has deleted and the service has open (rlm.tasks.segment_holds)."""


class HoleWatch:
    """A step of the expiration task."""

    def __init__(
        self,
        *,
        snapshots: SnapshotTaker,
        ledger: Ledger,
        settings: Settings,
        holes: HoleRecords,
        lost: LostSegments,
        held: Held,
        unlisted: UnlistedSegments,
        clock: Clock,
    ) -> None:
        self._snapshots = snapshots
        self._ledger = ledger
        self._settings = settings
        self._holes = holes
        self._lost = lost
        self._held = held
        self._unlisted = unlisted
        self._clock = clock
        self._seen: dict[PartitionKey, _Seen] = {}

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer led here."""
        self._seen.pop(key, None)

    async def run_on(self, snapshot: PartitionSnapshot) -> bool:
        """Record the holes that a snapshot shows; whether that took time or changed anything."""
        view = self._view(snapshot)
        if view is None:
            return False
        filled = await self._fill(snapshot, view)
        if filled:
            view = gap_view(snapshot, self._settings)
        return await self._watch(snapshot, view) or filled

    async def _fill(self, snapshot: PartitionSnapshot, view: GapView) -> bool:
        """Remove from the record what whole copies have; whether a store was asked."""
        copies = copies_of_lost(view)
        if not copies:
            return False
        found = await self._lost.ask(snapshot, [one.metadata for one in copies])
        epoch = snapshot.led.leader_epoch
        for one in copies:
            if one.metadata.segment_id.id in found.whole:
                start = one.metadata.start_offset
                await self._holes.fill(snapshot.key, start, one.next_offset, epoch)
        return True

    async def _watch(self, snapshot: PartitionSnapshot, view: GapView) -> bool:
        """As `run_on`, for new holes."""
        seen = self._seen.get(snapshot.key)
        if seen is None or seen.leader_epoch != snapshot.led.leader_epoch:
            seen = self._seen[snapshot.key] = _Seen(snapshot.led.leader_epoch)
        found = self._gaps(snapshot, view)
        if in_both(found, seen.ranges):
            snapshot = await self._snapshots.take(snapshot.led)
            fresh = self._view(snapshot)
            if fresh is None:
                return True
            view = fresh
            found = self._gaps(snapshot, view)
        proven = in_both(found, seen.ranges)
        await self._record(snapshot, proven)
        rest = missed(found, proven)
        seen.ranges = missed(uncopied(view, seen.ranges), proven)
        seen.unproven = in_both(seen.unproven, rest)
        if not rest:
            return await self._explain_start(snapshot, view) or bool(proven)
        if self._clock.monotonic_ms() < seen.list_at_ms:
            return bool(proven)
        seen.list_at_ms = self._clock.monotonic_ms() + _LIST_AGAIN_MS
        seen.unproven, seen.why = rest, "the stores were not listed yet"
        await self._list(snapshot, seen)
        return True

    def findings(self, led: Iterable[LedPartition]) -> Iterator[Finding]:
        """Gaps that are not proven to be holes, of any of these partitions."""
        for row in led:
            seen = self._seen.get(row.key)
            if seen is not None and seen.unproven:
                yield _unproven_finding(row, seen)

    def _view(self, snapshot: PartitionSnapshot) -> GapView | None:
        """None where the snapshot proves nothing: ledger or settings have a problem, the partition
        is frozen, or its topic is not enabled (any more).
        """
        doubts = self._ledger.problem or self._settings.problem or snapshot.ledger.deletion_problem
        if doubts is not None or snapshot.frozen is not None or not snapshot.topic.state.enabled:
            return None
        if snapshot.remote_log_start_offset is None:
            return None
        if not (self._ledger.is_ready and self._settings.is_ready):
            return None
        return gap_view(snapshot, self._settings)

    async def _explain_start(self, snapshot: PartitionSnapshot, view: GapView) -> bool:
        """Where the broker moved its log start by the limit that was given back, record the move
        like one of ours, so that it raises no alarm (H1). Gaps below it are on record by now, and
        none may come: nothing below the bound of a trim is ever a hole.
        """
        start = view.local_log_start_offset
        if start <= view.trim_bound or not _is_given_back(snapshot):
            return False
        if may_turn_out_missing(view) or self._held(snapshot):
            return False
        epoch = snapshot.led.leader_epoch
        intent = TrimRecord(partition=snapshot.key, bound=start, planned_epoch=epoch)
        await self._settings.publish(intent, epoch)
        return True

    def _gaps(self, snapshot: PartitionSnapshot, view: GapView) -> Ranges:
        """Without what is still open, and about to be copied."""
        held = self._held(snapshot)
        ranges = ((one.base_offset, one.next_offset) for one in held if one.next_offset is not None)
        return missed(gaps(view), tuple(ranges))

    async def _list(self, snapshot: PartitionSnapshot, seen: _Seen) -> None:
        """List all stores, then take a snapshot: what both show missing was never stored."""
        partition = snapshot.led.topic_id_partition
        listing = await self._unlisted.listing(partition)
        fresh = await self._snapshots.take(snapshot.led)
        stored = await self._unlisted.confirmed(partition, listing)
        view = self._view(fresh)
        if listing.errors or view is None:
            seen.why = "; ".join(listing.errors) or "ledger or settings have a problem"
            return
        still = in_both(self._gaps(fresh, view), seen.unproven)
        proven = cannot_be_stored(still, stored)
        await self._record(fresh, proven)
        seen.unproven = missed(still, proven)
        seen.why = "a store has segments that the ledger does not list: " + ", ".join(
            one.objects_stem for one in stored[:_MOST_NAMED]
        )

    async def _record(self, snapshot: PartitionSnapshot, proven: Ranges) -> None:
        if not proven:
            return
        cause = BY_ANYBODY if snapshot.topic.retention_bounded is None else BY_RETENTION
        if _is_given_back(snapshot):
            cause = GIVEN_BACK
        holes = [Hole(start=start, end=end, cause=cause) for start, end in proven]
        await self._holes.add(snapshot.key, holes, snapshot.led.leader_epoch)
        for one in holes:
            log.error(
                "records_lost",
                topic=snapshot.led.topic_id_partition.topic,
                partition=snapshot.key.partition,
                start_offset=one.start,
                next_offset=one.end,
                cause=one.cause,
            )


def _is_given_back(snapshot: PartitionSnapshot) -> bool:
    """Whether the log begins where a limit may have ended it that we have set; a client that
    deletes records meanwhile (DeleteRecords) hardly ever ends there.
    """
    record = snapshot.topic.record
    given = record.given_back if record is not None else None
    return given is not None and may_have_ended(
        given,
        [(one.base_offset, one.size_bytes) for one in snapshot.log.segments],
        snapshot.watermarks.log_start_offset,
    )


def _unproven_finding(led: LedPartition, seen: _Seen) -> Finding:
    named = [f"{start} to {end}" for start, end in seen.unproven[:_MOST_NAMED]]
    more = len(seen.unproven) - _MOST_NAMED
    tail = f" and {more} more ranges" if more > 0 else ""
    return partition_finding(
        led.topic_partition,
        ProblemKind.OFFSETS_MISSING,
        f"no tier has offsets {', '.join(named)}{tail}, and what became of them is not known: "
        f"{seen.why}",
    )
