"""Plans the partitions of a store alone by what its segments prove of the history (H4).

The rules are those of an attached reader without a backup of the settings
(rlm/plans/attachment.py): the history is that of the segments, and what the newest segment has
stored of it (H8). As a download has all of a partition or nothing, one with doubtful offsets is
refused until an operator accepts what the segments show. A partition of one leader epoch has
nothing that could be doubtful, and none of its objects is read.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.ids import MAX_OFFSET, PartitionKey, TopicIdPartition, Uuid
from kip405.lineage import Lineage, remote_lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata
from rlm.download.plan import PartitionPlan, pieces_of
from rlm.plans.attachment import Backup, Doubt, plan_partition
from rlm.plans.history import published_lineage
from rlm.remote_log.attached import ledger_of_segments
from rlm.tasks.stored_lineages import ReadableStore, StoredLineages, has_several_epochs
from rlmm.ledger import PartitionLedger
from rsm_plugins.layout.import_stops import ImportStop

_MOST_NAMED = 8
"""Doubts that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """What the manifests of one partition have. `stops`: where an import of it ended early; without
    one it has segments.
    """

    topic_partition: TopicIdPartition
    remote_log_start_offset: int
    segments: tuple[RemoteLogSegmentMetadata, ...]
    stops: tuple[ImportStop, ...] = ()

    @property
    def spellings(self) -> frozenset[str]:
        """What an operator may call it."""
        one = self.topic_partition
        return frozenset((f"{one.topic}-{one.partition}", f"{one.topic_id}-{one.partition}"))


class StorePlans:
    """`accepted`: partitions, as TOPIC-PARTITION, of which what the segments show is right."""

    def __init__(self, store: ReadableStore, cluster_id: str, accepted: Set[str]) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._accepted = accepted

    async def of(self, partitions: Sequence[StoredPartition]) -> list[PartitionPlan]:
        """One plan for each. Invalid: offsets are doubtful, which the message names, or what was
        accepted is not there. Unavailable: a stored history cannot be read now.
        """
        left = self._accepted - {name for one in partitions for name in one.spellings}
        if left:
            raise Invalid(f"--accept-history: {min(left)} is not among the partitions to read")
        several = [one for one in partitions if has_several_epochs(one.segments)]
        ledgers = {
            one.topic_partition.key: ledger_of_segments(one.topic_partition.key, one.segments)
            for one in several
        }
        stored = await self._stored(several, ledgers)
        doubts: list[tuple[StoredPartition, Doubt]] = []
        plans: list[PartitionPlan] = []
        for one in partitions:
            ledger = ledgers.get(one.topic_partition.key)
            lineage, found = remote_lineage(one.segments), self._stopped(one)
            if ledger is not None:
                lineage, proven = self._proven(one, ledger, stored[one.topic_partition.key])
                found += proven
            doubts += [(one, doubt) for doubt in found]
            plans.append(_plan(self._cluster_id, one, lineage))
        _refuse(doubts)
        return plans

    def _stopped(self, partition: StoredPartition) -> list[Doubt]:
        """What follows where an import ended early is not known."""
        if partition.spellings & self._accepted:
            return []
        return [
            Doubt(start=one.start_offset, next_offset=MAX_OFFSET, why=one.why)
            for one in partition.stops
        ]

    async def _stored(
        self,
        partitions: Sequence[StoredPartition],
        ledgers: dict[PartitionKey, PartitionLedger],
    ) -> dict[PartitionKey, Lineage | None]:
        problems: list[str] = []
        lineages = StoredLineages(self._cluster_id, problems.append)
        segments = (segment for one in partitions for segment in one.segments)
        stores = {_store_id(segment): self._store for segment in segments}
        found = await lineages.of(ledgers.values(), stores)
        if lineages.unreadable:
            raise Unavailable(f"a history that segments have stored: {problems[-1]}")
        return found

    def _proven(
        self, partition: StoredPartition, ledger: PartitionLedger, stored: Lineage | None
    ) -> tuple[Lineage, list[Doubt]]:
        """The history, and what of it is doubtful."""
        is_accepted = bool(partition.spellings & self._accepted)
        found = plan_partition(
            ledger,
            manifest_start_offset=partition.remote_log_start_offset,
            unread=(),
            backup=Backup(),
            is_accepted=is_accepted,
            stored=stored,
        )
        lineage = published_lineage(ledger, found.history)
        doubts = list(found.doubts)
        if stored is None and not is_accepted:
            doubts += _unproven(partition, lineage)
        return lineage, doubts


def _store_id(segment: RemoteLogSegmentMetadata) -> Uuid:
    try:
        return segment.custom().store_id
    except ValueError as error:
        raise Corrupt(f"metadata of segment {segment.segment_id}: {error}") from error


def _unproven(partition: StoredPartition, lineage: Lineage) -> Iterator[Doubt]:
    """What copies have below the newest epoch, as no segment of that says what is right there."""
    start = min(one.start_offset for one in partition.segments)
    start = max(start, partition.remote_log_start_offset)
    end = lineage.entries[-1].start_offset if lineage.entries else start
    if start < end:
        why = "the indexes of the newest segments, which have the history, cannot be used"
        yield Doubt(start=start, next_offset=end, why=why)


def _plan(cluster_id: str, partition: StoredPartition, lineage: Lineage) -> PartitionPlan:
    start = partition.remote_log_start_offset
    usable = [(one, usable_end(one, lineage)) for one in partition.segments]
    return PartitionPlan(
        cluster_id=cluster_id,
        topic_partition=partition.topic_partition,
        remote_log_start_offset=start,
        lineage=lineage,
        pieces=pieces_of(usable, start),
    )


def _refuse(doubts: Sequence[tuple[StoredPartition, Doubt]]) -> None:
    if not doubts:
        return
    texts = [f"{one.topic_partition}: {doubt.text}" for one, doubt in doubts[:_MOST_NAMED]]
    if len(doubts) > _MOST_NAMED:
        texts.append(f"and {len(doubts) - _MOST_NAMED} more")
    raise Invalid(
        f"{'; '.join(texts)}. An attached reader with a backup of the settings may know more; "
        f"--accept-history {doubts[0][0].topic_partition} takes what the segments show"
    )
