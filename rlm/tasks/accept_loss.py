"""Records offsets that an operator accepts as lost: no store has them, nor the leader's log (H15).

Either the objects of segments are proven to be gone, or the ledger lists no segment at all for
offsets that the log does not have any more, as when it has lost the records of copies that we had
trimmed on (H6). Then all stores that were ever used are listed, and a snapshot that is taken after
that must show the same. A store that cannot be listed may have the copy; the operator who knows
better leaves it out, by its id.

The range is recorded as a hole. From then on readers skip it like a compaction gap, and the cleanup
task removes the entries of the lost segments from the ledger, once it has proven again that their
objects are missing. Objects that come back before that are kept.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import structlog

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.coverage import (
    ACCEPTED,
    LossView,
    LostRange,
    OffsetRange,
    Ranges,
    doubtful_segments,
    lost_ranges,
)
from rlm.plans.holes import cannot_be_stored, in_both, unlisted_gaps
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, gap_view, ledger_problem
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlm.tasks.unlisted_segments import UnlistedSegments
from rlmm.ledger import Hole

log = structlog.get_logger()
_MOST_NAMED = 3


class LossAcceptance:
    """For partitions that our broker leads. `snapshot` takes one now, Fenced if not led here.
    `unlisted`: in all stores that were ever used. `held`: see rlm.tasks.hole_watch.
    """

    def __init__(
        self,
        *,
        snapshot: Callable[[PartitionKey], Awaitable[PartitionSnapshot]],
        ledger: Ledger,
        settings: Settings,
        evidence: StoreEvidence,
        lost: LostSegments,
        holes: HoleRecords,
        unlisted: UnlistedSegments,
        held: Callable[[PartitionSnapshot], Sequence[LocalSegment]],
    ) -> None:
        self._snapshot = snapshot
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._lost = lost
        self._holes = holes
        self._unlisted = unlisted
        self._held = held

    async def accept(
        self, key: PartitionKey, *, by: str, apply: bool, without: Collection[Uuid] = ()
    ) -> tuple[LostRange, ...]:
        """The ranges that are lost; with `apply` they are recorded when this returns. `without`:
        stores of which the operator says that they do not have it.

        Invalid: nothing is proven lost, the partition is frozen, or a store has another identity.
        Unavailable: a store or the ledger does not answer, which proves nothing.
        """
        unlisted = await self._not_listed(await self._sound(key), without)
        snapshot = unlisted.snapshot
        gone, missing = await self._gone(snapshot)
        found = tuple(sorted((*gone, *unlisted.lost()), key=lambda one: one.start))
        if not found:
            why = unlisted.doubt or _instead(missing)
            raise Invalid(f"{snapshot.led.topic_id_partition}: nothing is proven lost. {why}")
        if apply:
            await self._record(snapshot, found, by)
        return found

    async def _sound(self, key: PartitionKey) -> PartitionSnapshot:
        """A snapshot that proves something."""
        snapshot = await self._snapshot(key)
        partition = snapshot.led.topic_id_partition
        if snapshot.frozen is not None:
            raise Invalid(f"{partition} is frozen: {snapshot.frozen.reason}; end that first")
        problem = ledger_problem(key, self._ledger, self._settings)
        if problem is not None:
            raise Unavailable(f"{partition}: {problem}")
        if snapshot.topic.record is None:
            raise NotFound(f"{partition}: the topic is not enabled")
        if snapshot.remote_log_start_offset is None:
            raise Unavailable(
                f"{partition} has no remote log start, so what was deleted is not known from what "
                "is lost; `rlm topics adopt-log-start` sets a start that was lost"
            )
        return snapshot

    async def _not_listed(
        self, snapshot: PartitionSnapshot, without: Collection[Uuid]
    ) -> "_Unlisted":
        """What no store has of that which the ledger does not list, by another snapshot."""
        seen = self._gaps(snapshot)
        if not seen:
            return _Unlisted(snapshot=snapshot)
        partition = snapshot.led.topic_id_partition
        listing = await self._unlisted.listing(partition, without)
        snapshot = await self._sound(snapshot.key)
        stored = await self._unlisted.confirmed(partition, listing, without)
        if listing.errors:
            return _Unlisted(snapshot=snapshot, doubt=_not_all_listed(listing.errors))
        still = in_both(self._gaps(snapshot), seen)
        proven = cannot_be_stored(still, stored)
        doubt = "" if proven == still else _stored([one.objects_stem for one in stored])
        return _Unlisted(snapshot=snapshot, gaps=proven, doubt=doubt)

    def _gaps(self, snapshot: PartitionSnapshot) -> Ranges:
        held = self._held(snapshot)
        open_ranges = ((one.base_offset, one.next_offset) for one in held if one.next_offset)
        return unlisted_gaps(gap_view(snapshot, self._settings), tuple(open_ranges))

    async def _gone(self, snapshot: PartitionSnapshot) -> tuple[tuple[LostRange, ...], int]:
        """What is lost with the objects of segments; and of how many segments any are missing."""
        key = snapshot.key
        usable = snapshot.ledger.usable(
            snapshot.lineage, snapshot.log_end_offset, snapshot.remote_log_start_offset or 0
        )
        missing = await self._evidence.missing([one.metadata for one in usable])
        self._lost.suspect(key, missing)
        doubted = [one.metadata for one in usable if one.metadata.segment_id.id in missing]
        gone = await self._evidence.missing(doubted, needs_manifest=False)
        holes = self._settings.view.holes(key)
        start = max(snapshot.watermarks.log_start_offset, snapshot.remote_log_start_offset or 0)
        lost = lost_ranges(
            LossView(
                usable=usable,
                gone=gone,
                doubtful=doubtful_segments(snapshot.log, start, holes),
                local=OffsetRange(
                    start=snapshot.watermarks.log_start_offset, next_offset=snapshot.log_end_offset
                ),
                remote_log_start_offset=snapshot.remote_log_start_offset or 0,
                holes=holes,
            )
        )
        return lost, len(missing)

    async def _record(
        self, snapshot: PartitionSnapshot, found: tuple[LostRange, ...], by: str
    ) -> None:
        cause = f"{ACCEPTED}: {by}"
        holes = [Hole(start=one.start, end=one.next_offset, cause=cause) for one in found]
        await self._holes.add(snapshot.key, holes, snapshot.led.leader_epoch)
        partition = snapshot.led.topic_id_partition
        for one in found:
            log.warning(
                "loss_accepted",
                topic=partition.topic,
                partition=partition.partition,
                start_offset=one.start,
                next_offset=one.next_offset,
                segments=one.segments,
                size_bytes=one.size_bytes,
                by=by,
                why=one.why,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlisted:
    """`gaps`: what neither ledger nor stores have, by the snapshot; `doubt`: why that is not proven
    of all that the ledger does not list.
    """

    snapshot: PartitionSnapshot
    gaps: Ranges = ()
    doubt: str = ""

    def lost(self) -> Iterator[LostRange]:
        """The same for an operator, who decides."""
        finished = self.snapshot.ledger.in_state(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        copies = tuple((one.metadata.start_offset, one.metadata.next_offset) for one in finished)
        for start, end in self.gaps:
            others = sum(1 for first, after in copies if first < end and start < after)
            why = "neither the ledger nor any store has a segment of them"
            if others:
                why = f"{why} but {others} copies of another history than the leader's"
            yield LostRange(start=start, next_offset=end, segments=0, size_bytes=0, why=why)


def _not_all_listed(errors: Sequence[str]) -> str:
    return (
        "The ledger does not list all offsets, and a store may have them: "
        + "; ".join(errors)
        + "; --without-store leaves out one that is gone for good"
    )


def _stored(stems: Sequence[str]) -> str:
    return (
        "The ledger does not list all offsets, and a store has objects that may: "
        + ", ".join(stems[:_MOST_NAMED])
        + "; see `rlm reconcile`"
    )


def _instead(missing: int) -> str:
    if not missing:
        return "Every object of its segments is in the store"
    return (
        f"Objects of {missing} segments are gone, but the broker still has the records, which are "
        "copied again by themselves, or another copy does, or nothing but the manifest is gone and "
        "readers have them yet, or the loss is accepted already"
    )
