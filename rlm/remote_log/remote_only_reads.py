"""Reads and positions of the remote tier alone (REMOTE_ONLY), even where a broker has the records.

Uses the same read path as the proxy, without snapshot, leader or broker, so any service can answer.
Must not know gRPC.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Protocol

from kafka_protocol.apis.offsets import MAX_TIMESTAMP
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.ids import MAX_OFFSET
from rlm.reading.requests import RemoteRead, RemoteRecords, TimestampedOffset
from rlm.remote_log.history import RemoteHistory
from rlm.remote_log.list_offsets import (
    Position,
    position_of_timestamp,
    remote_position,
)
from rlm.remote_log.reads import (
    Piece,
    Ranges,
    ReadRequest,
    below,
    below_log_start,
    clipped,
    lost,
)
from rlm.remote_log.remote_only_view import RemotePartitionState, RemoteView
from rlm.v1 import fetch_pb2


class _Walk(Protocol):
    """rlm.remote_log.history.SegmentReader."""

    async def read(self, history: RemoteHistory, request: RemoteRead) -> RemoteRecords: ...

    async def offset_for_timestamp(
        self, history: RemoteHistory, timestamp_ms: int, *, start: int, next_offset: int
    ) -> TimestampedOffset | None: ...


class RemoteReading:
    """Reads through the view and the segment reader; owns neither."""

    def __init__(self, *, view: RemoteView, walk: _Walk) -> None:
        self._view = view
        self._walk = walk

    async def stream(
        self, ref: fetch_pb2.TopicRef, partition: int, request: ReadRequest
    ) -> AsyncIterator[Piece]:
        """Pieces in order up to the requested end or the remote end as it is now; nothing when it
        begins there. The last piece may have no batches: it shows that the stream is complete.

        Invalid: below the remote log start, also when that moves up meanwhile. Corrupt: objects are
        damaged or missing. Errors as of RemoteView.partition, Unavailable as of SegmentReader.read.
        """
        state = await self._view.partition(ref, partition)
        _refuse_ended(state, request.start_offset)
        remote_end = state.next_offset
        wanted_end = MAX_OFFSET if request.end_offset is None else request.end_offset
        offset, upper = request.start_offset, min(wanted_end, remote_end)
        if remote_end <= offset < wanted_end < MAX_OFFSET:
            # A caller that asks for exactly this offset takes an empty answer for its absence.
            state.history.refuse_unsettled(offset, offset + 1)
        while offset < upper:
            state = self._view.again(state)
            _refuse_ended(state, offset)
            try:
                piece = await self._piece(state, request, offset, upper, remote_end)
            except (NotFound, Corrupt) as error:
                raise await self._lost(state, error, offset) from error
            yield piece
            offset = piece.next_offset

    async def _lost(
        self, state: RemotePartitionState, error: NotFound | Corrupt, offset: int
    ) -> RemoteStorageError:
        """The error for missing objects, as current as Kafka allows: they may have been deleted in
        order. Invalid: the offset is below the remote log start by now.
        """
        topic = fetch_pb2.TopicRef(topic_id=state.place.topic_id.raw)
        now = await self._view.partition(topic, state.place.partition)
        _refuse_ended(now, offset)
        is_same = now.history.ledger.version == state.history.ledger.version
        if is_same and now.log_start_offset == state.log_start_offset:
            return lost(state.place, error)
        return Unavailable(f"{state.place}: its segments have changed meanwhile")

    async def _piece(
        self,
        state: RemotePartitionState,
        request: ReadRequest,
        offset: int,
        upper: int,
        remote_end: int,
    ) -> Piece:
        found = await self._walk.read(
            state.history,
            RemoteRead(
                topic_id=state.place.topic_id,
                partition=state.place.partition,
                offset=offset,
                # Not the caller's end: a batch that extends beyond the bound is omitted.
                upper_offset=remote_end,
                max_bytes=request.max_bytes,
                at_least_one=True,
                read_committed=request.read_committed,
            ),
        )
        batches, next_offset = below(found, offset, request.max_bytes, upper)
        if not batches:
            for hole in clipped(found.missing, offset, upper):
                state.history.refuse_unsettled(*hole)
            return _piece(state, (), upper, remote_end, missing=found.missing, begin=offset)
        return _piece(
            state,
            batches,
            next_offset,
            remote_end,
            missing=found.missing,
            begin=offset,
            aborted=found.aborted,
        )

    async def position(self, ref: fetch_pb2.TopicRef, partition: int, timestamp: int) -> Position:
        """Offset of a timestamp or a special position; -1 where no remote record matches.

        Latest is the remote end and earliest the remote log start; they are equal where there is no
        remote record. Invalid: a special position that only a broker knows.
        """
        state = await self._view.partition(ref, partition)
        state.refuse_unreadable()
        find = partial(self._offset_for_timestamp, state)
        if timestamp != MAX_TIMESTAMP:
            return await remote_position(state, find, timestamp)
        usable = state.history.usable(state.log_start_offset)
        latest = max((one.metadata.max_timestamp_ms for one in usable), default=-1)
        return await position_of_timestamp(find, latest)

    async def _offset_for_timestamp(
        self, state: RemotePartitionState, timestamp_ms: int
    ) -> TimestampedOffset | None:
        try:
            return await self._walk.offset_for_timestamp(
                state.history,
                timestamp_ms,
                start=state.log_start_offset,
                next_offset=state.next_offset,
            )
        except (NotFound, Corrupt) as error:
            raise await self._lost(state, error, MAX_OFFSET) from error


def _refuse_ended(state: RemotePartitionState, offset: int) -> None:
    state.refuse_unreadable()
    if offset < state.log_start_offset:
        raise below_log_start(state.place, offset, state.log_start_offset)


def _piece(
    state: RemotePartitionState,
    batches: Sequence[ByteBuffer],
    next_offset: int,
    remote_end: int,
    *,
    missing: Ranges,
    begin: int,
    aborted: tuple[tuple[int, int], ...] = (),
) -> Piece:
    return Piece(
        batches=list(batches),
        next_offset=next_offset,
        aborted=aborted,
        high_watermark=remote_end,
        last_stable_offset=remote_end,
        log_start_offset=state.log_start_offset,
        is_remote=True,
        missing=clipped(missing, begin, next_offset),
    )
