"""Verifies a segment file in one pass and reports what it holds.

The scan proves what is copied (H13): magic, length and checksum of every batch, ascending offsets
within the segment's range, and the leader epochs from the batches themselves. Sans-IO: the caller
feeds bytes in large pieces; memory is bounded by one batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kip405.batches import NO_EPOCH, BatchHeader, check_crc, read_header, size_at
from kip405.crc import ByteBuffer, ChunkedCrc32c
from kip405.errors import Corrupt
from kip405.ids import MAX_OFFSET
from kip405.lineage import Lineage
from kip405.segments import EpochEntry

# Kafka's largest request is 100 MiB by default; a batch that claims more counts as a torn length.
MAX_BATCH_BYTES = 256 * 1024 * 1024
DEFAULT_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentScan:
    """What a whole segment file holds.

    first_offset and last_offset are those of records (inclusive); epochs are the batches' own with
    the base offset of their first batch, last_base_offsets that of the last batch under each (same
    order). crc32c is the whole file's.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    last_base_offsets: tuple[int, ...]
    batch_count: int
    size_bytes: int
    crc32c: int
    chunk_size_bytes: int
    chunk_crcs: tuple[int, ...]
    has_transactions: bool

    def agrees_with(self, lineage: Lineage) -> bool:
        """Whether every batch was written under the epoch that the lineage has for its offset
        (H13), from the lineage's first offset on.

        A DeleteRecords into the middle of the first segment moves the start of the broker's epoch
        file: offsets below that start cannot be compared (H8).
        """
        first = lineage.first
        if first is None:
            return not self.epochs
        return all(
            lineage.epoch_for_offset(offset) == entry.epoch
            for entry, last_base in zip(self.epochs, self.last_base_offsets, strict=True)
            for offset in (entry.start_offset, last_base)
            if offset >= first.start_offset
        )


class SegmentScanner:
    """Feed a segment file from its first byte on, then `finish`. Corrupt names the position in the
    file. `on_batch` gets the position and header of each verified batch, `on_control` the header of
    each control batch with the buffer and position it is at, valid during the call.
    """

    def __init__(
        self,
        *,
        base_offset: int,
        next_offset: int = MAX_OFFSET,
        chunk_size_bytes: int = DEFAULT_CHUNK_BYTES,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_batch: Callable[[int, BatchHeader], None] | None = None,
        on_control: Callable[[BatchHeader, ByteBuffer, int], None] | None = None,
    ) -> None:
        self._on_batch = on_batch
        self._on_control = on_control
        self._next_offset = next_offset
        self._chunk_size_bytes = chunk_size_bytes
        self._max_batch_bytes = max_batch_bytes
        self._checksums = ChunkedCrc32c(chunk_size_bytes)
        self._carry = bytearray()
        self._position = 0
        self._least_offset = base_offset
        self._first_offset = -1
        self._max_timestamp_ms = -1
        self._epochs: list[EpochEntry] = []
        self._last_base_offsets: list[int] = []
        self._batch_count = 0
        self._has_transactions = False

    def feed(self, data: ByteBuffer) -> None:
        """The next bytes of the file, any number of them; a batch may straddle feeds."""
        self._checksums.update(data)
        view = memoryview(data)
        position = self._finish_carried(view)
        while (size := self._size_at(view, position)) is not None and size <= len(view) - position:
            self._batch(view, position)
            position += size
        self._carry += view[position:]

    def _finish_carried(self, view: memoryview) -> int:
        """Complete the batch that the last feed left unfinished; how many bytes of the view that
        took.
        """
        position = 0
        while self._carry:
            size = self._size_at(self._carry, 0)
            wanted = (12 if size is None else size) - len(self._carry)
            taken = view[position : position + wanted]
            self._carry += taken
            position += len(taken)
            if len(taken) < wanted:
                break
            if size is not None:
                self._batch(self._carry, 0)
                self._carry = bytearray()
        return position

    def _size_at(self, buffer: ByteBuffer, position: int) -> int | None:
        try:
            size = size_at(buffer, position)
        except Corrupt as error:
            raise Corrupt(f"at file position {self._position}: {error}") from error
        if size is not None and size > self._max_batch_bytes:
            raise Corrupt(f"at file position {self._position}: batch claims {size} bytes")
        return size

    def _batch(self, buffer: ByteBuffer, position: int) -> None:
        try:
            header = read_header(buffer, position)
            check_crc(buffer, position, header)
        except Corrupt as error:
            raise Corrupt(f"at file position {self._position}: {error}") from error
        self._check_offsets(header)
        self._note_epoch(header)
        if self._on_batch is not None:
            self._on_batch(self._position, header)
        if self._on_control is not None and header.is_control:
            self._on_control(header, buffer, position)
        if self._batch_count == 0:
            self._first_offset = header.base_offset
        self._batch_count += 1
        self._position += header.size_bytes
        self._least_offset = header.last_offset + 1
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)
        self._has_transactions = self._has_transactions or header.is_transactional

    def _check_offsets(self, header: BatchHeader) -> None:
        if not self._least_offset <= header.base_offset <= header.last_offset < self._next_offset:
            raise Corrupt(
                f"at file position {self._position}: "
                f"offsets {header.base_offset}..{header.last_offset}, "
                f"expected within {self._least_offset}..{self._next_offset - 1}"
            )

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch == NO_EPOCH:
            return
        known = self._epochs[-1].epoch if self._epochs else NO_EPOCH
        if header.leader_epoch < known:
            raise Corrupt(
                f"at file position {self._position}: epoch {header.leader_epoch} after {known}"
            )
        if header.leader_epoch > known:
            self._epochs.append(
                EpochEntry(epoch=header.leader_epoch, start_offset=header.base_offset)
            )
            self._last_base_offsets.append(header.base_offset)
        self._last_base_offsets[-1] = header.base_offset

    def finish(self) -> SegmentScan:
        """The whole; Corrupt where the file ends inside a batch or holds none."""
        if self._carry:
            raise Corrupt(
                f"at file position {self._position}: batch cut short at {len(self._carry)} bytes"
            )
        if self._batch_count == 0:
            raise Corrupt("the segment holds no batch")
        return SegmentScan(
            first_offset=self._first_offset,
            last_offset=self._least_offset - 1,
            max_timestamp_ms=self._max_timestamp_ms,
            epochs=tuple(self._epochs),
            last_base_offsets=tuple(self._last_base_offsets),
            batch_count=self._batch_count,
            size_bytes=self._checksums.size_bytes,
            crc32c=self._checksums.whole,
            chunk_size_bytes=self._chunk_size_bytes,
            chunk_crcs=self._checksums.chunks,
            has_transactions=self._has_transactions,
        )
