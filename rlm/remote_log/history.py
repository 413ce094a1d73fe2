"""Reads one partition's remote segments in offset order, along one leader epoch lineage.

The caller chooses the lineage: the leader's tier uses the merged lineage of a snapshot, a reader of
the remote tier alone uses what segments and leaders have published (rlm.plans.history). This module
has the rules that both need: a gap is not skipped before it is settled (H15), and a lost copy is
replaced by another copy inside the lineage (H25).

A segment is lost where its objects are missing or damaged under a FINISHED record (H11). The
reading client gets an error, and the operator must learn of the loss too, so `Losses` keeps it
until the segment is read again, as after a restore from a backup. One that the ledger does not list
as finished any more was deleted in order, during the read: it is no loss, and its reader looks it
up again (`ChangedMeanwhile`). This module must not know snapshots, leaders or settings.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from kip405.errors import Corrupt, Internal, NotFound, RemoteStorageError, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.indexes import AbortedTransaction, aborted_for_fetch
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.clock import next_turn
from rlm.plans.coverage import SETTLED, Ranges, missed, unsettled_end
from rlm.plans.fetch import ReadBounds, decided_below, has_transactions, open_at, shared_end
from rlm.reading.reader import RemoteReader
from rlm.reading.values import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.tier import ChangedMeanwhile
from rlmm.ledger import PartitionLedger, UsableSegment

log = structlog.get_logger(__name__)
_MOST_PER_PARTITION = 100
_BARRIER_DEADLINE_MS = 2_000
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Losses:
    """Why a segment cannot be read, by partition and segment id; bounded per partition."""

    def __init__(self) -> None:
        self._found: dict[PartitionKey, dict[Uuid, NotFound | Corrupt]] = {}

    def note(
        self,
        key: PartitionKey,
        segment_id: Uuid,
        error: NotFound | Corrupt,
        segments: Collection[Uuid],
    ) -> None:
        """Record that a read failed permanently; logged once. When the list is full, segments that
        are no longer in the ledger's `segments` are dropped.
        """
        known = self._found.setdefault(key, {})
        if segment_id in known:
            return
        if len(known) >= _MOST_PER_PARTITION:
            for given_up in [one for one in known if one not in segments]:
                del known[given_up]
        if len(known) >= _MOST_PER_PARTITION:
            return
        # The error itself refers to the frames that it passed, and by them to chunks (G10).
        known[segment_id] = type(error)(str(error))
        log.error("segment_lost", segment=str(segment_id), error=str(error))

    def forget(self, key: PartitionKey, segment_id: Uuid) -> None:
        """The segment was read again: its objects are back."""
        known = self._found.get(key)
        if known is not None and known.pop(segment_id, None) is not None:
            log.info("segment_found_again", segment=str(segment_id))
            if not known:
                del self._found[key]

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """Partitions with a segment that could not be read."""
        return tuple(self._found)

    def segments(self, key: PartitionKey) -> frozenset[Uuid]:
        """Segments of the partition that could not be read."""
        return frozenset(self._found.get(key, ()))

    def damaged(self, key: PartitionKey) -> Mapping[Uuid, str]:
        """Segments that failed a checksum, with what readers found. Their objects exist, so a check
        for existence proves nothing.
        """
        known = self._found.get(key, {})
        return {one: str(error) for one, error in known.items() if isinstance(error, Corrupt)}

    def alarms(self, key: PartitionKey, segments: Collection[Uuid]) -> tuple[str, ...]:
        """One line for each lost segment that the ledger still lists as readable."""
        known = self._found.get(key, {})
        return tuple(
            f"readers cannot have segment {segment_id}: {why}; restore its objects, or "
            "`rlm partition accept-loss`"
            for segment_id, why in known.items()
            if segment_id in segments
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteHistory:
    """The segments of a partition inside one lineage; `name` is that of the partition, for errors.

    `trusted` False = the ledger has a problem and proves no hole. `empty`: recorded ranges without
    any records that a reader could miss (H15).
    """

    name: str
    ledger: PartitionLedger
    lineage: Lineage
    log_end_offset: int
    trusted: bool
    empty: Ranges = ()

    def usable(self, start: int = 0) -> tuple[UsableSegment, ...]:
        """Readable segments with records at or above `start`, by start offset."""
        return self.ledger.usable(self.lineage, self.log_end_offset, start)

    def segment_at(self, offset: int) -> UsableSegment | None:
        """The segment that holds the offset, or the first one after it."""
        return self.ledger.usable_segment_for(self.lineage, self.log_end_offset, offset)

    def following(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The segment to read after one that ends at the offset."""
        found = self.segment_at(offset)
        return found.metadata if found else None

    @property
    def next_offset(self) -> int | None:
        """Where the remote data ends, disputed segments included (H3); None without any."""
        return self.ledger.highest_end(self.lineage, self.log_end_offset, disputed=True)

    def shared_end(self, usable: UsableSegment) -> int | None:
        """See rlm.plans.fetch."""
        entry = self.ledger.entries.get(usable.metadata.segment_id.id)
        return shared_end(usable, entry, self.lineage, self.log_end_offset)

    def unsettled_end(self, start: int, next_offset: int) -> int:
        """See rlm.plans.coverage."""
        return unsettled_end(
            self.ledger,
            self.lineage,
            self.log_end_offset,
            start=start,
            next_offset=next_offset,
            trusted=self.trusted,
        )

    def refuse_unsettled(self, start: int, next_offset: int) -> None:
        """Unavailable where it is not yet known whether all of [start, next_offset) can be read."""
        if start >= next_offset:
            return  # nothing is left out
        if self.unsettled_end(start, next_offset) != SETTLED:
            raise Unavailable(
                f"{self.name}: what is between {start} and {next_offset} in the "
                f"remote store is not settled yet"
            )


