"""Checks every byte of one segment's objects against its metadata, without decoding records.

`rlm verify --deep` and the audit on Spark run these checks. They continue after a flaw and check
whatever they still can. Sans-IO: the caller feeds the indexes object first, then the log object in
pieces. Memory is bounded by one batch and the indexes. This module must not know where the bytes
come from.
"""

import enum
import itertools
from dataclasses import dataclass

from kip405.batches import BatchHeader
from kip405.checkpoints import parse_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import ByteBuffer, ChunkedCrc32c, crc32c
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
from kip405.segments import RemoteLogSegmentMetadata

_MOST_CHUNKS_NAMED = 5
_NEEDED = (
    IndexType.OFFSET,
    IndexType.TIMESTAMP,
    IndexType.LEADER_EPOCH,
    IndexType.ABORTED_TRANSACTIONS,
    IndexType.CHUNK_CHECKSUMS,
)
LOG = "log"
INDEXES = "indexes"


class FlawKind(enum.Enum):
    """Kinds of flaws; each means that data, or metadata that leads to it, is wrong. The words are
    an interface: `rlm audit` and `rlm verify` print them.
    """

    METADATA = "metadata"
    MISSING = "missing"
    SIZE = "size"
    CHECKSUM = "checksum"
    INDEXES = "indexes"
    BATCH = "batch"
    OFFSETS = "offsets"
    EPOCHS = "epochs"
    RECORDS = "records"
    ABORTED = "aborted"
    HOLE = "hole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One thing that is wrong with a segment. `suffix` names the object, log or indexes; in other
    layouts than `kafka` the object that has them (rsm_plugins.layout.keys.suffix_in).
    """

    kind: FlawKind
    suffix: str
    detail: str


class SegmentCheck:
    """Feed `indexes` if that object can be read, then `feed` the log object, then `finish` it.

    `flaws` grow meanwhile; `size_bytes` counts the bytes that were checked.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._metadata = metadata
        self.flaws: list[Flaw] = []
        self.size_bytes = 0
        self._checksums: ChunkChecksums | None = None
        self._whole = ChunkedCrc32c(DEFAULT_CHUNK_BYTES)
        self._scanner = SegmentScanner(
            base_offset=metadata.start_offset,
            next_offset=metadata.next_offset,
            on_batch=self._on_batch,
        )
        self._problem: Corrupt | None = None
        self._indexed: dict[int, int] = {}
        self._astray: list[tuple[int, int]] = []
        try:
            metadata.custom()
        except ValueError as error:
            self.found(FlawKind.METADATA, LOG, str(error))

    def found(self, kind: FlawKind, suffix: str, detail: str) -> None:
        """Add a flaw; also one that the caller found."""
        self.flaws.append(Flaw(kind=kind, suffix=suffix, detail=detail))

    # -- indexes

    def indexes(self, data: bytes) -> None:
        """The whole indexes object."""
        self.size_bytes += len(data)
        self._check_whole(INDEXES, len(data), crc32c(data))
        try:
            parsed = IndexesObject.parse(data, check_sections=True)
        except Corrupt as error:
            self.found(FlawKind.INDEXES, INDEXES, str(error))
            return
        for missing in (one for one in _NEEDED if one not in parsed.types):
            kind = FlawKind.INDEXES
            if missing is IndexType.ABORTED_TRANSACTIONS:
                kind = FlawKind.ABORTED
            self.found(kind, INDEXES, f"it has no section {missing.name.lower()}")
        for check in (self._offsets, self._times, self._epochs, self._aborted, self._chunks):
            try:
                check(parsed)
            except Corrupt as error:
                self.found(FlawKind.INDEXES, INDEXES, str(error))

    def _check_whole(self, suffix: str, size_bytes: int, crc: int) -> None:
        try:
            custom = self._metadata.custom()
        except ValueError:
            return
        of_log = suffix == LOG
        size = self._metadata.segment_size_bytes if of_log else custom.indexes_size_bytes
        wanted = custom.log_crc32c if of_log else custom.indexes_crc32c
        if size_bytes != size:
            self.found(FlawKind.SIZE, suffix, f"it has {size_bytes} bytes, not {size}")
        elif crc != wanted:
            self.found(FlawKind.CHECKSUM, suffix, f"its crc32c is {crc:08x}, not {wanted:08x}")

    def _offsets(self, parsed: IndexesObject) -> None:
        section = parsed.section(IndexType.OFFSET)
        if section is None:
            return
        index = OffsetIndex(section, self._metadata.start_offset)
        for offset, position in map(index.entry, range(len(index))):
            self._indexed[position] = min(offset, self._indexed.get(position, offset))
        index.check(self._metadata.segment_size_bytes)

    def _times(self, parsed: IndexesObject) -> None:
        section = parsed.section(IndexType.TIMESTAMP)
        if section is not None:
            TimeIndex(section, self._metadata.start_offset).check()

    def _chunks(self, parsed: IndexesObject) -> None:
        section = parsed.section(IndexType.CHUNK_CHECKSUMS)
        if section is not None:
            self._checksums = ChunkChecksums.decode(section, self._metadata.segment_size_bytes)
            self._whole = ChunkedCrc32c(self._checksums.chunk_size_bytes)

    def _epochs(self, parsed: IndexesObject) -> None:
        """The lineage stored beside the segment has the epochs of its metadata."""
        section = parsed.section(IndexType.LEADER_EPOCH)
        if section is None:
            return
        try:
            stored = parse_leader_epochs(bytes(section))
            recorded = Lineage.of(self._metadata.segment_leader_epochs)
        except ValueError as error:
            self.found(FlawKind.EPOCHS, INDEXES, str(error))
            return
        for entry in recorded.entries:
            if stored.epoch_for_offset(entry.start_offset) != entry.epoch:
                self.found(
                    FlawKind.EPOCHS,
                    INDEXES,
                    f"its lineage has another epoch than {entry.epoch} at {entry.start_offset}",
                )

    def _aborted(self, parsed: IndexesObject) -> None:
        """The aborted list is readable and contains at least the segment's own index."""
        section = parsed.section(IndexType.ABORTED_TRANSACTIONS)
        own = parsed.section(IndexType.TRANSACTION)
        listed = set() if section is None else set(decode_aborted(section))
        metadata = self._metadata
        needed = {
            entry.aborted
            for entry in (() if own is None else transaction_index(own))
            if entry.aborted.first_offset < metadata.next_offset
            and entry.aborted.last_offset >= metadata.start_offset
        }
        if lacking := sorted(needed - listed):
            self.found(
                FlawKind.ABORTED,
                INDEXES,
                f"its aborted list lacks {len(lacking)} transactions, the first from offset "
                f"{lacking[0].first_offset}",
            )

    # -- log

    def feed(self, data: ByteBuffer) -> None:
        """The next bytes of the log object, any number of them."""
        self._whole.update(data)
        if self._problem is None:
            try:
                self._scanner.feed(data)
            except Corrupt as error:
                self._problem = error

    def finish(self) -> None:
        """The log object has ended."""
        self.size_bytes += self._whole.size_bytes
        self._check_whole(LOG, self._whole.size_bytes, self._whole.whole)
        self._check_chunks()
        try:
            if self._problem is not None:
                raise self._problem
            scan = self._scanner.finish()
        except Corrupt as error:
            self.found(FlawKind.BATCH, LOG, str(error))
            return
        self._check_scan(scan)
        self._check_offset_index()

    def _on_batch(self, position: int, header: BatchHeader) -> None:
        """An index entry leads to the batch at its position, which begins at or before it."""
        lowest = self._indexed.pop(position, None)
        if lowest is not None and header.base_offset > lowest:
            self._astray.append((lowest, position))

    def _check_chunks(self) -> None:
        checksums = self._checksums
        if checksums is None:
            return
        pairs = itertools.zip_longest(self._whole.chunks, checksums.crcs)
        bad = [index for index, (found, wanted) in enumerate(pairs) if found != wanted]
        if bad:
            named = ", ".join(map(str, bad[:_MOST_CHUNKS_NAMED]))
            more = f" and {len(bad) - _MOST_CHUNKS_NAMED} more" if bad[_MOST_CHUNKS_NAMED:] else ""
            self.found(
                FlawKind.CHECKSUM,
                LOG,
                f"chunks of {checksums.chunk_size_bytes} bytes that are not as stored: "
                f"{named}{more}",
            )

    def _check_scan(self, scan: SegmentScan) -> None:
        metadata = self._metadata
        if scan.last_offset != metadata.end_offset:
            self.found(
                FlawKind.OFFSETS,
                LOG,
                f"its last offset is {scan.last_offset}, not {metadata.end_offset}",
            )
        try:
            recorded = Lineage.of(metadata.segment_leader_epochs)
        except ValueError as error:
            self.found(FlawKind.EPOCHS, LOG, f"epochs of its metadata: {error}")
            return
        if recorded.first is None or not scan.agrees_with(recorded):
            self.found(FlawKind.EPOCHS, LOG, "its batches have other epochs than its metadata")

    def _check_offset_index(self) -> None:
        """Entries whose position no batch begins at are left over."""
        self._astray += [(offset, position) for position, offset in self._indexed.items()]
        if self._astray:
            offset, position = min(self._astray)
            self.found(
                FlawKind.INDEXES,
                INDEXES,
                f"offset index: {len(self._astray)} entries lead astray, the first for offset "
                f"{offset} to byte {position}",
            )
