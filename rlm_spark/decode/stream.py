"""`record_batches`: decodes the pieces of a range into Arrow record batches.

A scan selects the records that count, batch by batch. It checks checksums, skips control batches,
aborted transactions (CompletedFetch of Kafka's consumer) and offsets that are repeated or outside
of the range, and decompresses with a limit. A decoder (`engine`) fills buffers with these records,
and `assembly` makes Arrow batches of the buffers. This module must not know where pieces come from.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kip405.batches import HEADER_BYTES, BatchHeader, Compression, read_header
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid
from kip405.records import MAX_RECORDS_BYTES, ControlType, Scratch, records
from rlm_spark.decode.assembly import Assembly
from rlm_spark.decode.engine import Engine, RowBuilder, Rows, Section, choose
from tiered_reads.errors import DecodeError
from tiered_reads.values import Fetched, OffsetRange

_CRC_FROM = 21
_MAX_OFFSET = (1 << 63) - 1


class Scan:
    """One pass over the pieces of one range."""

    def __init__(
        self,
        engine: Engine,
        wanted: OffsetRange,
        *,
        read_committed: bool,
        max_records_bytes: int = MAX_RECORDS_BYTES,
    ) -> None:
        self._crc32c = engine.crc32c
        self._wanted = wanted
        self._read_committed = read_committed
        self._max_records_bytes = max_records_bytes
        self._scratch = Scratch()
        self._next_offset = wanted.start_offset

    def sections(self, pieces: Iterable[Fetched]) -> Iterator[tuple[Section, int]]:
        """Every section with a wanted record, and the byte at which it begins.

        A section's data is valid until the next one is asked for. DecodeError for bytes that are
        not batches. Pieces are not asked for beyond the end of the range.
        """
        for piece in pieces:
            yield from self._piece(piece)
            if self._next_offset >= self._wanted.end_offset:
                return

    def _piece(self, piece: Fetched) -> Iterator[tuple[Section, int]]:
        batches = piece.batches
        # Lower offsets belong to another piece, or are deleted (a log start inside of a batch).
        self._next_offset = max(self._next_offset, piece.start_offset)
        aborted = _Aborted(piece.aborted if self._read_committed else ())
        position = 0
        while position < len(batches):
            header = self._header(batches, position)
            if header.base_offset >= self._wanted.end_offset:
                self._next_offset = header.base_offset
                return
            try:
                if self._is_wanted(batches, position, header, aborted):
                    yield self._section(batches, position, header)
            except (Corrupt, Invalid) as error:
                raise self.error(header.base_offset, str(error)) from error
            self._next_offset = max(self._next_offset, header.next_offset)
            position += header.size_bytes

    def error(self, offset: int, reason: str) -> DecodeError:
        """The error with the partition and the offset."""
        topic_partition = self._wanted.topic_partition
        return DecodeError(topic_partition.topic, topic_partition.partition, offset, reason)

    def _header(self, batches: ByteBuffer, position: int) -> BatchHeader:
        try:
            header = read_header(batches, position)
        except Corrupt as error:
            raise self.error(self._next_offset, str(error)) from error
        offset = header.base_offset
        if header.size_bytes > len(batches) - position:
            raise self.error(
                offset,
                f"batch at position {position} is cut short: "
                f"{len(batches) - position} of {header.size_bytes} bytes",
            )
        if header.magic < 2:
            raise self.error(offset, f"records of magic {header.magic} stay opaque")
        if header.last_offset >= _MAX_OFFSET:
            raise self.error(offset, f"batch claims to end at offset {header.last_offset}")
        return header

    def _is_wanted(
        self, batches: ByteBuffer, position: int, header: BatchHeader, aborted: "_Aborted"
    ) -> bool:
        """Whether the batch may have wanted records; tracks transactions. Corrupt: checksum."""
        end = position + header.size_bytes
        found = self._crc32c(batches, position + _CRC_FROM, end)
        if found != header.crc:
            raise Corrupt(f"crc of the batch is {found:08x}, its header says {header.crc:08x}")
        aborted.reach(header.last_offset)
        if header.is_control:
            aborted.end(header, memoryview(batches)[position:end])
            return False
        if header.is_transactional and header.producer_id in aborted.producer_ids:
            return False
        return header.last_offset >= self._next_offset and not _is_empty(header)

    def _section(
        self, batches: ByteBuffer, position: int, header: BatchHeader
    ) -> tuple[Section, int]:
        start, end = position + HEADER_BYTES, position + header.size_bytes
        data = batches
        if header.compression is not Compression.NONE:
            body = memoryview(batches)[start:end]
            data = self._scratch.decompress(header.compression, body, self._max_records_bytes)
            start, end = 0, len(data)
        by_broker = header.is_log_append_time
        section = Section(
            data=data,
            end=end,
            record_count=header.record_count,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            timestamp_ms=header.max_timestamp_ms if by_broker else header.base_timestamp_ms,
            is_log_append_time=by_broker,
            first_offset=self._next_offset,
            until_offset=self._wanted.end_offset,
        )
        return section, start


def _is_empty(header: BatchHeader) -> bool:
    """Whether compaction has removed all records of the batch and left only its header."""
    return header.record_count == 0 and header.size_bytes == HEADER_BYTES


class _Aborted:
    """Producers inside an aborted transaction, as the batches of one piece go by."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self.producer_ids: set[int] = set()

    def reach(self, last_offset: int) -> None:
        """Transactions that begin at or below the offset are open from here on."""
        while self._ahead and self._ahead[-1][0] <= last_offset:
            self.producer_ids.add(self._ahead.pop()[1])

    def end(self, header: BatchHeader, batch: ByteBuffer) -> None:
        """A control batch: an abort marker ends its producer's transaction."""
        if header.producer_id not in self.producer_ids:
            return
        if any(record.control_type == ControlType.ABORT for record in records(batch)):
            self.producer_ids.discard(header.producer_id)


# Measured: smaller batches are slower, larger ones win nothing.
TARGET_BYTES = 2 << 20


def record_batches(
    pieces: Iterable[Fetched],
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    read_committed: bool,
    target_bytes: int = TARGET_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The user's records of the range in order, as batches of exactly `schema`: any columns of
    COLUMNS in any order.

    Batches have about target_bytes, at most twice that or one record. No rows, no batch. Pieces
    are asked for only until the range is covered; offsets they repeat are given once. DecodeError
    for stored bytes that are not records; ValueError for a schema that records do not have.
    """
    engine = choose()
    assembly = Assembly(schema, wanted.topic_partition)
    builder = engine.RowBuilder(assembly.columns, target_bytes, assembly.constant_row_bytes)
    scan = Scan(engine, wanted, read_committed=read_committed)
    for section, start in scan.sections(pieces):
        for rows in _full(scan, builder, section, start):
            yield assembly.batch(rows)
    if builder.row_count:
        yield assembly.batch(Rows._make(builder.finish()))


def _full(scan: Scan, builder: RowBuilder, section: Section, position: int) -> Iterator[Rows]:
    """Append the whole section; yields the builder's rows whenever it is full."""
    index = 0
    while True:
        try:
            position, index = builder.append(section, position, index)
        except ValueError as error:
            raise scan.error(section.base_offset, str(error)) from error
        if index == section.record_count:
            return
        yield Rows._make(builder.finish())
