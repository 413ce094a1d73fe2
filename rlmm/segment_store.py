"""The packed segments of one partition, in chunks that its versions share. Pure.

A `SegmentStore` is what the fold changes, a `Segments` what it was at one time. The chunks are
sorted by segment id. `freeze` copies none; a change behind it copies the one chunk that it is in
and the list of the chunks, however many segments there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final

from kip405.segments import RemoteLogSegmentState
from rlmm.packed import ID_BYTES, epochs_of, extent_of, state_id_of

_CHUNK_MOST: Final = 256
_FINISHED = int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Of some segments: how many are in each state, and of the FINISHED ones bytes, highest
    half-open end (0 = none) and the first offset of every epoch.
    """

    counts: tuple[int, ...]
    finished_bytes: int
    finished_end: int
    epoch_starts: Mapping[int, int]

    @property
    def finished(self) -> int:
        return self.counts[_FINISHED]


class Chunk:
    """Neighbours by segment id; changed by nobody but the store that made it, until a freeze."""

    __slots__ = ("_summary", "items", "maker")

    def __init__(self, items: list[bytes], maker: object) -> None:
        self.items = items
        self.maker = maker
        self._summary: Summary | None = None

    @property
    def summary(self) -> Summary:
        """To be asked of a frozen chunk."""
        if self._summary is None:
            self._summary = _summary_of(self.items)
        return self._summary


def _summary_of(items: list[bytes]) -> Summary:
    counts = [0] * len(RemoteLogSegmentState)
    finished_bytes, finished_end = 0, 0
    starts: dict[int, int] = {}
    for packed in items:
        state_id = state_id_of(packed)
        counts[state_id] += 1
        if state_id != _FINISHED:
            continue
        extent = extent_of(packed)
        finished_bytes += extent.size_bytes
        finished_end = max(finished_end, extent.next_offset)
        for epoch, start in epochs_of(packed):
            starts[epoch] = min(start, starts.get(epoch, start))
    return Summary(
        counts=tuple(counts),
        finished_bytes=finished_bytes,
        finished_end=finished_end,
        epoch_starts=MappingProxyType(starts),
    )


def _found(chunks: tuple[Chunk, ...] | list[Chunk], at: int, segment: bytes) -> bytes | None:
    items = chunks[at].items
    position = bisect_left(items, segment)
    if position < len(items) and items[position].startswith(segment):
        return items[position]
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """All segments of a partition at one time; `firsts` are the lowest ids that chunks may hold."""

    chunks: tuple[Chunk, ...]
    firsts: tuple[bytes, ...]
    count: int

    @classmethod
    def of(cls, items: list[bytes]) -> "Segments":
        """Packed records that are sorted by segment id."""
        size = _CHUNK_MOST // 2
        chunks = [Chunk(items[at : at + size], None) for at in range(0, len(items), size)]
        if not chunks:
            return NO_SEGMENTS
        firsts = (b"", *(chunk.items[0][:ID_BYTES] for chunk in chunks[1:]))
        return cls(chunks=tuple(chunks), firsts=firsts, count=len(items))

    def get(self, segment: bytes) -> bytes | None:
        """The packed record of a raw segment id."""
        return _found(self.chunks, bisect_right(self.firsts, segment) - 1, segment)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            yield from chunk.items

    def summary(self) -> Summary:
        """Of all, from those of the chunks."""
        starts: dict[int, int] = {}
        found = [chunk.summary for chunk in self.chunks]
        for one in found:
            for epoch, start in one.epoch_starts.items():
                if start < starts.get(epoch, start + 1):
                    starts[epoch] = start
        return Summary(
            counts=tuple(map(sum, zip(*(one.counts for one in found), strict=True))),
            finished_bytes=sum(one.finished_bytes for one in found),
            finished_end=max(one.finished_end for one in found),
            epoch_starts=MappingProxyType(starts),
        )

    def in_states(self, state_ids: tuple[int, ...]) -> Iterator[bytes]:
        """Those in any of the states; a chunk that has none of them costs nothing."""
        return chain.from_iterable(self.parts_in_states(state_ids))

    def parts_in_states(self, state_ids: tuple[int, ...]) -> Iterator[list[bytes]]:
        """The same, a few hundred at a time; a part may be empty."""
        for chunk in self.chunks:
            counts = chunk.summary.counts
            is_any = any(counts[one] for one in state_ids)
            yield [one for one in chunk.items if state_id_of(one) in state_ids] if is_any else []

    def differing(self, other: "Segments") -> set[bytes]:
        """Raw ids of the segments whose records are not the same in the other version."""
        if self.chunks is other.chunks:
            return set()
        ours, theirs = set(map(id, self.chunks)), set(map(id, other.chunks))
        mine = {one for chunk in self.chunks if id(chunk) not in theirs for one in chunk.items}
        others = {one for chunk in other.chunks if id(chunk) not in ours for one in chunk.items}
        return {packed[:ID_BYTES] for packed in mine ^ others}


NO_SEGMENTS = Segments(chunks=(Chunk([], None),), firsts=(b"",), count=0)


class SegmentStore:
    """The newest record of every segment that has one."""

    __slots__ = ("_chunks", "_count", "_firsts", "_frozen", "_maker")

    def __init__(self) -> None:
        self._maker = object()
        self._chunks = [Chunk([], self._maker)]
        self._firsts = [b""]
        self._count = 0
        self._frozen: Segments | None = None

    @classmethod
    def of(cls, segments: Segments) -> "SegmentStore":
        """One that begins with these, and copies what it changes of them."""
        store = cls()
        store._chunks = list(segments.chunks)
        store._firsts = list(segments.firsts)
        store._count = segments.count
        store._frozen = segments
        return store

    def get(self, segment: bytes) -> bytes | None:
        """The packed record of a raw segment id."""
        return _found(self._chunks, bisect_right(self._firsts, segment) - 1, segment)

    def put(self, packed: bytes) -> None:
        """Take the newest record of its segment in."""
        segment = packed[:ID_BYTES]
        at, items = self._writable(segment)
        position = bisect_left(items, segment)
        if position < len(items) and items[position].startswith(segment):
            items[position] = packed
            return
        items.insert(position, packed)
        self._count += 1
        if len(items) > _CHUNK_MOST:
            half = len(items) // 2
            self._chunks.insert(at + 1, Chunk(items[half:], self._maker))
            self._firsts.insert(at + 1, items[half][:ID_BYTES])
            del items[half:]

    def remove(self, segment: bytes) -> None:
        """Forget the segment, if it is there."""
        if self.get(segment) is None:
            return
        at, items = self._writable(segment)
        del items[bisect_left(items, segment)]
        self._count -= 1
        before = max(at - 1, 0)
        if at and len(items) + len(self._chunks[before].items) <= _CHUNK_MOST // 2:
            merged = [*self._chunks[before].items, *items]
            self._chunks[before : at + 1] = [Chunk(merged, self._maker)]
            del self._firsts[at]

    def freeze(self) -> Segments:
        """What is here now; later changes are not seen in it."""
        if self._frozen is None:
            self._frozen = Segments(
                chunks=tuple(self._chunks), firsts=tuple(self._firsts), count=self._count
            )
            self._maker = object()
        return self._frozen

    def _writable(self, segment: bytes) -> tuple[int, list[bytes]]:
        """Place and items of the segment's chunk, which no frozen version has."""
        self._frozen = None
        at = bisect_right(self._firsts, segment) - 1
        chunk = self._chunks[at]
        if chunk.maker is not self._maker:
            chunk = self._chunks[at] = Chunk(list(chunk.items), self._maker)
        return at, chunk.items
