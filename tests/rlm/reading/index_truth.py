"""Segments with index entries, and what their indexes must be: computed anew, without the files."""

import random
from dataclasses import dataclass, replace

from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.indexes import AbortedTransaction, ChunkChecksums, build_indexes_object, encode_aborted
from kip405.remote_index import RemoteLogIndexEntry, rdi_of
from kip405.segments import CustomMetadata, RemoteLogSegmentMetadata
from rlm.reading.segment_indexes import SegmentIndexes
from tests.builders.ledger import metadata
from tests.builders.store import STORE_ID

CHUNK_BYTES = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A finished segment, its indexes object, and its entries."""

    metadata: RemoteLogSegmentMetadata
    indexes_object: bytes
    entries: tuple[RemoteLogIndexEntry, ...]
    checksums: ChunkChecksums
    aborted: tuple[AbortedTransaction, ...]

    @property
    def raw_id(self) -> bytes:
        return self.metadata.segment_id.id.raw

    def agrees(self, found: SegmentIndexes) -> bool:
        """Whether these are the segment's indexes, by every offset and timestamp that matters."""
        positions = [0]
        for entry in self.entries:
            positions.append(positions[-1] + entry.data_size_bytes)
        for at, entry in zip(positions, self.entries, strict=False):
            for offset in (entry.first_offset, entry.last_offset):
                if found.start_of(offset) != (at, entry.first_offset):
                    return False
        largest = -1
        for entry in self.entries:
            for timestamp_ms in (entry.last_timestamp_ms, entry.last_timestamp_ms - 1):
                if timestamp_ms > largest and found.times.lookup(timestamp_ms) > entry.first_offset:
                    return False  # a record before that offset may be the first one
            largest = max(largest, entry.last_timestamp_ms)
        return (
            found.is_from_files and found.chunks == self.checksums and found.aborted == self.aborted
        )


def new_segment(rng: random.Random, number: int, start: int, end: int) -> Segment:
    """With random entries for the offsets [start, end)."""
    entries, at, offset, now_ms = [], 0, start, start * 10
    remote_object = f"store/cluster/topic/0/{start:020d}-{number}.log"
    while offset < end:
        last = min(offset + rng.randrange(1, 8), end) - 1
        size = rng.randrange(1, 3_000)
        now_ms = max(now_ms + rng.randrange(-20, 60), 0)
        entries.append(
            RemoteLogIndexEntry(
                first_offset=offset,
                last_offset=last,
                first_timestamp_ms=now_ms,
                last_timestamp_ms=now_ms + rng.randrange(30),
                data_size_bytes=size,
                rdi=rdi_of(remote_object, at),
            )
        )
        at, offset = at + size, last + 1
    checksums = ChunkChecksums(
        chunk_size_bytes=CHUNK_BYTES,
        crcs=tuple(rng.randrange(1 << 32) for _ in range(-(-at // CHUNK_BYTES))),
    )
    aborted = (AbortedTransaction(7, start, end - 1),) if rng.random() < 0.3 else ()
    indexes = build_indexes_object(
        {
            IndexType.ABORTED_TRANSACTIONS: encode_aborted(aborted),
            IndexType.CHUNK_CHECKSUMS: checksums.encode(),
            IndexType.REMOTE_LOG_INDEX: b"".join(entry.encode() for entry in entries),
        }
    )
    custom = CustomMetadata(
        store_id=STORE_ID, indexes_size_bytes=len(indexes), indexes_crc32c=crc32c(indexes)
    )
    finished = metadata(number, start, end, {0: start})
    return Segment(
        metadata=replace(finished, segment_size_bytes=at, custom_metadata=custom.encode()),
        indexes_object=indexes,
        entries=tuple(entries),
        checksums=checksums,
        aborted=aborted,
    )
