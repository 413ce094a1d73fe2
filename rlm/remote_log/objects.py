"""Serves a partition's remote log to clients that copy it: segment metadata and ranges of objects.

Ranges are read directly from the store, past the chunk cache, since a client that copies a
partition reads every byte once. The numbers of running and waiting reads are bounded; one more is
Busy (G6, G10). Must not know gRPC.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from kip405.contracts import SegmentReader
from kip405.crc import ByteBuffer
from kip405.errors import Busy, Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from kip405.lineage import Lineage
from kip405.segments import ByteRange, FileSlice, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.remote_log.snapshots import SnapshotTaker
from rlmm.ledger import PartitionLedger, UsableSegment
from rsm_plugins.files.segment_files import read_slice
from rsm_plugins.threads import Threads


async def slice_bytes(found: ByteBuffer | FileSlice, threads: Threads) -> bytes:
    """The bytes of a store's answer; a slice of a shared file is read.

    NotFound: the file is gone. Unavailable: it cannot be read, or it was only lent and is gone.
    """
    return await threads.run(read_slice, found) if isinstance(found, FileSlice) else bytes(found)


RANGE_MAX_BYTES = 16 << 20
PIECE_BYTES = 1 << 20
_AT_ONCE = 4
_AT_WORK_OR_WAITING = 32
_DEADLINE_S = 120.0
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Ledgers(Protocol):
    """The ledger views by partition (rlmm's manager)."""

    def ledger(self, key: PartitionKey) -> PartitionLedger: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogDescription:
    """The remote tier of a partition, as readers get it; segments by start offset."""

    cluster_id: str
    remote_log_start_offset: int
    lineage: Lineage
    segments: tuple[UsableSegment, ...]


class RemoteObjects:
    """Reads objects by ledger and store; closes neither."""

    def __init__(
        self, *, cluster_id: str, ledgers: Ledgers, store: SegmentReader, threads: Threads
    ) -> None:
        self.cluster_id = cluster_id
        self._ledgers = ledgers
        self._store = store
        self._threads = threads
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._reads = 0

    async def read_log(
        self, key: PartitionKey, segment_id: Uuid, wanted: ByteRange
    ) -> AsyncGenerator[bytes, None]:
        """A range of the log object in pieces of at most 1 MiB. Busy: too many reads run."""
        if wanted.size_bytes > RANGE_MAX_BYTES:
            raise Invalid(f"a range has at most {RANGE_MAX_BYTES} bytes, not {wanted.size_bytes}")
        locator = self._finished(key, segment_id).locator(self.cluster_id)
        with self._counted():
            async with self._slots, _deadline(segment_id):
                found = await self._store.fetch_log_segment(locator, wanted)
                async for piece in _pieces(found, self._threads):
                    yield piece

    async def read_indexes(
        self, key: PartitionKey, segment_id: Uuid
    ) -> AsyncGenerator[bytes, None]:
        """The whole indexes object, in the same way."""
        locator = self._finished(key, segment_id).locator(self.cluster_id)
        with self._counted():
            async with self._slots, _deadline(segment_id):
                indexes = await self._store.fetch_indexes(locator)
                async for piece in _pieces(indexes, self._threads):
                    yield piece

    def _finished(self, key: PartitionKey, segment_id: Uuid) -> RemoteLogSegmentMetadata:
        """The metadata of a finished segment. A zombie's record must not hide data: the lawful
        record counts too (H3).
        """
        ledger = self._ledgers.ledger(key)
        entry, dispute = ledger.entries.get(segment_id), ledger.disputes.get(segment_id)
        lawful = dispute.lawful.metadata if dispute and dispute.lawful else None
        for metadata in (entry.metadata if entry else None, lawful):
            if metadata is not None and metadata.state is _FINISHED:
                return metadata
        raise NotFound(f"partition {key} has no finished segment {segment_id}")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._reads >= _AT_WORK_OR_WAITING:
            raise Busy(f"{self._reads} objects are read already; come back later")
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1


class RemoteLogs(RemoteObjects):
    """Adds descriptions from snapshots. `known`: partitions and their leaders."""

    def __init__(
        self,
        *,
        cluster_id: str,
        known: Callable[[PartitionKey], LedPartition | None],
        snapshots: SnapshotTaker,
        ledgers: Ledgers,
        store: SegmentReader,
        threads: Threads,
    ) -> None:
        super().__init__(cluster_id=cluster_id, ledgers=ledgers, store=store, threads=threads)
        self._known = known
        self._snapshots = snapshots

    async def describe(self, key: PartitionKey) -> RemoteLogDescription:
        """The current description. Fenced: not led here, or frozen (H4). Unavailable: not up to
        date yet.
        """
        led = self._known(key)
        if led is None:
            raise Unavailable(f"partition {key} is not known here yet")
        snapshot = await self._snapshots.take(led)
        if snapshot.frozen is not None:
            raise Fenced(f"{led.topic_id_partition} is frozen: {snapshot.frozen.reason}")
        start = snapshot.remote_log_start_offset or 0
        return RemoteLogDescription(
            cluster_id=self.cluster_id,
            remote_log_start_offset=start,
            lineage=snapshot.lineage,
            segments=snapshot.ledger.usable(snapshot.lineage, snapshot.log_end_offset, start),
        )


@asynccontextmanager
async def _deadline(segment_id: Uuid) -> AsyncIterator[None]:
    """A client that stops consuming loses its slot."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            yield
    except TimeoutError as error:
        raise Unavailable(f"segment {segment_id} was not read in time") from error


async def _pieces(found: ByteBuffer | FileSlice, threads: Threads) -> AsyncIterator[bytes]:
    size_bytes = found.size_bytes if isinstance(found, FileSlice) else len(found)
    for at in range(0, size_bytes, PIECE_BYTES):
        end = min(at + PIECE_BYTES, size_bytes)
        if isinstance(found, FileSlice):
            piece = replace(found, position=found.position + at, size_bytes=end - at)
            yield await slice_bytes(piece, threads)
        else:
            yield bytes(found[at:end])
