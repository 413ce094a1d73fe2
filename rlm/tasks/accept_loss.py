"""Records offsets that an operator accepts as lost: no store has them, nor the leader's log (H15).

The range is recorded as a hole. From then on readers skip it like a compaction gap, and the cleanup
task removes the entries of the lost segments from the ledger, once it has proven again that their
objects are missing. Objects that come back before that are kept.
"""

from collections.abc import Awaitable, Callable

import structlog

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey
from rlm.plans.coverage import (
    ACCEPTED,
    LossView,
    LostRange,
    OffsetRange,
    doubtful_segments,
    lost_ranges,
)
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, ledger_problem
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.lost_segments import HoleRecords, LostSegments
from rlmm.ledger import Hole

log = structlog.get_logger()


class LossAcceptance:
    """For partitions that our broker leads. `take` takes a snapshot now, Fenced if not led here."""

    def __init__(
        self,
        *,
        snapshot: Callable[[PartitionKey], Awaitable[PartitionSnapshot]],
        ledger: Ledger,
        settings: Settings,
        evidence: StoreEvidence,
        lost: LostSegments,
        holes: HoleRecords,
    ) -> None:
        self._snapshot = snapshot
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._lost = lost
        self._holes = holes

    async def accept(self, key: PartitionKey, *, by: str, apply: bool) -> tuple[LostRange, ...]:
        """The ranges that are lost; with `apply` they are recorded when this returns.

        Invalid: nothing is proven lost, the partition is frozen, or a store has another identity.
        Unavailable: a store or the ledger does not answer, which proves nothing.
        """
        snapshot = await self._snapshot(key)
        partition = snapshot.led.topic_id_partition
        if snapshot.frozen is not None:
            raise Invalid(f"{partition} is frozen: {snapshot.frozen.reason}; end that first")
        problem = ledger_problem(key, self._ledger, self._settings)
        if problem is not None:
            raise Unavailable(f"{partition}: {problem}")
        if snapshot.topic.record is None:
            raise NotFound(f"{partition}: the topic is not enabled")
        usable = snapshot.ledger.usable(
            snapshot.lineage, snapshot.log_end_offset, snapshot.remote_log_start_offset or 0
        )
        missing = await self._evidence.missing([one.metadata for one in usable])
        self._lost.suspect(key, missing)
        doubted = [one.metadata for one in usable if one.metadata.segment_id.id in missing]
        gone = await self._evidence.missing(doubted, needs_manifest=False)
        holes = self._settings.view.holes(key)
        start = max(snapshot.watermarks.log_start_offset, snapshot.remote_log_start_offset or 0)
        found = lost_ranges(
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
        if not found:
            raise Invalid(f"{partition}: nothing is proven lost. {_instead(len(missing))}")
        if apply:
            await self._record(snapshot, found, by)
        return found

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


def _instead(missing: int) -> str:
    if not missing:
        return "Every object of its segments is in the store"
    return (
        f"Objects of {missing} segments are gone, but the broker still has the records, which are "
        "copied again by themselves, or another copy does, or nothing but the manifest is gone and "
        "readers have them yet, or the loss is accepted already"
    )
