"""Reads a log of another uploader once: every byte is checked, and its indexes are rebuilt."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kip405.batches import BatchHeader
from kip405.checkpoints import encode_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Unavailable
from kip405.ids import MAX_OFFSET
from kip405.indexes import (
    ChunkChecksums,
    OffsetIndex,
    TimeIndex,
    build_indexes_object,
    encode_aborted,
)
from kip405.lineage import Lineage
from kip405.rebuilt_indexes import IndexBuilder, TransactionTracker
from kip405.records import ControlType, records
from kip405.scan import SegmentScan, SegmentScanner
from kip405.segments import ByteRange
from rlm.plans.pinterest_import import UploadedLog

READ_BYTES = 8 * 1024 * 1024


class Readable(Protocol):
    """What is read of a log; see UploadedObjects."""

    async def read_range(self, name: str, wanted: ByteRange) -> ByteBuffer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedLog:
    """A log whose bytes are all right. Its aborted list is complete once no transaction that began
    in it is open. `lineage`: up to its end.
    """

    log: UploadedLog
    scan: SegmentScan
    offset_index: bytes
    time_index: bytes
    lineage: Lineage

    @property
    def next_offset(self) -> int:
        return self.scan.last_offset + 1

    def indexes(self, tracker: TransactionTracker) -> tuple[bytes, bool]:
        """The indexes object, and whether the transaction index is empty."""
        start, scan = self.log.base_offset, self.scan
        own = tracker.transaction_index(start, self.next_offset)
        checksums = ChunkChecksums(chunk_size_bytes=scan.chunk_size_bytes, crcs=scan.chunk_crcs)
        aborted = tracker.aborted_in(start, self.next_offset)
        sections: dict[IndexType, ByteBuffer] = {
            IndexType.OFFSET: self.offset_index,
            IndexType.TIMESTAMP: self.time_index,
            IndexType.LEADER_EPOCH: encode_leader_epochs(self.lineage.entries),
            IndexType.ABORTED_TRANSACTIONS: encode_aborted(aborted),
            IndexType.CHUNK_CHECKSUMS: checksums.encode(),
        }
        if own:
            sections[IndexType.TRANSACTION] = own
        return build_indexes_object(sections), not own


async def read_piece(objects: Readable, name: str, wanted: ByteRange) -> ByteBuffer:
    """A range that was listed; Unavailable: the object is shorter than it was listed."""
    piece = await objects.read_range(name, wanted)
    if len(piece) != wanted.end - wanted.start:
        raise Unavailable(f"{name} ends at byte {wanted.start + len(piece)} of {wanted.end}")
    return piece


class LogReading:
    """Reads one log. `tracked_to`: below it the tracker has had the batches of another log.
    `begins`: where the batches begin at which one of the `following` logs does, by base offset.
    """

    def __init__(
        self,
        log: UploadedLog,
        tracker: TransactionTracker,
        *,
        tracked_to: int = 0,
        following: Iterable[UploadedLog] = (),
    ) -> None:
        self._log = log
        self._tracker = tracker
        self._tracked_to = tracked_to
        self._bases = (one.base_offset for one in following)
        self._base = next(self._bases, MAX_OFFSET)
        self.begins: dict[int, int] = {}
        self._builder = IndexBuilder(log.base_offset)
        self._scanner = SegmentScanner(
            base_offset=log.base_offset,
            next_offset=log.end_limit,
            on_batch=self._on_batch,
            on_control=self._on_control,
        )
        self.has_transactions = False
        self._theirs: dict[int, int] = {}
        self._astray = 0

    def compare(self, offset_index: bytes, time_index: bytes) -> None:
        """Their indexes of this log, before it is read. Corrupt: they are damaged."""
        index = OffsetIndex(memoryview(offset_index), self._log.base_offset)
        index.check(self._log.size_bytes)
        TimeIndex(memoryview(time_index), self._log.base_offset).check()
        for offset, position in map(index.entry, range(len(index))):
            self._theirs[position] = offset

    @property
    def astray(self) -> int:
        """How many entries of their offset index lead to no batch with that offset."""
        return self._astray + len(self._theirs)

    async def read(self, objects: Readable, name: str) -> SegmentScan:
        """Corrupt names what is wrong with it; Unavailable: it is shorter than it was listed."""
        position = 0
        while position < self._log.size_bytes:
            end = min(position + READ_BYTES, self._log.size_bytes)
            piece = await read_piece(objects, name, ByteRange(start=position, end=end))
            try:
                self._scanner.feed(piece)
            except Corrupt as error:
                raise Corrupt(f"{name}: {error}") from error
            position = end
        try:
            return self._scanner.finish()
        except Corrupt as error:
            raise Corrupt(f"{name}: {error}") from error

    def indexes(self) -> tuple[bytes, bytes]:
        """Offset and time index, after the whole log."""
        return self._builder.finish()

    def _on_batch(self, position: int, header: BatchHeader) -> None:
        self._builder.add(position, header)
        while self._base <= header.last_offset:
            if self._base == header.base_offset:
                self.begins[self._base] = position
            self._base = next(self._bases, MAX_OFFSET)
        indexed = self._theirs.pop(position, None)
        self._astray += indexed is not None and indexed < header.base_offset
        if header.is_transactional:
            self.has_transactions = True
            if not header.is_control and header.base_offset >= self._tracked_to:
                self._tracker.data(header)

    def _on_control(self, header: BatchHeader, buffer: ByteBuffer, position: int) -> None:
        if not header.is_transactional or header.base_offset < self._tracked_to:
            return  # of KRaft, not of a transaction; or known from the log before
        marker = next(records(buffer, position), None)
        if marker is not None and marker.control_type in (ControlType.ABORT, ControlType.COMMIT):
            is_abort = marker.control_type == ControlType.ABORT
            self._tracker.marker(header, is_abort=is_abort)
