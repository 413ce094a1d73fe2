"""Reads ranges of consecutive segments ahead of their reader, several at once, in bounded memory.

Ranges are whole chunks, so that each can be checked by itself. They arrive in any order and are
given out in that of the log. The first one is small, so that the first record comes soon. While a
segment is read, the indexes of the next one are fetched.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from kip405.crc import ByteBuffer
from kip405.errors import Unavailable
from kip405.segments import ByteRange
from rlm_client.store.opened import OpenStores
from rlm_client.store.windows import ListedSegment, StoredIndexes
from tiered_reads.stopping import Stop
from tiered_reads.values import TopicPartition

RANGE_BYTES: Final = 4 << 20
FIRST_BYTES: Final = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Bytes of a segment's log up to `end`; `skipped` of them are before the batch that is read
    first. `is_last`: nothing more of the segment follows.
    """

    segment: ListedSegment
    indexes: StoredIndexes
    data: ByteBuffer
    skipped: int
    end: int
    is_last: bool

    @property
    def is_end_of_log(self) -> bool:
        """Whether the segment has no byte behind it."""
        return self.end >= self.segment.metadata.segment_size_bytes


@dataclass(slots=True, kw_only=True)
class _Planned:
    """The part of a segment that is still to be asked for."""

    segment: ListedSegment
    indexes: StoredIndexes
    position: int
    end: int
    skipped: int

    def next_range(self, most_bytes: int) -> tuple[ByteRange, int]:
        """The next range and what of it is skipped."""
        chunk = self.indexes.checksums.chunk_size_bytes
        step = max(most_bytes // chunk, 1) * chunk
        end = min(self.position + step, self.end)
        found = ByteRange(start=self.position, end=end), self.skipped
        self.position, self.skipped = end, 0
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flying:
    """A range that was asked for; `landed` makes of it what is given out, with its `data`."""

    size_bytes: int
    future: "Future[ByteBuffer]"
    landed: Callable[..., LogRange]


class RangesAhead:
    """From an offset of the first segment on; `extend` adds segments behind the last one."""

    def __init__(
        self,
        stores: OpenStores,
        topic_partition: TopicPartition,
        cluster_id: str,
        segments: Iterable[ListedSegment],
        offset: int,
    ) -> None:
        self._stores = stores
        self._topic_partition = topic_partition
        self._cluster_id = cluster_id
        self._segments = deque(segments)
        self._offset = offset
        self._most_bytes = FIRST_BYTES
        self._planned: _Planned | None = None
        self._indexes: Future[StoredIndexes] | None = None
        self._flying: deque[_Flying] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether everything was given out."""
        return not (self._segments or self._flying or self._planned)

    @property
    def left(self) -> int:
        """Segments that are not begun."""
        return len(self._segments)

    def extend(self, segments: Iterable[ListedSegment]) -> None:
        self._segments.extend(segments)

    def ranges(self, stop: Stop) -> Iterator[LogRange]:
        """In order; ends where the segments known now do. RemoteStorageError, MissingStore: of the
        first range that cannot be read. Stopped.
        """
        while not self.is_empty:
            self._fill(stop)
            if not self._flying:
                continue
            first = self._flying[0]
            data = self._result(first.future, stop)
            self._flying.popleft()
            try:
                yield first.landed(data=data)
            finally:
                self._stores.memory.give_back(first.size_bytes)

    def close(self) -> None:
        """Give up what was asked for."""
        if self._indexes is not None:
            self._indexes.cancel()
        for one in self._flying:
            one.future.cancel()
            self._stores.memory.give_back(one.size_bytes)
        self._flying.clear()

    def _fill(self, stop: Stop) -> None:
        """Ask for ranges as far as there is room; waits only where nothing is asked for."""
        while (planned := self._planned or self._plan_next(stop)) is not None:
            left, memory = planned.end - planned.position, self._stores.memory
            flying = sum(one.size_bytes for one in self._flying)
            most = self._most_bytes
            if self._flying and flying + min(left, most) > self._stores.ahead_bytes:
                return
            if not memory.take(min(left, most)):
                if self._flying:
                    return
                # Its reader waits for it, and comes on with as little as can be checked.
                most = planned.indexes.checksums.chunk_size_bytes
                memory.exceed(min(left, most))
            self._ask(planned, most, min(left, most))

    def _ask(self, planned: _Planned, most_bytes: int, room_bytes: int) -> None:
        wanted, skipped = planned.next_range(most_bytes)
        self._stores.memory.give_back(room_bytes - wanted.size_bytes)
        self._most_bytes = RANGE_BYTES
        future = self._stores.log(
            self._topic_partition, self._cluster_id, planned.segment, wanted, planned.indexes
        )
        is_last = planned.position >= planned.end
        self._flying.append(
            _Flying(
                size_bytes=wanted.size_bytes,
                future=future,
                landed=partial(
                    LogRange,
                    segment=planned.segment,
                    indexes=planned.indexes,
                    skipped=skipped,
                    end=wanted.end,
                    is_last=is_last,
                ),
            )
        )
        if is_last:
            self._planned = None

    def _plan_next(self, stop: Stop) -> _Planned | None:
        """Begin the next segment; None: there is none, or its indexes are on their way."""
        if not self._segments:
            return None
        if self._indexes is None:
            self._indexes = self._stores.indexes(
                self._topic_partition, self._cluster_id, self._segments[0]
            )
        if self._flying and not _is_there(self._indexes):
            return None  # where it has failed, that is said once all before it is given out
        indexes = self._result(self._indexes, stop)
        self._indexes = None
        segment = self._segments.popleft()
        self._planned = _planned(segment, indexes, self._offset)
        self._offset = max(self._offset, segment.next_offset)
        if self._segments:
            self._indexes = self._stores.indexes(
                self._topic_partition, self._cluster_id, self._segments[0]
            )
        return self._planned

    def _result(self, future: "Future[T]", stop: Stop) -> T:
        limit_ms = self._stores.call_timeout_ms
        try:
            with stop.running(future.cancel):
                return future.result(limit_ms / 1000)
        except TimeoutError as error:
            future.cancel()
            raise Unavailable(f"the store has not answered for {limit_ms} ms") from error
        except CancelledError as error:
            stop.check()
            raise Unavailable("the stores were closed") from error


def _is_there(future: "Future[Any]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _planned(segment: ListedSegment, indexes: StoredIndexes, offset: int) -> _Planned:
    """Whole chunks from the one with the offset's batch to the one where the segment's part of the
    history ends.
    """
    chunk, size = indexes.checksums.chunk_size_bytes, segment.metadata.segment_size_bytes
    found = indexes.offsets.lookup(offset)
    end = size
    if segment.next_offset < segment.metadata.next_offset:
        upper = indexes.offsets.end_position(segment.next_offset)
        end = size if upper is None else min(-(-upper // chunk) * chunk, size)
    position = found // chunk * chunk
    return _Planned(
        segment=segment,
        indexes=indexes,
        position=position,
        end=end,
        skipped=found - position,
    )
