"""The readable segments of one partition inside one lineage, by start offset. Pure.

A cover is made once per lineage. The cover of a later view is made from it: of what has changed
only, found by the chunks that two versions do not share. It keeps packed segments and their
offsets; a segment is decoded for whoever asks.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import Final, NamedTuple

from kip405.ids import MAX_OFFSET, Uuid
from kip405.lineage import Lineage, usable_end
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlmm.packed import (
    ID_BYTES,
    Names,
    epochs_of,
    extent_of,
    metadata_of,
    newest_ms_of,
    state_id_of,
)
from rlmm.replay import Disputes
from rlmm.segment_store import Segments

_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
_CHUNK_MOST: Final = 256
_DECODED_CHUNKS: Final = 1_024
"""Chunks of which the decoded segments are kept for the next look at their partition: those of
1,000 partitions with 100 segments take 70 MB. With more, each look decodes, 6 us a segment.
"""
_ENDLESS_MS: Final = 1 << 63
_REBUILT_FROM: Final = 8
"""Where more than one in so many segments has changed, a cover is made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableSegment:
    """A FINISHED segment, and the half-open end up to which it belongs to the leader's history."""

    metadata: RemoteLogSegmentMetadata
    next_offset: int
    disputed: bool


class UsableExtent(NamedTuple):
    """What retention asks of a usable segment, without decoding it. `segment`: its raw id;
    `end_offset`: half-open end of the whole segment, `next_offset` of what belongs to the lineage.
    """

    segment: bytes
    start_offset: int
    end_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int
    disputed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """FINISHED segments, and which are disputed: a zombie's record hides no data (H3)."""

    segments: Segments
    disputes: Disputes

    def __iter__(self) -> Iterator[tuple[bytes, bool]]:
        """Packed segments, and whether each is disputed."""
        disputed = {one.raw for one in self.disputes.by_segment}
        for packed in self.segments.in_states((_FINISHED,)):
            yield packed, packed[:ID_BYTES] in disputed
        for packed in self.disputes.hidden.values():
            yield packed, True

    def get(self, segment: bytes) -> tuple[bytes, bool] | None:
        """One of them by its raw id."""
        packed = self.segments.get(segment)
        if packed is not None and state_id_of(packed) == _FINISHED:
            return packed, Uuid(segment) in self.disputes.by_segment
        hidden = self.disputes.hidden.get(segment)
        return None if hidden is None else (hidden, True)

    def differing(self, other: "Readable") -> set[bytes]:
        """Raw ids of the segments of which the two may say different things."""
        found = self.segments.differing(other.segments)
        if self.disputes is not other.disputes:
            ours, theirs = self.disputes.by_segment, other.disputes.by_segment
            keys = ours.keys() | theirs.keys()
            found |= {key.raw for key in keys if ours.get(key) != theirs.get(key)}
        return found


class _History(NamedTuple):
    """A lineage, and the half-open span of each of its epochs."""

    lineage: Lineage
    spans: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, lineage: Lineage) -> "_History":
        entries = lineage.entries
        ends = [*(one.start_offset for one in entries[1:]), MAX_OFFSET]
        spans = zip(entries, ends, strict=False)
        return cls(lineage, {one.epoch: (one.start_offset, end) for one, end in spans})


class _Row(NamedTuple):
    """Rows are in the order of the cover."""

    start: int
    end: int
    segment: bytes
    packed: bytes
    disputed: bool

    @classmethod
    def of(cls, packed: bytes, disputed: bool, history: "_History", names: Names) -> "_Row | None":
        """None where the segment has nothing of the lineage. Most segments are of one leader epoch
        and within it, so that all of them is usable (kip405.lineage.usable_end).
        """
        epochs = epochs_of(packed)
        if len(epochs) == 1:
            epoch, first = epochs[0]
            extent, span = extent_of(packed), history.spans.get(epoch)
            if span is not None and span[0] <= first and extent.next_offset <= span[1]:
                start, end = extent.start_offset, extent.next_offset
                return cls(start, end, packed[:ID_BYTES], packed, disputed)
        metadata = metadata_of(packed, names)
        end = usable_end(metadata, history.lineage)
        if end <= metadata.start_offset:
            return None
        return cls(metadata.start_offset, end, packed[:ID_BYTES], packed, disputed)


