"""Reads a partition's plans, indexes and log ranges from a source, and checks every byte (G9).

Indexes are checked by the CRC-32C in the segment's metadata, the log by the chunk checksums that
the indexes hold. A failure that may pass is retried.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kip405.contracts import IndexType
from kip405.errors import Corrupt, NotFound, RemoteStorageError
from kip405.indexes import (
    ChunkChecksums,
    IndexesObject,
    check_stored_indexes,
    checked_custom,
)
from kip405.segments import ByteRange
from rlm.clock import Clock, backoff_ms
from rlm.download.plan import RANGE_BYTES, PartitionPlan, Piece, Source
from rsm_plugins.threads import Threads

V = TypeVar("V")
_ATTEMPTS = 6
_ONCE_MORE = (Corrupt, NotFound)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceIndexes:
    """The checked indexes of a piece's segment."""

    indexes: IndexesObject
    checksums: ChunkChecksums

    @property
    def step_bytes(self) -> int:
        """The size of a range to read: whole chunks, at most RANGE_BYTES if a chunk is smaller."""
        size = self.checksums.chunk_size_bytes
        return max(RANGE_BYTES // size, 1) * size


class VerifiedReads:
    """Corrupt, NotFound: asked twice, an object is damaged or gone."""

    def __init__(self, source: Source, *, clock: Clock, threads: Threads) -> None:
        self._source = source
        self._clock = clock
        self._threads = threads

    async def plans(self, topic: str, partition: int | None) -> Sequence[PartitionPlan]:
        """All that the remote tier has, partition by partition."""
        return await self._retried(lambda: self._source.plans(topic, partition))

    async def indexes(self, plan: PartitionPlan, piece: Piece) -> PieceIndexes:
        data = await self._retried(partial(self._indexes, plan, piece))
        indexes = IndexesObject.parse(data)
        return PieceIndexes(indexes=indexes, checksums=_checksums(indexes, piece))

    async def log(
        self, plan: PartitionPlan, piece: Piece, wanted: ByteRange, checksums: ChunkChecksums
    ) -> bytes:
        """A range that begins at a chunk, and ends at one or at the log's end."""
        return await self._retried(partial(self._log, plan, piece, wanted, checksums))

    async def _retried(self, call: Callable[[], Awaitable[V]]) -> V:
        for attempt in range(_ATTEMPTS):
            try:
                return await call()
            except RemoteStorageError as error:
                last = attempt == _ATTEMPTS - 1
                if last or not (
                    error.retriable or (attempt == 0 and isinstance(error, _ONCE_MORE))
                ):
                    raise
            await self._clock.sleep_ms(backoff_ms(attempt))
        raise AssertionError("not reached: the last attempt raises or returns")

    async def _indexes(self, plan: PartitionPlan, piece: Piece) -> bytes:
        checked_custom(piece.metadata)  # without it there is nothing to ask for
        data = await self._source.read_indexes(plan, piece)
        check_stored_indexes(data, piece.metadata)
        return data

    async def _log(
        self, plan: PartitionPlan, piece: Piece, wanted: ByteRange, checksums: ChunkChecksums
    ) -> bytes:
        data = await self._source.read_log(plan, piece, wanted)
        try:
            await self._threads.run(checksums.check_range, wanted, data)
        except Corrupt as error:
            raise Corrupt(f"log of segment {piece.metadata.segment_id}: {error}") from error
        return data


def _checksums(indexes: IndexesObject, piece: Piece) -> ChunkChecksums:
    what = f"indexes of segment {piece.metadata.segment_id}"
    section = indexes.section(IndexType.CHUNK_CHECKSUMS)
    if section is None:
        raise Corrupt(f"{what} have no chunk checksums")
    try:
        return ChunkChecksums.decode(section, piece.size_bytes)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error}") from error
