"""Reads a partition of the remote tier as portions of batches, from any offset on, in order.

Ranges of a segment's log are read one after the other, each checked before it is used; an offset
index says where to begin. A portion is bounded, so is what is in memory. This module must not know
where records go.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from kip405.contracts import IndexType
from kip405.errors import Corrupt, RemoteStorageError
from kip405.indexes import AbortedTransaction, OffsetIndex, decode_aborted
from kip405.segments import ByteRange
from rlm.download.plan import PartitionPlan, Piece
from rlm.download.verified import PieceIndexes, VerifiedReads
from rlm.plans.fetch import decided_below, open_at
from rlm.restore.batches import OutgoingBatch, SegmentFeed, placed
from rsm_plugins.threads import Threads

PORTION_BYTES = 8 << 20
"""A portion is given once it has so many bytes; a transaction writes one portion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What is to be written at once; afterwards the restore goes on at `next_offset`."""

    batches: tuple[OutgoingBatch, ...]
    next_offset: int

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for batch in self.batches)

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)


def start_of(plan: PartitionPlan) -> int:
    """The first offset that is restored: the remote log start, unless there is nothing."""
    first = plan.pieces[0].start_offset if plan.pieces else 0
    return max(plan.remote_log_start_offset, first)


def gap_of(plan: PartitionPlan) -> tuple[int, int] | None:
    """Offsets from the remote log start on that no segment has, half-open. In a store alone that is
    usual after retention, as its manifests know older starts; else something is lost.
    """
    begin, end = plan.remote_log_start_offset, start_of(plan)
    return (begin, end) if plan.pieces and begin < end else None


def holes_of(plan: PartitionPlan) -> tuple[tuple[int, int], ...]:
    """Half-open ranges of offsets between segments, which no segment has."""
    return tuple(
        (before.next_offset, after.start_offset)
        for before, after in zip(plan.pieces, plan.pieces[1:], strict=False)
        if before.next_offset < after.start_offset
    )


class PartitionSource:
    """One partition; `portions` may be called again, from another offset."""

    def __init__(
        self,
        reads: VerifiedReads,
        plan: PartitionPlan,
        threads: Threads,
        *,
        portion_bytes: int = PORTION_BYTES,
    ) -> None:
        self._portion_bytes = portion_bytes
        self._reads = reads
        self._threads = threads
        self.plan = plan

    async def portions(self, from_offset: int) -> AsyncGenerator[Portion, None]:
        """All from this offset on; the last one ends at the plan's end. Corrupt, NotFound and
        Unavailable name the segment and its offsets.
        """
        taken: list[OutgoingBatch] = []
        size_bytes, reached = 0, from_offset
        for number, piece in enumerate(self.plan.pieces):
            if piece.next_offset <= from_offset:
                continue
            async for batches, next_offset in self._batches(number, from_offset):
                for batch in batches:
                    taken.append(batch)
                    size_bytes += len(batch.data)
                    if size_bytes >= self._portion_bytes:
                        yield Portion(batches=tuple(taken), next_offset=batch.next_offset)
                        reached = batch.next_offset
                        taken, size_bytes = [], 0
                reached = max(reached, next_offset)
        if taken or reached > from_offset:
            yield Portion(batches=tuple(taken), next_offset=reached)

    async def _batches(
        self, number: int, from_offset: int
    ) -> AsyncIterator[tuple[Sequence[OutgoingBatch], int]]:
        """What each range of one segment holds, and up to which offset that reaches."""
        piece = self.plan.pieces[number]
        try:
            found = await self._reads.indexes(self.plan, piece)
            feed = SegmentFeed(
                start_offset=piece.start_offset,
                end_offset=piece.next_offset,
                from_offset=max(from_offset, start_of(self.plan)),
                aborted=await self._aborted(number, found),
            )
            begin = _begin(piece, found, from_offset)
            for wanted, skipped in _ranges(piece, found, begin):
                data = await self._reads.log(self.plan, piece, wanted, found.checksums)
                yield await self._threads.run(feed.feed, data[skipped:]), feed.next_offset
                if feed.is_done:
                    return
            feed.finish()
            yield (), feed.next_offset
        except RemoteStorageError as error:
            raise placed(error, _segment_words(piece)) from error

    async def _aborted(
        self, number: int, found: PieceIndexes
    ) -> tuple[AbortedTransaction, ...] | None:
        """The aborted transactions of a piece by the history that the plan has (H9): what a copier
        saw behind the end of the piece may have been cut off by an unclean election. None: how
        transactions ended is not known.
        """
        piece, own = self.plan.pieces[number], _aborted_list(found)
        if not _is_cut(piece) and not open_at(own, piece.next_offset):
            return own
        behind = await self._aborted_behind(number)
        if behind is None:
            return None if _is_cut(piece) else own
        return decided_below(own, piece.next_offset) + behind

    async def _aborted_behind(self, number: int) -> tuple[AbortedTransaction, ...] | None:
        """Transactions that are open where the piece ends, and were aborted later. None: the offset
        after it is in no piece.
        """
        end = self.plan.pieces[number].next_offset
        following = self.plan.pieces[number + 1 : number + 2]
        if not following or following[0].start_offset > end:
            return None
        [piece] = following
        found = open_at(_aborted_list(await self._reads.indexes(self.plan, piece)), end)
        if not _is_cut(piece) and not open_at(found, piece.next_offset):
            return found
        behind = await self._aborted_behind(number + 1)
        if behind is None:
            return None if _is_cut(piece) else found
        return decided_below(found, piece.next_offset) + open_at(behind, end)


def _is_cut(piece: Piece) -> bool:
    """Whether the history leaves the segment before the segment's end."""
    return piece.next_offset < piece.metadata.next_offset


def _aborted_list(found: PieceIndexes) -> tuple[AbortedTransaction, ...]:
    section = found.indexes.section(IndexType.ABORTED_TRANSACTIONS)
    if section is None:
        raise Corrupt("its indexes have no list of aborted transactions")
    return decode_aborted(section)


def _segment_words(piece: Piece) -> str:
    return (
        f"segment {piece.metadata.segment_id}, offsets {piece.start_offset} to "
        f"{piece.next_offset - 1}"
    )


def _begin(piece: Piece, found: PieceIndexes, from_offset: int) -> int:
    """Position of a batch at or before what is wanted."""
    section = found.indexes.section(IndexType.OFFSET)
    if section is None:
        return 0
    index = OffsetIndex(memoryview(section), piece.metadata.start_offset)
    position = index.lookup(max(from_offset, piece.start_offset))
    return position if position < piece.size_bytes else 0


def _ranges(piece: Piece, found: PieceIndexes, begin: int) -> Iterator[tuple[ByteRange, int]]:
    """Ranges of whole chunks, and how many bytes of the first one come before `begin`."""
    size = found.checksums.chunk_size_bytes
    position = begin - begin % size
    while position < piece.size_bytes:
        end = min(position + found.step_bytes, piece.size_bytes)
        yield ByteRange(start=position, end=end), max(begin - position, 0)
        position = end
