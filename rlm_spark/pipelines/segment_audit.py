"""Audits every byte of one segment: its objects agree with the ledger and can be decoded.

The audit continues after a finding and checks whatever it still can. Memory is bounded by one
range, one batch and the indexes. This module must not know where the bytes come from.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kip405.batches import read_header, size_at
from kip405.checkpoints import parse_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import ChunkedCrc32c, crc32c
from kip405.errors import Corrupt
from kip405.indexes import (
    ChunkChecksums,
    IndexesObject,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
    transaction_index,
)
from kip405.lineage import Lineage
from kip405.scan import DEFAULT_CHUNK_BYTES, SegmentScan, SegmentScanner
from rlm_spark.decode import arrow_schema, record_batches
from rlm_spark.errors import DecodeError
from rlm_spark.pipelines.findings import AuditedSegment, Finding, FindingKind
from rlm_spark.values import Fetched, OffsetRange

_MOST_CHUNKS_NAMED = 5
_NEEDED = (
    IndexType.OFFSET,
    IndexType.TIMESTAMP,
    IndexType.LEADER_EPOCH,
    IndexType.ABORTED_TRANSACTIONS,
    IndexType.CHUNK_CHECKSUMS,
)


class BadObject(Exception):
    """The store does not have the object, or cannot read it."""

    def __init__(self, kind: FindingKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


class Objects(Protocol):
    """The bytes of one segment's objects, unchecked. BadObject; other errors are not about the
    data.
    """

    def indexes(self) -> bytes:
        """The whole object."""
        ...

    def log(self) -> Iterator[bytes]:
        """The whole object in pieces, and one byte more than expected if it has one."""
        ...


@dataclass(slots=True, kw_only=True)
class SegmentAudit:
    """The result of one segment."""

    segment: AuditedSegment
    findings: list[Finding] = field(default_factory=list)
    records: int = 0
    size_bytes: int = 0

    def _found(self, kind: FindingKind, suffix: str, detail: str) -> None:
        self.findings.append(self.segment.finding(kind, suffix, detail))

    def run(self, objects: Objects) -> "SegmentAudit":
        """Check everything; errors that are not about the data pass through."""
        try:
            self.segment.custom()
        except ValueError as error:
            self._found(FindingKind.METADATA, "log", str(error))
        positions: dict[int, int] = {}
        parsed = self._indexes(objects)
        is_whole = self._log(objects, _checksums(parsed, self.segment.size_bytes), positions)
        if parsed is not None and is_whole:
            self._offset_index(parsed, positions)
        return self

    # -- indexes

    def _indexes(self, objects: Objects) -> IndexesObject | None:
        try:
            data = objects.indexes()
        except BadObject as error:
            self._found(error.kind, "indexes", error.detail)
            return None
        self.size_bytes += len(data)
        self._check_whole("indexes", len(data), crc32c(data))
        try:
            parsed = IndexesObject.parse(data, check_sections=True)
        except Corrupt as error:
            self._found(FindingKind.INDEXES, "indexes", str(error))
            return None
        for missing in (one for one in _NEEDED if one not in parsed.types):
            kind = FindingKind.INDEXES
            if missing is IndexType.ABORTED_TRANSACTIONS:
                kind = FindingKind.ABORTED
            self._found(kind, "indexes", f"it has no section {missing.name.lower()}")
        for check in (self._offsets, self._times, self._epochs, self._aborted, self._chunks):
            try:
                check(parsed)
            except Corrupt as error:
                self._found(FindingKind.INDEXES, "indexes", str(error))
        return parsed

    def _check_whole(self, suffix: str, size_bytes: int, crc: int) -> None:
        try:
            custom = self.segment.custom()
        except ValueError:
            return
        of_log = suffix == "log"
        size = self.segment.size_bytes if of_log else custom.indexes_size_bytes
        wanted = custom.log_crc32c if of_log else custom.indexes_crc32c
        if size_bytes != size:
            self._found(FindingKind.SIZE, suffix, f"it has {size_bytes} bytes, not {size}")
        elif crc != wanted:
            self._found(FindingKind.CHECKSUM, suffix, f"its crc32c is {crc:08x}, not {wanted:08x}")

    def _offsets(self, parsed: IndexesObject) -> None:
        section = parsed.section(IndexType.OFFSET)
        if section is not None:
            index = OffsetIndex(section, self.segment.metadata.start_offset)
            index.check(self.segment.size_bytes)

    def _times(self, parsed: IndexesObject) -> None:
        section = parsed.section(IndexType.TIMESTAMP)
        if section is not None:
            TimeIndex(section, self.segment.metadata.start_offset).check()

    def _chunks(self, parsed: IndexesObject) -> None:
        section = parsed.section(IndexType.CHUNK_CHECKSUMS)
        if section is not None:
            ChunkChecksums.decode(section, self.segment.size_bytes)

    def _epochs(self, parsed: IndexesObject) -> None:
        """The lineage stored beside the segment has the epochs of its metadata."""
        section = parsed.section(IndexType.LEADER_EPOCH)
        if section is None:
            return
        try:
            stored = parse_leader_epochs(bytes(section))
            recorded = Lineage.of(self.segment.metadata.segment_leader_epochs)
        except ValueError as error:
            self._found(FindingKind.EPOCHS, "indexes", str(error))
            return
        for entry in recorded.entries:
            if stored.epoch_for_offset(entry.start_offset) != entry.epoch:
                self._found(
                    FindingKind.EPOCHS,
                    "indexes",
                    f"its lineage has another epoch than {entry.epoch} at {entry.start_offset}",
                )

    def _aborted(self, parsed: IndexesObject) -> None:
        """The aborted list is readable and contains at least the segment's own index."""
        section = parsed.section(IndexType.ABORTED_TRANSACTIONS)
        own = parsed.section(IndexType.TRANSACTION)
        listed = set() if section is None else set(decode_aborted(section))
        metadata = self.segment.metadata
        needed = {
            entry.aborted
            for entry in (() if own is None else transaction_index(own))
            if entry.aborted.first_offset < metadata.next_offset
            and entry.aborted.last_offset >= metadata.start_offset
        }
        if lacking := sorted(needed - listed):
            self._found(
                FindingKind.ABORTED,
                "indexes",
                f"its aborted list lacks {len(lacking)} transactions, the first from offset "
                f"{lacking[0].first_offset}",
            )

    # -- log

    def _log(
        self, objects: Objects, checksums: ChunkChecksums | None, positions: dict[int, int]
    ) -> bool:
        """Whether it consists of whole batches, whose `positions` are then all reported."""
        metadata = self.segment.metadata
        chunk_bytes = DEFAULT_CHUNK_BYTES if checksums is None else checksums.chunk_size_bytes
        whole = ChunkedCrc32c(chunk_bytes)
        scanner = SegmentScanner(
            base_offset=metadata.start_offset, next_offset=metadata.next_offset
        )
        log = _Log(objects, whole, scanner, positions, metadata.start_offset)
        try:
            self._decode(log)
            log.drain()
        except BadObject as error:
            self._found(error.kind, "log", error.detail)
            return False
        self.size_bytes += whole.size_bytes
        self._check_whole("log", whole.size_bytes, whole.whole)
        self._check_chunks(checksums, whole)
        try:
            if log.problem is not None:
                raise log.problem
            scan = scanner.finish()
        except Corrupt as error:
            self._found(FindingKind.BATCH, "log", str(error))
            return False
        self._check_scan(scan)
        return True

    def _decode(self, log: "_Log") -> None:
        """Every record once through the decoder, as readers do."""
        metadata = self.segment.metadata
        wanted = OffsetRange(
            topic_partition=self.segment.topic_partition,
            start_offset=metadata.start_offset,
            end_offset=metadata.next_offset,
        )
        try:
            for batch in record_batches(
                log.pieces(), wanted, arrow_schema(("offset",)), read_committed=False
            ):
                self.records += batch.num_rows
        except DecodeError as error:
            self._found(FindingKind.RECORDS, "log", str(error))

    def _check_chunks(self, checksums: ChunkChecksums | None, whole: ChunkedCrc32c) -> None:
        if checksums is None:
            return
        pairs = itertools.zip_longest(whole.chunks, checksums.crcs)
        bad = [index for index, (found, wanted) in enumerate(pairs) if found != wanted]
        if bad:
            named = ", ".join(map(str, bad[:_MOST_CHUNKS_NAMED]))
            more = f" and {len(bad) - _MOST_CHUNKS_NAMED} more" if bad[_MOST_CHUNKS_NAMED:] else ""
            self._found(
                FindingKind.CHECKSUM,
                "log",
                f"chunks of {checksums.chunk_size_bytes} bytes that are not as stored: "
                f"{named}{more}",
            )

    def _check_scan(self, scan: SegmentScan) -> None:
        metadata = self.segment.metadata
        if scan.last_offset != metadata.end_offset:
            self._found(
                FindingKind.OFFSETS,
                "log",
                f"its last offset is {scan.last_offset}, not {metadata.end_offset}",
            )
        try:
            recorded = Lineage.of(metadata.segment_leader_epochs)
        except ValueError as error:
            self._found(FindingKind.EPOCHS, "log", f"epochs of its metadata: {error}")
            return
        if recorded.first is None or not scan.agrees_with(recorded):
            self._found(
                FindingKind.EPOCHS, "log", "its batches have other epochs than its metadata"
            )

    def _offset_index(self, parsed: IndexesObject, positions: dict[int, int]) -> None:
        """Each entry leads to a batch at or before its offset."""
        section = parsed.section(IndexType.OFFSET)
        if section is None:
            return
        index = OffsetIndex(section, self.segment.metadata.start_offset)
        wrong = [
            entry
            for entry in map(index.entry, range(len(index)))
            if positions.get(entry[1], entry[0] + 1) > entry[0]
        ]
        if wrong:
            offset, position = wrong[0]
            self._found(
                FindingKind.INDEXES,
                "indexes",
                f"offset index: {len(wrong)} entries lead astray, the first for offset {offset} "
                f"to byte {position}",
            )


