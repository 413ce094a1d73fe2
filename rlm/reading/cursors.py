"""Recognises readers by the offset at which they continue, and decides what to read ahead. Pure.

A Fetch does not identify its reader, so a reader is recognised when it asks for the offset that
follows an earlier answer. Each reader has a cursor and a read-ahead window. The window is bounded
and doubles while its reader keeps up with it; in a partition whose readers seek often, new cursors
begin with a smaller one.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from kip405.ids import PartitionKey
from kip405.segments import RemoteLogSegmentMetadata
from rlm.reading.values import ReadLimits

_LEAST_WINDOW_BYTES = 1 << 20

Following = Callable[[int], RemoteLogSegmentMetadata | None]
"""The readable segment that holds the first record at or after an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPosition:
    """A byte position of a segment. `base` counts the bytes of the segments passed before it, each
    as at least one chunk, so that a window covers a bounded number of segments of any size.
    """

    segment: RemoteLogSegmentMetadata
    base: int
    position: int

    @property
    def distance(self) -> int:
        """Bytes from where the cursor began to count."""
        return self.base + self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Positions [start, end) of a segment to read ahead; an empty range means its indexes only."""

    segment: RemoteLogSegmentMetadata
    start: int
    end: int


@dataclass(slots=True, eq=False, kw_only=True)
class Cursor:
    """One reader. `start_offset` to `next_offset` is the range that it was given last."""

    reader: int
    partition: PartitionKey
    start_offset: int
    next_offset: int
    window_bytes: int
    used_ms: int
    reads: int = 0
    here: SegmentPosition | None = None
    requested: SegmentPosition | None = None
    """Everything up to this position was requested already."""
    _since_grown_bytes: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the reader has continued at least once."""
        return self.reads > 1

    @property
    def asked_ahead_bytes(self) -> int:
        """Bytes that were requested beyond the reader's position."""
        if self.requested is None or self.here is None:
            return 0
        return max(self.requested.distance - self.here.distance, 0)

    def grow(self, most_bytes: int, read_bytes: int, *, has_waited: bool) -> None:
        """The reader continued: double the window where it waited, or used up half of it."""
        self._since_grown_bytes += read_bytes
        if has_waited or self._since_grown_bytes * 2 >= self.window_bytes:
            self.window_bytes = min(max(self.window_bytes, _LEAST_WINDOW_BYTES) * 2, most_bytes)
            self._since_grown_bytes = 0

    def moved(self, segment: RemoteLogSegmentMetadata, position: int, chunk_bytes: int) -> None:
        """The reader is at a position of a segment now."""
        base = self._base_of(segment, chunk_bytes)
        self.here = SegmentPosition(segment=segment, base=base, position=position)
        if self.requested is None or self.requested.distance < self.here.distance:
            self.requested = SegmentPosition(
                segment=segment, base=base, position=_up(position, chunk_bytes)
            )

    def asked(self, segment: RemoteLogSegmentMetadata, end: int, chunk_bytes: int) -> None:
        """Everything up to a position was requested: read-ahead continues behind it."""
        requested = self.requested
        base = self._base_of(segment, chunk_bytes)
        if requested is None or base + end > requested.distance:
            self.requested = SegmentPosition(segment=segment, base=base, position=end)

    def _base_of(self, segment: RemoteLogSegmentMetadata, chunk_bytes: int) -> int:
        for known in (self.requested, self.here):
            if known is not None and known.segment.segment_id == segment.segment_id:
                return known.base
        here = self.here
        if here is None:
            return 0
        # The next segment. Where segments were skipped, nothing beyond them was requested either.
        return here.base + _weight(here.segment, chunk_bytes)

    def ahead(
        self, *, window_bytes: int, range_bytes: int, chunk_bytes: int, following: Following
    ) -> tuple[Ahead, ...]:
        """What to request next within the window, in ranges as large as it allows."""
        if self.requested is None:
            return ()
        size = _range_bytes(window_bytes, range_bytes, chunk_bytes)
        plan: list[Ahead] = []
        while True:
            requested = self.requested
            room = window_bytes - self.asked_ahead_bytes
            if room < min(size, chunk_bytes):
                return tuple(plan)
            if requested.position >= requested.segment.segment_size_bytes:
                segment = following(requested.segment.next_offset)
                if segment is None:
                    return tuple(plan)
                base = requested.base + _weight(requested.segment, chunk_bytes)
                self.requested = SegmentPosition(segment=segment, base=base, position=0)
                plan.append(Ahead(segment=segment, start=0, end=0))
                continue
            wanted = _cut(
                requested.segment.segment_size_bytes - requested.position, size, range_bytes
            )
            if wanted > room:
                return tuple(plan)
            start, end = requested.position, requested.position + wanted
            plan.append(Ahead(segment=requested.segment, start=start, end=end))
            self.requested = SegmentPosition(
                segment=requested.segment, base=requested.base, position=end
            )