class Ledgers(Protocol):
    """The ledger as it is now (rlmm's manager)."""

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...

    async def barrier(self, key: PartitionKey, deadline_ms: int) -> None: ...


class LineageReader:
    """Reads along a lineage through the reader; `losses` keeps segments that cannot be read.

    ChangedMeanwhile: a segment of the history given was deleted in order.
    """

    def __init__(self, reader: RemoteReader, ledgers: Ledgers) -> None:
        self._reader = reader
        self._ledgers = ledgers
        self.losses = Losses()

    async def read(self, history: RemoteHistory, request: RemoteRead) -> RemoteRecords:
        """Batches from the first segment at or after the offset that has any below the upper
        offset.

        NotFound or Corrupt: every copy is lost. Unavailable: a gap is not settled yet.
        """
        offset = asked_offset = request.offset
        missing: tuple[tuple[int, int], ...] = ()
        while offset < request.upper_offset:
            usable = history.segment_at(offset)
            if usable is None or usable.metadata.start_offset >= request.upper_offset:
                missing += missed([(offset, request.upper_offset)], history.empty)
                break
            start = usable.metadata.start_offset
            history.refuse_unsettled(offset, start)
            if start > offset:
                missing += missed([(offset, start)], history.empty)
            if offset != request.offset:
                request = replace(request, offset=offset)
            usable, read = await self._read_copy(history, usable, request)
            if read.size_bytes or not read.exhausted:
                return replace(read, missing=missing) if missing else read
            offset = usable.next_offset
        return RemoteRecords(
            records=(), size_bytes=0, next_offset=asked_offset, aborted=(), missing=missing
        )

    async def _read_copy(
        self, history: RemoteHistory, best: UsableSegment, request: RemoteRead
    ) -> tuple[UsableSegment, RemoteRecords]:
        """Read the first of `_copies` that is not lost, and say which one it is.

        NotFound or Corrupt: every copy is lost; the error is that of the best one.
        """
        error: NotFound | Corrupt | None = None
        for usable in self._copies(history, best, request):
            bounds = ReadBounds(
                offset=max(request.offset, usable.metadata.start_offset),
                upper_offset=min(request.upper_offset, usable.next_offset),
                max_bytes=request.max_bytes,
                at_least_one=request.at_least_one,
            )
            try:
                async with self._noticing(history.ledger, usable.metadata):
                    read = await self._reader.read(
                        usable.metadata,
                        bounds,
                        read_committed=request.read_committed,
                        following=history.following,
                        parent=request.parent,
                    )
                if request.read_committed and read.size_bytes:
                    read = await self._of_history(history, usable, bounds.offset, read)
            except (NotFound, Corrupt) as failed:
                error = failed if usable is best else error
            else:
                return usable, read
        try:
            raise error or Internal(f"{history.name}: no copy of offset {request.offset} was read")
        finally:
            error = None  # it refers to this frame

    def _copies(
        self, history: RemoteHistory, best: UsableSegment, request: RemoteRead
    ) -> Iterator[UsableSegment]:
        """The best copy, then the other in-lineage copies of the same offset (H25). A best copy
        that is known to be lost comes last.
        """
        is_lost = best.metadata.segment_id.id in self.losses.segments(history.ledger.key)
        if not is_lost:
            yield best
        at = max(request.offset, best.metadata.start_offset)
        for other in history.usable(at):
            if other.metadata.start_offset <= at and other != best:
                yield other
        if is_lost:
            yield best

    async def _of_history(
        self,
        history: RemoteHistory,
        usable: UsableSegment,
        offset: int,
        read: RemoteRecords,
    ) -> RemoteRecords:
        """The records with the aborted transactions of this lineage (H9).

        Unavailable: the segment that decides the open transactions is not remote yet.
        """
        end = history.shared_end(usable)
        if end is None:
            return read
        own = await self._aborted_list(history, usable)
        if not _is_cut(usable) and not open_at(own, end):
            return read
        aborted = decided_below(own, end)
        if has_transactions(read.records):
            aborted += await self._aborted_behind(history, end)
        return replace(read, aborted=aborted_for_fetch(aborted, offset, read.next_offset))

    async def _aborted_behind(
        self, history: RemoteHistory, end: int
    ) -> tuple[AbortedTransaction, ...]:
        """Transactions open at the offset that were aborted later in this lineage."""
        following = history.segment_at(end)
        if following is None or following.metadata.start_offset > end:
            raise Unavailable(
                f"{history.name}: what became of the transactions open at {end} is known once "
                f"the records from there on are copied"
            )
        found = open_at(await self._aborted_list(history, following), end)
        next_end = history.shared_end(following)
        if next_end is None or next_end <= end:
            return found
        if not _is_cut(following) and not open_at(found, next_end):
            return found
        behind = await self._aborted_behind(history, next_end)
        return decided_below(found, next_end) + open_at(behind, end)

    async def _aborted_list(
        self, history: RemoteHistory, usable: UsableSegment
    ) -> tuple[AbortedTransaction, ...]:
        async with self._noticing(history.ledger, usable.metadata):
            return await self._reader.aborted_list(usable.metadata)

    async def offset_for_timestamp(
        self, history: RemoteHistory, timestamp_ms: int, *, start: int, next_offset: int
    ) -> TimestampedOffset | None:
        """First record at or after the timestamp and `start`; None where [start, next_offset)
        certainly has none. Errors as `read`.
        """
        lost: list[UsableSegment] = []
        known = history.usable(start)
        for usable in known:
            if usable.metadata.max_timestamp_ms < timestamp_ms:
                continue
            history.refuse_unsettled(start, usable.metadata.start_offset)
            try:
                async with self._noticing(history.ledger, usable.metadata):
                    found = await self._reader.find_timestamp(usable.metadata, timestamp_ms, start)
            except (NotFound, Corrupt):
                lost.append(usable)
                if not any(_covers(other, usable) for other in known if other not in lost):
                    raise
                continue  # another copy has the same records (H25)
            if found is not None and found.offset < usable.next_offset:
                return found
        history.refuse_unsettled(start, next_offset)
        return None

    @asynccontextmanager
    async def _noticing(
        self, ledger: PartitionLedger, segment: RemoteLogSegmentMetadata
    ) -> AsyncIterator[None]:
        """Records a lost segment, and clears the entry once the segment is read again."""
        segment_id = segment.segment_id.id
        try:
            yield
        except (NotFound, Corrupt) as error:
            if not await self._is_listed(ledger.key, segment_id):
                text = f"segment {segment_id} was deleted meanwhile: look it up again"
                raise ChangedMeanwhile(text) from error
            self.losses.note(ledger.key, segment_id, error, ledger.entries.keys())
            raise
        self.losses.forget(ledger.key, segment_id)

    async def _is_listed(self, key: PartitionKey, segment_id: Uuid) -> bool:
        """Whether the segment is to be readable now. DELETE_SEGMENT_STARTED is in the ledger before
        any object is deleted (G4), so a barrier shows it; a known loss has passed one.
        """
        if segment_id not in self.losses.segments(key):
            await next_turn()  # a barrier has a deadline, which cancels the task that it began in
            with suppress(RemoteStorageError):
                await self._ledgers.barrier(key, _BARRIER_DEADLINE_MS)
        entry = self._ledgers.ledger(key).entries.get(segment_id)
        return entry is not None and (entry.state is _FINISHED or bool(entry.disputed))


def _is_cut(usable: UsableSegment) -> bool:
    """Whether the lineage leaves the segment before the segment's end."""
    return usable.next_offset < usable.metadata.next_offset


def _covers(other: UsableSegment, segment: UsableSegment) -> bool:
    """Whether the other segment has all records of this one."""
    begins = other.metadata.start_offset <= segment.metadata.start_offset
    return begins and other.next_offset >= segment.next_offset