class _Log:
    """Passes the pieces of a log object to the decoder and runs all other checks on them."""

    def __init__(
        self,
        objects: Objects,
        whole: ChunkedCrc32c,
        scanner: SegmentScanner,
        positions: dict[int, int],
        start_offset: int,
    ) -> None:
        self._source = self._seen(objects.log())
        self._whole = whole
        self._scanner = scanner
        self._positions = positions
        self._next_offset = start_offset
        self.problem: Corrupt | None = None

    def _seen(self, source: Iterator[bytes]) -> Iterator[bytes]:
        for data in source:
            self._whole.update(data)
            if self.problem is None:
                try:
                    self._scanner.feed(data)
                except Corrupt as error:
                    self.problem = error
            yield data

    def drain(self) -> None:
        """Check the rest too, if decoding ended early."""
        for _ in self._source:
            pass

    def pieces(self) -> Iterator[Fetched]:
        """Whole batches; ends before the first bytes that are not a whole batch."""
        carry, at = b"", 0
        for data in self._source:
            buffer = carry + data if carry else data
            try:
                end, last = self._whole_batches(buffer, at)
            except Corrupt:
                return
            if end:
                start, self._next_offset = self._next_offset, last + 1
                yield Fetched(
                    batches=buffer[:end], start_offset=start, next_offset=self._next_offset
                )
            carry, at = buffer[end:], at + end

    def _whole_batches(self, buffer: bytes, at: int) -> tuple[int, int]:
        """Where the last whole batch of the buffer ends, and its last offset."""
        position, last = 0, -1
        while (size := size_at(buffer, position)) and position + size <= len(buffer):
            header = read_header(buffer, position)
            self._positions[at + position] = header.base_offset
            position, last = position + size, header.last_offset
        return position, last


def _checksums(parsed: IndexesObject | None, size_bytes: int) -> ChunkChecksums | None:
    section = None if parsed is None else parsed.section(IndexType.CHUNK_CHECKSUMS)
    if section is None:
        return None
    try:
        return ChunkChecksums.decode(section, size_bytes)
    except Corrupt:
        return None
