"""Prepares what one copy uploads: the verified segment and its indexes object. Blocking work.

One pass over the .log checks every batch and computes the checksums; indexes are checked before the
upload (G9). The aborted-transaction list is complete (H9): the .txnindex files are read forward,
into later segments too, until everything that began below the segment's end is decided.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kip405.checkpoints import encode_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import ByteBuffer, crc32c
from kip405.errors import Corrupt, Fenced, Unavailable
from kip405.indexes import (
    ChunkChecksums,
    OffsetIndex,
    TimeIndex,
    build_indexes_object,
    complete_aborted_list,
    encode_aborted,
)
from kip405.lineage import Lineage
from kip405.remote_index import EntryBuilder
from kip405.scan import SegmentScan, SegmentScanner
from kip405.segments import EpochEntry, FileSlice, LogSegmentData
from rlm.log_dir.scanner import Closed, LocalSegment, PartitionLog, sample

_READ_BYTES = 256 * 1024
"""Small enough to stay in the processor's cache until it is checked."""


class DamagedSegment(Corrupt):
    """The bytes in the log are damaged, or not of its lineage (H13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSegment:
    """Ready to upload. `file` is (inode, size) from before the first byte was read."""

    segment: LocalSegment
    file: tuple[int, int]
    next_offset: int
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    data: LogSegmentData
    txn_index_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteIndexEntries:
    """What the entries of section 18 name: `<store id>/<key of the log object>`; one for so many
    bytes of the log.
    """

    remote_object: str
    interval_bytes: int


def prepare(
    log: PartitionLog, segment: LocalSegment, lineage: Lineage, entries: RemoteIndexEntries
) -> PreparedSegment:
    """Read and check one closed segment; DamagedSegment if that fails.

    `log` must have been scanned after the broker answered a last stable offset at or above the
    segment's end. Fenced: the file changed or is gone.
    """
    if segment.next_offset is None:
        raise ValueError(f"{segment.path} is active")
    file = sample(segment)
    if file != (segment.inode, segment.size_bytes):
        raise Fenced(f"{segment.path} changed since it was planned")
    try:
        builder = EntryBuilder(entries.remote_object, entries.interval_bytes)
        scan = _scan(segment, segment.next_offset, builder)
        if not scan.agrees_with(lineage):
            raise Corrupt("its batches' leader epochs disagree with the leader-epoch checkpoint")
        own_aborted = _read(segment.sibling(".txnindex"), optional=True)
        indexes = build_indexes_object(
            {
                **_sections(log, segment, segment.next_offset, scan, lineage, own_aborted),
                IndexType.REMOTE_LOG_INDEX: builder.finish(scan.size_bytes),
            }
        )
    except Corrupt as error:
        raise DamagedSegment(f"{segment.path}: {error}") from error
    return PreparedSegment(
        segment=segment,
        file=file,
        next_offset=segment.next_offset,
        max_timestamp_ms=max(scan.max_timestamp_ms, 0) or segment.max_timestamp_ms,
        epochs=lineage.clip(segment.base_offset, segment.next_offset),
        data=LogSegmentData(
            log=FileSlice(path=segment.path, position=0, size_bytes=scan.size_bytes),
            log_crc32c=scan.crc32c,
            indexes=indexes,
            indexes_crc32c=crc32c(indexes),
            end_offset=segment.next_offset - 1,
        ),
        txn_index_empty=not own_aborted,
    )


def _scan(segment: LocalSegment, next_offset: int, builder: EntryBuilder) -> SegmentScan:
    scanner = SegmentScanner(
        base_offset=segment.base_offset, next_offset=next_offset, on_batch=builder.batch
    )
    left = segment.size_bytes
    try:
        with open(segment.path, "rb", buffering=0) as file:
            while left and (piece := file.read(min(left, _READ_BYTES))):
                left -= len(piece)
                scanner.feed(piece)
                del piece  # or the next read takes fresh memory, which costs as much as the read
    except FileNotFoundError as error:
        raise Fenced(f"{segment.path} is gone") from error
    if left:
        raise Fenced(f"{segment.path} became {left} bytes shorter")
    return scanner.finish()


def _sections(
    log: PartitionLog,
    segment: LocalSegment,
    next_offset: int,
    scan: SegmentScan,
    lineage: Lineage,
    own_aborted: bytes,
) -> Mapping[IndexType, ByteBuffer]:
    offsets = _read(segment.sibling(".index"))
    times = _read(segment.sibling(".timeindex"))
    OffsetIndex(memoryview(offsets), segment.base_offset).check(scan.size_bytes)
    TimeIndex(memoryview(times), segment.base_offset).check()
    aborted, _ = complete_aborted_list(
        _txn_indexes(log.segments, segment), segment.base_offset, next_offset
    )
    checksums = ChunkChecksums(chunk_size_bytes=scan.chunk_size_bytes, crcs=scan.chunk_crcs)
    sections: dict[IndexType, ByteBuffer] = {
        IndexType.OFFSET: offsets,
        IndexType.TIMESTAMP: times,
        IndexType.LEADER_EPOCH: encode_leader_epochs(lineage.below(next_offset).entries),
        IndexType.ABORTED_TRANSACTIONS: encode_aborted(aborted),
        IndexType.CHUNK_CHECKSUMS: checksums.encode(),
    }
    snapshot = _snapshot(segment)
    if snapshot is not None:
        sections[IndexType.PRODUCER_SNAPSHOT] = snapshot
    if own_aborted:
        sections[IndexType.TRANSACTION] = own_aborted
    return sections


def _snapshot(segment: LocalSegment) -> bytes | None:
    """Producer state at the segment's end; None where the plan continues without it.

    An empty one would claim that there were no producers; without one Kafka rebuilds the state from
    the records.
    """
    try:
        return _read(segment.snapshot_path)
    except Unavailable:
        if segment.closed is Closed.SNAPSHOT_MISSING:
            return None
        raise


def _txn_indexes(segments: Sequence[LocalSegment], first: LocalSegment) -> Iterator[bytes]:
    """From the segment's own index on; a segment without aborted transactions has no such file."""
    for segment in segments:
        if segment.base_offset >= first.base_offset:
            yield _read(segment.sibling(".txnindex"), optional=True)


def _read(path: str, *, optional: bool = False) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        if optional:
            return b""
        raise Unavailable(f"{path} is not there") from error