class _Chunk:
    """Neighbours by start offset; `reach[i]` is the highest end of 0..i in the chunk."""

    __slots__ = (
        "_newest_ms",
        "disputed",
        "ends",
        "first",
        "has_disputed",
        "is_solid",
        "items",
        "least_end",
        "reach",
        "starts",
    )

    def __init__(self, rows: list[_Row]) -> None:
        self.first = rows[0][:3]
        self.starts = array("Q", [row.start for row in rows])
        self.ends = array("Q", [row.end for row in rows])
        reach = array("Q", accumulate(self.ends, max))
        self.reach = self.ends if reach == self.ends else reach
        self.items = tuple(row.packed for row in rows)
        self.disputed = bytes(row.disputed for row in rows)
        self.has_disputed = any(self.disputed)
        self.least_end = min(self.ends)
        self._newest_ms: int | None = None
        self.is_solid = not self.has_disputed and all(
            start <= reach for start, reach in zip(self.starts[1:], self.reach, strict=False)
        )
        """Whoever is at the first start passes through to the highest end."""

    @property
    def newest_ms(self) -> int:
        """Of all its segments; one of unknown age may be the newest of all. Later covers share the
        chunk, and so the answer.
        """
        if self._newest_ms is None:
            known = list(map(newest_ms_of, self.items))
            self._newest_ms = _ENDLESS_MS if min(known) < 0 else max(known)
        return self._newest_ms

    def rows(self) -> Iterator[_Row]:
        for start, end, packed, disputed in zip(
            self.starts, self.ends, self.items, self.disputed, strict=True
        ):
            yield _Row(start, end, packed[:ID_BYTES], packed, bool(disputed))

    def usable(self, at: int, names: Names) -> UsableSegment:
        return UsableSegment(
            metadata=metadata_of(self.items[at], names),
            next_offset=self.ends[at],
            disputed=bool(self.disputed[at]),
        )


@lru_cache(maxsize=_DECODED_CHUNKS)
def _decoded(chunk: _Chunk, names: Names) -> tuple[UsableSegment, ...]:
    return tuple(chunk.usable(at, names) for at in range(len(chunk.items)))


