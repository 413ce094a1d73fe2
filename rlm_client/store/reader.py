"""Reads the remote tier of a partition from the store, where a service says what is there.

A service lists segments and up to where each counts; this reader gives out nothing but batches of
those, checked. Everything else it leaves to the service reader, at just this offset: what is below
the log start, in a hole, behind the end or not settled, which of a transaction's fates holds in the
history (H9), and segments whose objects are gone or damaged. So what is certain, and what an offset
that is not there means, is decided in one place for both ways to read. The list is asked for again
as the reader moves on, and whenever it is `FRESH_MS` old: what was read ahead counts no longer than
the list has it. This module must not know aiokafka.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final, Protocol

from kip405.batches import PREFIX_BYTES, base_offset_at, cut_batches, size_at
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, ErrorKind, NotFound, RemoteStorageError
from kip405.ids import Uuid
from kip405.indexes import aborted_for_fetch
from rlm_client.store.ahead import LogRange, RangesAhead
from rlm_client.store.opened import MissingStore, OpenStores
from rlm_client.store.windows import ListedSegment, Window, window_of
from tiered_reads import clock
from tiered_reads.errors import ServiceError
from tiered_reads.failover import TierReader
from tiered_reads.range_reader import Reading
from tiered_reads.stopping import Stop
from tiered_reads.values import Fetched, TopicPartition

FRESH_MS: Final = 5_000
"""How long a list of segments counts, as retention and elections may change it."""
WITHOUT_LISTS_MS: Final = 30_000
"""How long services are not asked for a list after none of them could give one."""
_TRIES: Final = 2
_log: Final = logging.getLogger(__name__)
Listed = tuple[ListedSegment, ...]


class SegmentLists(Protocol):
    """As much of FetchClient as is needed here."""

    def remote_window(
        self, topic_partition: TopicPartition, topic_id: bytes, start_offset: int, stop: Stop
    ) -> Any | None: ...


class StoreReader:
    """`service` reads what this reader does not; both are of one tier, whose name it has."""

    def __init__(
        self,
        lists: SegmentLists,
        stores: OpenStores,
        reading: Reading,
        topic_id: bytes,
        service: TierReader,
        *,
        fresh_ms: int = FRESH_MS,
    ) -> None:
        self.name = service.name
        self._lists = lists
        self._stores = stores
        self._reading = reading
        self._topic_id = topic_id
        self._service = service
        self._fresh_ms = fresh_ms
        self._left: set[Uuid] = set()
        self._tries: dict[Uuid, int] = {}
        self._window: Window | None = None
        self._no_lists_until_ms: int | None = None

    def read(self, start_offset: int, end_offset: int, stop: Stop) -> Iterator[Fetched]:
        """See TierReader. ServiceError: also where the store does not answer."""
        position = start_offset
        while position < end_offset:
            listed = self._listed(position, stop)
            if listed and listed[0].id not in self._left:
                pieces = self._from_store(listed, position, end_offset, stop)
            else:
                # Without a list up to the end: a hole is to be known as far as it goes.
                bound = listed[0].next_offset if listed else end_offset
                pieces = self._service.read(position, min(bound, end_offset), stop)
            for piece in pieces:
                yield piece
                position = piece.next_offset
                if not listed and not self._is_without_lists:
                    break

    def _listed(self, position: int, stop: Stop) -> Listed:
        """The segments from a position on as a service has just listed them; empty: the service
        reader is to say what is there.
        """
        if self._is_without_lists:
            return ()
        if not self._is_fresh(clock.monotonic_ms()) or not self._known(position):
            self._ask(position, stop)
        return self._known(position)

    @property
    def _is_without_lists(self) -> bool:
        until_ms = self._no_lists_until_ms
        return until_ms is not None and clock.monotonic_ms() < until_ms

    def _known(self, position: int) -> Listed:
        return () if self._window is None else self._window.from_offset(position)

    def _is_fresh(self, now_ms: int) -> bool:
        return self._window is not None and now_ms - self._window.asked_at_ms < self._fresh_ms

    def _ask(self, position: int, stop: Stop) -> None:
        """No list where a service refuses one: what it says to a read is the reason."""
        self._window, asked_at_ms = None, clock.monotonic_ms()
        reading = self._reading
        try:
            answer = self._lists.remote_window(
                reading.topic_partition, self._topic_id, position, stop
            )
            if answer is not None:
                reading.identity.saw(answer.topic_id, "the fetch API")
                self._window = window_of(answer, asked_at_ms)
                return
            reason = "its service is of an older version"
        except ServiceError as error:
            if error.kind in (ErrorKind.UNAVAILABLE.name, ErrorKind.BUSY.name):
                raise
            if error.kind != ErrorKind.FENCED.name:
                return
            reason = str(error)
        except Corrupt as error:
            reason = str(error)
        self._no_lists_until_ms = asked_at_ms + WITHOUT_LISTS_MS
        _log.warning(
            "event=no_segment_list partition=%s reason=%s", reading.topic_partition, reason
        )

    def _from_store(
        self, listed: Listed, position: int, end_offset: int, stop: Stop
    ) -> Iterator[Fetched]:
        """Pieces as far as the list goes and is the same whenever it is asked for again. They may
        end before, and the caller then decides anew.
        """
        window, reading = self._window, self._reading
        if window is None:
            return
        ahead = RangesAhead(
            self._stores, reading.topic_partition, window.cluster_id, listed, position
        )
        cut = _Cut(reading, position, end_offset)
        try:
            with contextlib.closing(ahead):
                for landed in ahead.ranges(stop):
                    if reading.read_committed and not landed.indexes.decides_aborted(
                        landed.segment
                    ):
                        self._left.add(landed.segment.id)
                        return
                    for piece in cut.pieces(landed):
                        yield piece
                        if cut.position >= end_offset or not self._is_listed(ahead, cut, stop):
                            return
                    if not self._is_listed(ahead, cut, stop):
                        return
        except MissingStore as missing:
            self._leave(self._segment_at(listed, cut.position), str(missing))
        except (NotFound, Corrupt) as error:
            self._doubt(self._segment_at(listed, cut.position), error)
        except RemoteStorageError as error:
            text = f"{reading.topic_partition}: the store: {error}"
            raise ServiceError(error.kind.name, text) from error

    def _is_listed(self, ahead: RangesAhead, cut: "_Cut", stop: Stop) -> bool:
        """Whether what is read ahead still counts; more is added to it as the reader moves on."""
        window = self._window
        if window is None:
            return False
        is_fresh = self._is_fresh(clock.monotonic_ms())
        if is_fresh and not (window.has_more and ahead.left <= 1):
            return True
        before = window.from_offset(cut.position)
        self._ask(cut.position, stop)
        now = self._known(cut.position)
        if not before:
            return not now
        if now[: len(before)] != before:
            return False
        ahead.extend(now[len(before) :])
        return True

    def _segment_at(self, listed: Listed, position: int) -> ListedSegment:
        known = (*listed, *self._known(position))
        return next((one for one in known if one.next_offset > position), listed[-1])

    def _doubt(self, segment: ListedSegment, error: RemoteStorageError) -> None:
        """It was deleted meanwhile, as a new list shows; otherwise it is tried once more, and then
        the service says what to think of it.
        """
        self._window = None
        self._tries[segment.id] = self._tries.get(segment.id, 0) + 1
        if self._tries[segment.id] >= _TRIES:
            self._leave(segment, str(error))

    def _leave(self, segment: ListedSegment, reason: str) -> None:
        self._left.add(segment.id)
        _log.warning(
            "event=segment_left_to_service partition=%s segment=%s reason=%s",
            *(self._reading.topic_partition, segment.id, reason),
        )


class _Cut:
    """Cuts ranges of segments into pieces of whole batches; `position` is where they go on."""

    def __init__(self, reading: Reading, position: int, end_offset: int) -> None:
        self.position = position
        self._reading = reading
        self._end_offset = end_offset
        self._rest = b""
        self._is_over = False

    def pieces(self, landed: LogRange) -> Iterator[Fetched]:
        """What the range completes. Corrupt: its bytes are not the batches they should be."""
        was_over = self._is_over
        if not was_over:
            yield from self._completed(landed)
        if not was_over and (landed.is_last or self._is_over):
            yield from self._last(landed)
        self._is_over = self._is_over and not landed.is_last

    def _completed(self, landed: LogRange) -> Iterator[Fetched]:
        data = memoryview(landed.data)[landed.skipped :]
        if self._rest:
            size = self._rest_size(data)
            if size is None or size > len(self._rest) + len(data):
                self._rest += data
                data = data[len(data) :]
            else:
                taken = size - len(self._rest)
                first, self._rest = b"".join((self._rest, data[:taken])), b""
                yield from self._whole(memoryview(first), landed)
                data = data[taken:]
        if len(data) and not self._is_over:
            yield from self._whole(data, landed)

    def _rest_size(self, data: memoryview) -> int | None:
        return size_at(self._rest + bytes(data[:PREFIX_BYTES]), 0)

    def _whole(self, buffer: memoryview, landed: LogRange) -> Iterator[Fetched]:
        segment = landed.segment
        upper = min(self._end_offset, segment.next_offset)
        while True:
            start, end, next_offset = cut_batches(
                buffer, self.position, self._reading.max_bytes, True, upper
            )
            if start == end:
                break
            if next_offset > segment.next_offset:
                raise Corrupt(
                    f"segment {segment.id}: a batch reaches to {next_offset}, beyond "
                    f"{segment.next_offset}"
                )
            yield self._piece(buffer[start:end], next_offset, landed)
            buffer = buffer[end:]
        if size_at(buffer, start) is not None and base_offset_at(buffer, start) >= upper:
            self._is_over = True  # and what follows it need not begin with a batch
        else:
            self._rest = bytes(buffer[start:])

    def _piece(self, batches: ByteBuffer, next_offset: int, landed: LogRange) -> Fetched:
        start, self.position = self.position, next_offset
        aborted: tuple[tuple[int, int], ...] = ()
        if self._reading.read_committed:
            aborted = aborted_for_fetch(landed.indexes.aborted, start, next_offset)
        return Fetched(
            batches=batches,
            start_offset=start,
            next_offset=next_offset,
            aborted=aborted,
            is_from_store=True,
        )

    def _last(self, landed: LogRange) -> Iterator[Fetched]:
        """The segment has no batch beyond the position that counts: compaction has left none. This
        is certain where a later batch was seen, or all bytes.
        """
        segment = landed.segment
        end = min(segment.next_offset, self._end_offset)
        is_certain = self._is_over or (landed.is_end_of_log and not self._rest)
        if self.position < end and not is_certain:
            raise Corrupt(f"segment {segment.id} ends inside a batch, or its indexes lead nowhere")
        self._rest = b""
        if self.position < end:
            start, self.position = self.position, end
            yield Fetched(batches=b"", start_offset=start, next_offset=end, is_from_store=True)