def _weight(segment: RemoteLogSegmentMetadata, chunk_bytes: int) -> int:
    return max(segment.segment_size_bytes, chunk_bytes)


def _up(position: int, chunk_bytes: int) -> int:
    return -(-position // chunk_bytes) * chunk_bytes


def _range_bytes(window_bytes: int, most_bytes: int, chunk_bytes: int) -> int:
    """Two thirds of the window, so that the next range is requested while this one is read."""
    size = min(window_bytes * 2 // 3, most_bytes)
    return max(size // chunk_bytes * chunk_bytes, chunk_bytes)


def _cut(left_bytes: int, size_bytes: int, most_bytes: int) -> int:
    """The size of the next range. A small rest joins it, because one more GET costs as much as the
    bytes of a few chunks.
    """
    if left_bytes <= size_bytes or left_bytes <= min(size_bytes + size_bytes // 2, most_bytes):
        return left_bytes
    return size_bytes


@dataclass(slots=True, eq=False)
class _Partition:
    """`start_window_bytes` is the window of the next new cursor."""

    start_window_bytes: int
    cursors: list[Cursor] = field(default_factory=list)


class Cursors:
    """All readers, up to a bound; the reader that was idle for longest is forgotten first."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._partitions: OrderedDict[PartitionKey, _Partition] = OrderedDict()
        self._by_use: OrderedDict[int, Cursor] = OrderedDict()
        self._last_reader = 0
        self._gone: list[Cursor] = []

    def __len__(self) -> int:
        return len(self._by_use)

    @property
    def window_share_bytes(self) -> int:
        """The most that may be read ahead for each of the known readers."""
        share = self._limits.ahead_bytes // max(len(self._by_use), 1)
        return min(self._limits.window_bytes, share)

    def knows(self, cursor: Cursor) -> bool:
        """Whether the cursor is still known."""
        return self._by_use.get(cursor.reader) is cursor

    def new_reader(self) -> int:
        """A number for a reader that has no cursor."""
        self._last_reader += 1
        return self._last_reader

    def at(self, partition: PartitionKey, offset: int, now_ms: int) -> Cursor:
        """The cursor of the reader that continues at the offset or repeats it; otherwise a new
        one.
        """
        self._forget_idle(now_ms)
        cursor = self._known(partition, offset)
        if cursor is None:
            return self._new(partition, offset, now_ms)
        cursor.used_ms = now_ms
        self._by_use.move_to_end(cursor.reader)
        return cursor

    def _known(self, partition: PartitionKey, offset: int) -> Cursor | None:
        """The reader that continues at the offset, else one that may repeat part of its last
        read.
        """
        found: Cursor | None = None
        known = self._partitions.get(partition)
        for cursor in known.cursors if known else ():
            if cursor.next_offset == offset:
                return cursor
            if cursor.start_offset <= offset < cursor.next_offset:
                found = cursor
        return found

    def gone(self) -> tuple[Cursor, ...]:
        """Cursors forgotten since the last call; what was read ahead for them is wasted."""
        gone, self._gone = tuple(self._gone), []
        return gone

    def _new(self, partition: PartitionKey, offset: int, now_ms: int) -> Cursor:
        found = self._partitions.get(partition)
        if found is None:
            found = _Partition(self._limits.start_window_bytes)
            self._partitions[partition] = found
        if len(found.cursors) >= self._limits.readers_per_partition:
            self._forget(min(found.cursors, key=lambda cursor: cursor.used_ms))
        elif len(self._by_use) >= self._limits.most_readers:
            self._forget(next(iter(self._by_use.values())))
        cursor = Cursor(
            reader=self.new_reader(),
            partition=partition,
            start_offset=offset,
            next_offset=offset,
            window_bytes=found.start_window_bytes,
            used_ms=now_ms,
        )
        self._partitions.setdefault(partition, found).cursors.append(cursor)
        self._by_use[cursor.reader] = cursor
        return cursor

    def _forget_idle(self, now_ms: int) -> None:
        while self._by_use:
            oldest = next(iter(self._by_use.values()))
            if now_ms - oldest.used_ms <= self._limits.reader_idle_ms:
                return
            self._forget(oldest)

    def _forget(self, cursor: Cursor) -> None:
        del self._by_use[cursor.reader]
        partition = self._partitions[cursor.partition]
        partition.cursors.remove(cursor)
        least, most = 1, self._limits.start_window_bytes
        if cursor.is_known:
            partition.start_window_bytes = min(max(partition.start_window_bytes, least) * 2, most)
        else:
            partition.start_window_bytes //= 2
        if not partition.cursors and partition.start_window_bytes >= most:
            del self._partitions[cursor.partition]
        self._gone.append(cursor)
        while len(self._partitions) > self._limits.most_readers:
            key, idle = next(iter(self._partitions.items()))
            if idle.cursors:
                self._partitions.move_to_end(key)
            else:
                del self._partitions[key]