def _chunks_of(rows: list[_Row]) -> Iterator[_Chunk]:
    """Chunks of sorted rows, none too full for another row."""
    count = -(-len(rows) // (_CHUNK_MOST // 2)) if len(rows) > _CHUNK_MOST else 1
    size = -(-len(rows) // count)
    for begin in range(0, len(rows), size or 1):
        yield _Chunk(rows[begin : begin + size])


class Cover:
    """Segments of one lineage by start offset, as of one view."""

    def __init__(
        self, lineage: Lineage, readable: Readable, names: Names, chunks: Iterable[_Chunk]
    ) -> None:
        self.lineage = lineage
        self._history = _History.of(lineage)
        self._readable = readable
        self._names = names
        self._chunks = tuple(chunks)
        self._firsts = tuple(chunk.first[0] for chunk in self._chunks)
        self._reach = tuple(accumulate((chunk.reach[-1] for chunk in self._chunks), max))
        self.has_disputed = any(chunk.has_disputed for chunk in self._chunks)
        self._newest_ms: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls, readable: Readable, lineage: Lineage, names: Names, before: "Cover | None"
    ) -> "Cover":
        """`before`: of the same lineage, under an earlier view."""
        changed = None if before is None else readable.differing(before._readable)
        if (
            before is None
            or changed is None
            or len(changed) * _REBUILT_FROM > readable.segments.count
        ):
            history = _History.of(lineage)
            made = (_Row.of(*one, history, names) for one in readable)
            return cls(lineage, readable, names, _chunks_of(sorted(row for row in made if row)))
        return cls(lineage, readable, names, before._changed(readable, changed))

    def _changed(self, readable: Readable, changed: set[bytes]) -> list[_Chunk]:
        """The chunks of a view in which these segments may be others."""
        gone, come = self._rows_of(self._readable, changed), self._rows_of(readable, changed)
        if not self._chunks:
            return list(_chunks_of(sorted(come)))
        firsts = [chunk.first for chunk in self._chunks]
        moves = sorted(
            (max(bisect_right(firsts, row[:3]) - 1, 0), row, is_new)
            for rows, is_new in ((gone, False), (come, True))
            for row in rows
        )
        chunks = list(self._chunks)
        for at, group in reversed([(at, list(g)) for at, g in groupby(moves, itemgetter(0))]):
            lost = {row for _, row, is_new in group if not is_new}
            kept = [row for row in chunks[at].rows() if row not in lost]
            kept += [row for _, row, is_new in group if is_new]
            chunks[at : at + 1] = _chunks_of(sorted(kept))
        return chunks

    def _rows_of(self, readable: Readable, segments: set[bytes]) -> list[_Row]:
        found = (readable.get(segment) for segment in segments)
        made = (_Row.of(*one, self._history, self._names) for one in found if one)
        return [row for row in made if row]

    @property
    def reach(self) -> int:
        """The highest end; 0 without any."""
        return self._reach[-1] if self._reach else 0

    def usable(self, log_end_offset: int, start: int) -> tuple[UsableSegment, ...]:
        """Those that end in (start, log_end_offset]."""
        found: list[UsableSegment] = []
        for chunk in self._chunks:
            if chunk.least_end > log_end_offset or chunk.reach[-1] <= start:
                continue
            one = _decoded(chunk, self._names)
            if start >= chunk.least_end or chunk.reach[-1] > log_end_offset:
                one = tuple(each for each in one if start < each.next_offset <= log_end_offset)
            found += one
        return tuple(found)

    @property
    def count(self) -> int:
        """How many segments there are."""
        return sum(len(chunk.items) for chunk in self._chunks)

    def extents(self, log_end_offset: int, start: int) -> Iterator[UsableExtent]:
        """The same as `usable`."""
        for chunk in self._chunks:
            yield from _extents(chunk, log_end_offset, start)

    def extents_since(
        self, newest_ms: int, log_end_offset: int, start: int
    ) -> Iterator[UsableExtent]:
        """As `extents`, without most of those whose newest record is older. Neighbours of which all
        are older cost nothing, and those before the first other one not even a look.
        """
        if self._newest_ms is None:
            self._newest_ms = tuple(accumulate((one.newest_ms for one in self._chunks), max))
        first = bisect_left(self._newest_ms, newest_ms)
        for chunk in islice(self._chunks, first, None):
            if chunk.newest_ms >= newest_ms:
                yield from _extents(chunk, log_end_offset, start)

    def ranges(self, log_end_offset: int, without: Container[Uuid]) -> Iterator[tuple[int, int]]:
        """Offset ranges of undisputed segments that end by the log's end, by start offset; they may
        touch and overlap.
        """
        return self._pieces(log_end_offset, 0, without)

    def highest_end(self, log_end_offset: int, *, disputed: bool) -> int | None:
        """The highest end up to the log's end, of undisputed segments or all."""
        best = -1
        for chunk in self._chunks:
            if chunk.reach[-1] <= best:
                continue
            for end, is_disputed in zip(chunk.ends, chunk.disputed, strict=True):
                if best < end <= log_end_offset and (disputed or not is_disputed):
                    best = end
        return None if best < 0 else best

    def contiguous_end(
        self,
        log_end_offset: int,
        start: int,
        holes: Iterable[tuple[int, int]],
        without: Container[Uuid],
    ) -> int:
        """Where the unbroken cover of undisputed segments and holes that begins at `start` ends."""
        cursor = start
        pieces = self._pieces(log_end_offset, start, without)
        for piece_start, piece_end in merge(pieces, sorted(holes)):
            if piece_start > cursor:
                break
            cursor = max(cursor, piece_end)
        return cursor

    def _pieces(
        self, log_end_offset: int, start: int, without: Container[Uuid]
    ) -> Iterator[tuple[int, int]]:
        """Offset ranges of undisputed segments, or of whole chunks of them, by start offset."""
        takes_all = isinstance(without, Sized) and len(without) == 0
        for chunk in self._chunks:
            reach = chunk.reach[-1]
            if reach <= start:
                continue
            if chunk.is_solid and takes_all and reach <= log_end_offset:
                yield chunk.starts[0], reach
                continue
            for row in chunk.rows():
                if (
                    start < row.end <= log_end_offset
                    and not row.disputed
                    and Uuid(row.segment) not in without
                ):
                    yield row.start, row.end

    def lookup(self, offset: int, log_end_offset: int) -> UsableSegment | None:
        """The segment that holds the offset, or the first one behind it."""
        at = bisect_right(self._firsts, offset) - 1
        if at >= 0:
            best = self._holding(offset, log_end_offset, at)
            if best is not None:
                return best
        return self._following(offset, log_end_offset, max(at, 0))

    def _following(self, offset: int, log_end_offset: int, first: int) -> UsableSegment | None:
        for chunk in self._chunks[first : first + 1]:
            for at in range(bisect_right(chunk.starts, offset), len(chunk.items)):
                if chunk.ends[at] <= log_end_offset:
                    return chunk.usable(at, self._names)
        for index in range(first + 1, len(self._chunks)):
            chunk = self._chunks[index]
            if chunk.least_end > log_end_offset:
                continue
            for at, end in enumerate(chunk.ends):
                if end <= log_end_offset:
                    return chunk.usable(at, self._names)
        return None

    def _holding(self, offset: int, log_end_offset: int, last: int) -> UsableSegment | None:
        """Undisputed first, then the one that reaches furthest, then the one that starts last."""
        best: tuple[bool, int] | None = None
        found: tuple[_Chunk, int] | None = None
        for index in range(last, -1, -1):
            if self._reach[index] <= offset:
                break
            chunk = self._chunks[index]
            for at in range(bisect_right(chunk.starts, offset) - 1, -1, -1):
                if chunk.reach[at] <= offset:
                    break
                end = chunk.ends[at]
                if offset < end <= log_end_offset:
                    preference = _preference(chunk.disputed[at], end)
                    if best is None or preference > best:
                        best, found = preference, (chunk, at)
        return None if found is None else found[0].usable(found[1], self._names)


def _extents(chunk: _Chunk, log_end_offset: int, start: int) -> Iterator[UsableExtent]:
    if chunk.least_end > log_end_offset or chunk.reach[-1] <= start:
        return
    for packed, end, disputed in zip(chunk.items, chunk.ends, chunk.disputed, strict=True):
        if start < end <= log_end_offset:
            extent = extent_of(packed)
            yield UsableExtent(
                packed[:ID_BYTES],
                extent.start_offset,
                extent.next_offset,
                end,
                extent.size_bytes,
                extent.max_timestamp_ms,
                bool(disputed),
            )


def _preference(disputed: int, end: int) -> tuple[bool, int]:
    """Undisputed first, then the one that reaches furthest."""
    return not disputed, end
