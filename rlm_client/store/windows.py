"""What a service lists of a remote log to be read from the store, and the indexes stored with it.

A window is a run of segments without a gap. Each counts up to where the service says, which may be
below the segment's own end (H4). Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kip405.contracts import IndexType
from kip405.errors import Corrupt
from kip405.ids import Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    IndexesObject,
    OffsetIndex,
    check_stored_indexes,
    checked_custom,
    decode_aborted,
)
from kip405.segments import CustomMetadata, RemoteLogSegmentMetadata
from rlmm.ledger_values import decode_value

LIST_SEGMENTS = 64
"""Of one list, as services give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSegment:
    """A segment up to a half-open end. `shared_end`: up to where the log of the leader that copied
    it is in the history; None = all of it is.
    """

    metadata: RemoteLogSegmentMetadata
    next_offset: int
    shared_end: int | None

    @property
    def id(self) -> Uuid:
        return self.metadata.segment_id.id

    @property
    def custom(self) -> CustomMetadata:
        """Corrupt where the ledger has none that can be read."""
        return checked_custom(self.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Segments by offset, each from where the one before ends; `asked_at_ms`: of the monotonic
    clock.
    """

    cluster_id: str
    segments: tuple[ListedSegment, ...]
    asked_at_ms: int

    @property
    def has_more(self) -> bool:
        """Whether there may be segments behind the list: it has as many as a list may have."""
        return len(self.segments) >= LIST_SEGMENTS

    def from_offset(self, offset: int) -> tuple[ListedSegment, ...]:
        """The segments from the one that has the offset on; empty: none has it."""
        if not self.segments or offset < self.segments[0].metadata.start_offset:
            return ()
        return tuple(one for one in self.segments if one.next_offset > offset)


def window_of(answer: Any, asked_at_ms: int) -> Window:
    """Of a service's answer (rlm.v1.RemoteLog). Corrupt where it makes no sense."""
    segments: list[ListedSegment] = []
    for row in answer.segments:
        metadata = decode_value(row.segment_metadata)
        if segments and metadata.start_offset > segments[-1].next_offset:
            raise Corrupt(f"a service lists segment {metadata.segment_id} behind a gap")
        if not metadata.start_offset < row.next_offset <= metadata.next_offset:
            raise Corrupt(f"a service lists segment {metadata.segment_id} up to {row.next_offset}")
        segments.append(
            ListedSegment(
                metadata=metadata,
                next_offset=row.next_offset,
                shared_end=row.shared_end_offset if row.HasField("shared_end_offset") else None,
            )
        )
    return Window(cluster_id=answer.cluster_id, segments=tuple(segments), asked_at_ms=asked_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndexes:
    """The sections of a segment's indexes that a read needs."""

    offsets: OffsetIndex
    aborted: tuple[AbortedTransaction, ...]
    checksums: ChunkChecksums

    def decides_aborted(self, segment: ListedSegment) -> bool:
        """Whether the segment's own list says which of its transactions were aborted in the
        history (H9). Otherwise a later segment's list does.
        """
        end = segment.shared_end
        if end is None:
            return True
        is_cut = segment.next_offset < segment.metadata.next_offset
        return not is_cut and not _open_at(self.aborted, end)


def _open_at(aborted: Iterable[AbortedTransaction], end: int) -> bool:
    return any(one.first_offset < end <= one.last_offset for one in aborted)


def stored_indexes(data: bytes, segment: ListedSegment) -> StoredIndexes:
    """Corrupt unless it is what was stored (G9)."""
    check_stored_indexes(data, segment.metadata)
    parsed = IndexesObject.parse(data)

    def section(index_type: IndexType) -> memoryview:
        found = parsed.section(index_type)
        if found is None:
            raise Corrupt(f"indexes of segment {segment.id} have no {index_type.name} section")
        return found

    metadata = segment.metadata
    return StoredIndexes(
        offsets=OffsetIndex(section(IndexType.OFFSET), metadata.start_offset),
        aborted=decode_aborted(section(IndexType.ABORTED_TRANSACTIONS)),
        checksums=ChunkChecksums.decode(
            section(IndexType.CHUNK_CHECKSUMS), metadata.segment_size_bytes
        ),
    )
