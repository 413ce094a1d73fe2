"""Reads one partition over both tiers, as a stream of whole stored batches.

The broker's watermarks are taken before the view's barrier, so that a local start is never newer
than the remote end that it is compared with (H17). Offsets below the broker's log start come from
the remote tier. A hole is skipped like a compaction gap and reported (H15). Must not know gRPC.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kip405.batches import cut_batches
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Fenced, NotFound, OffsetOutOfRange, Unavailable
from kip405.ids import MAX_OFFSET
from rlm.broker.answers import LocalRecords
from rlm.broker.leadership import LedPartition
from rlm.plans.coverage import missed
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.tier import (
    ChangedMeanwhile,
    Tier,
    TierPartition,
    TopicRef,
    Watermarks,
    has_remote,
)

_MAX_REFRESHES = 5
Ranges = tuple[tuple[int, int], ...]


class _Broker(Protocol):
    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        leader_epoch: int = -1,
        read_committed: bool = False,
    ) -> LocalRecords: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """`end_offset` exclusive; None = up to the current LSO or high watermark."""

    start_offset: int
    end_offset: int | None
    max_bytes: int
    read_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Whole batches of one tier, in parts that may end inside a batch, with the partition's state.

    The parts hold chunks of the read path's memory; the caller that has encoded them clears them.
    `missing`: half-open ranges from the piece's start to `next_offset` that no tier has (H15).
    """

    batches: list[ByteBuffer]
    next_offset: int
    aborted: tuple[tuple[int, int], ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    is_remote: bool
    missing: Ranges = ()

    @property
    def size_bytes(self) -> int:
        """Size of the batches."""
        return sum(len(part) for part in self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionState:
    """Watermarks of the broker, then the view after a barrier (None = not tiered)."""

    watermarks: Watermarks
    view: TierPartition | None

    @property
    def log_start_offset(self) -> int:
        local = self.watermarks.log_start_offset
        if self.view is None or self.view.frozen or self.view.remote_log_start_offset < 0:
            return local
        if has_remote(self.view):
            return self.view.remote_log_start_offset
        return max(local, self.view.remote_log_start_offset)

    @property
    def remote_next_offset(self) -> int:
        return self.view.remote_next_offset if self.view is not None else -1

    def is_remote(self, offset: int) -> bool:
        """Whether only the remote tier can have the offset, and the remote data extends to it."""
        view = self.view
        return (
            view is not None
            and offset < self.watermarks.log_start_offset
            and has_remote(view)
            and offset < view.remote_next_offset
        )

    def is_unsettled(self, offset: int) -> bool:
        """Whether an unfinished or disputed ledger entry may still hold what the broker lacks."""
        return (
            self.view is not None
            and not self.view.frozen
            and offset < self.watermarks.log_start_offset
            and self.view.remote_log_start_offset <= offset < self.view.unsettled_next_offset
        )


class PartitionReading:
    """Streams partitions that our broker leads."""

    def __init__(self, *, tier: Tier, broker: _Broker, barrier_deadline_ms: int) -> None:
        self._tier = tier
        self._broker = broker
        self._deadline_ms = barrier_deadline_ms

    async def stream(self, led: LedPartition, request: ReadRequest) -> AsyncIterator[Piece]:
        """Pieces in order. Invalid: offsets outside the log. Fenced: leadership or freeze changed.
        Corrupt: remote objects are damaged or missing.
        """
        state = await self._current(led)
        if request.start_offset > state.watermarks.high_watermark:
            raise OffsetOutOfRange(
                f"{led}: offset {request.start_offset} is beyond "
                f"high_watermark={state.watermarks.high_watermark}",
                high_watermark=state.watermarks.high_watermark,
            )
        _refuse_ended(led, request.start_offset, state)
        upper = _upper(request, state)
        offset, refreshes = request.start_offset, 0
        while offset < upper:
            if self._has_moved_up(led, offset, state):
                state = await self._current(led)
                _refuse_ended(led, offset, state)
            try:
                piece = await self._next(led, replace(request, start_offset=offset), state, upper)
            except (Fenced, ChangedMeanwhile):
                # The log start moved up, or we no longer lead: the barrier shows which.
                refreshes += 1
                if refreshes > _MAX_REFRESHES:
                    raise
                state = await self._current(led)
                _refuse_ended(led, offset, state)
                continue
            if piece.next_offset <= offset:
                return
            yield piece
            offset, refreshes = piece.next_offset, 0

    def _has_moved_up(self, led: LedPartition, offset: int, state: _PartitionState) -> bool:
        """Whether retention has moved the remote log start above the offset meanwhile."""
        if state.view is None:
            return False
        now = self._tier.partition(
            TopicRef(name=led.topic_id_partition.topic), led.topic_id_partition.partition
        )
        before = state.view.remote_log_start_offset
        return now is not None and before < now.remote_log_start_offset > offset

    async def _current(self, led: LedPartition) -> _PartitionState:
        ref = TopicRef(name=led.topic_id_partition.topic)
        watermarks = await self._tier.watermarks(
            ref, led.topic_id_partition.partition, self._deadline_ms
        )
        view = await self._tier.barrier(ref, led.topic_id_partition.partition, self._deadline_ms)
        if view is not None and not view.led_here:
            raise Fenced(f"{led} is not led here any more")
        return _PartitionState(watermarks=watermarks, view=view)

    async def _next(
        self, led: LedPartition, request: ReadRequest, state: _PartitionState, upper: int
    ) -> Piece:
        offset = request.start_offset
        missing: Ranges = ()
        if state.is_remote(offset):
            piece, missing = await self._remote(led, request, state, upper)
            if piece is not None:
                return piece
        at = max(offset, state.remote_next_offset)
        if at < upper and state.is_unsettled(at):
            raise _unsettled(led, offset)
        return await self._local(led, request, state, missing, upper)

    async def _remote(
        self, led: LedPartition, request: ReadRequest, state: _PartitionState, upper: int
    ) -> tuple[Piece | None, Ranges]:
        """What the remote tier has from the offset on (None for nothing), and what it lacks."""
        wanted = RemoteRead(
            topic_id=led.topic_id_partition.topic_id,
            partition=led.topic_id_partition.partition,
            offset=request.start_offset,
            # Not the caller's end: the tier omits a batch that extends beyond its bound.
            upper_offset=min(_stable(request, state), state.remote_next_offset),
            max_bytes=request.max_bytes,
            at_least_one=True,
            read_committed=request.read_committed,
        )
        try:
            found = await self._tier.read(wanted)
        except (NotFound, Corrupt) as error:
            _refuse_ended(led, request.start_offset, await self._current(led))
            raise lost(led, error) from error
        batches, next_offset = below(found, request.start_offset, request.max_bytes, upper)
        if not batches:
            return None, found.missing
        piece = _piece(state, batches, next_offset, found.aborted, True)
        return replace(piece, missing=clipped(found.missing, request.start_offset, next_offset)), ()

    async def _local(
        self,
        led: LedPartition,
        request: ReadRequest,
        state: _PartitionState,
        missing: Ranges,
        upper: int,
    ) -> Piece:
        """What the broker has from the offset on; `missing` is what the remote tier lacks below."""
        offset = max(request.start_offset, state.watermarks.log_start_offset)
        hole = (max(request.start_offset, state.remote_next_offset), offset)
        empty = state.view.empty if state.view is not None else ()
        missing = (*missing, *missed([hole], empty)) if hole[0] < hole[1] else missing
        if offset >= upper:
            nothing = _piece(state, (), upper, (), False)
            return replace(nothing, missing=clipped(missing, request.start_offset, upper))
        found = await self._broker.fetch(
            led.topic_id_partition.topic,
            led.topic_id_partition.partition,
            offset,
            max_bytes=request.max_bytes,
            leader_epoch=led.leader_epoch,
            read_committed=request.read_committed,
        )
        start, end, next_offset = cut_batches(found.records, offset, request.max_bytes, True, upper)
        moved = replace(
            state.watermarks,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
        )
        piece = _piece(
            replace(state, watermarks=moved),
            (found.records[start:end],),
            offset if start == end else next_offset,
            found.aborted if request.read_committed else (),
            False,
        )
        return replace(piece, missing=clipped(missing, request.start_offset, piece.next_offset))


def below(
    found: RemoteRecords, offset: int, max_bytes: int, upper: int
) -> tuple[tuple[ByteBuffer, ...], int]:
    """The batches read from the offset on that begin below `upper`, and the first offset after
    them; without batches, the offset itself.
    """
    if found.size_bytes and found.next_offset <= upper:
        return found.records, found.next_offset
    data = b"".join(found.records)
    start, end, next_offset = cut_batches(data, offset, max_bytes, True, upper)
    return ((data[start:end],) if start < end else ()), next_offset


def lost(partition: object, error: NotFound | Corrupt) -> Corrupt:
    """The error for a finished segment whose objects are not there. NotFound would claim that the
    topic does not exist, or that there are no records to miss (H11, H25).
    """
    return Corrupt(f"{partition}: objects of the remote tier are damaged or gone: {error}")


def below_log_start(partition: object, offset: int, log_start_offset: int) -> OffsetOutOfRange:
    """The error for an offset below the log start. Spark connectors of older versions read the
    bound out of the message.
    """
    return OffsetOutOfRange(
        f"{partition}: offset {offset} is below log_start_offset={log_start_offset}",
        log_start_offset=log_start_offset,
    )


def _unsettled(led: LedPartition, offset: int) -> Unavailable:
    return Unavailable(f"{led}: whether offset {offset} is in the remote tier is not settled yet")


def _refuse_ended(led: LedPartition, offset: int, state: _PartitionState) -> None:
    """Invalid below the log start. A reader continues at the start that it is given, so none is
    given above records that a freeze withholds (H4) or that are not settled yet (H15).
    """
    if offset >= state.log_start_offset:
        return
    view = state.view
    first = offset if view is None else max(offset, view.remote_log_start_offset)
    if view is not None and view.frozen and first < state.log_start_offset:
        raise Fenced(
            f"{led} is frozen: only the broker's own log is read, "
            f"from {state.log_start_offset} on; `rlm status` says why"
        )
    if first < state.log_start_offset and state.is_unsettled(first):
        raise _unsettled(led, first)
    raise below_log_start(led, offset, state.log_start_offset)


def _stable(request: ReadRequest, state: _PartitionState) -> int:
    watermarks = state.watermarks
    return watermarks.last_stable_offset if request.read_committed else watermarks.high_watermark


def _upper(request: ReadRequest, state: _PartitionState) -> int:
    """Where the stream ends, by the state at its beginning."""
    end = MAX_OFFSET if request.end_offset is None else request.end_offset
    return min(end, _stable(request, state))


def clipped(ranges: Ranges, start: int, end: int) -> Ranges:
    """The parts of ascending ranges inside [start, end)."""
    cut = ((max(first, start), min(after, end)) for first, after in ranges)
    return tuple((first, after) for first, after in cut if first < after)


def _piece(
    state: _PartitionState,
    batches: Sequence[ByteBuffer],
    next_offset: int,
    aborted: tuple[tuple[int, int], ...],
    is_remote: bool,
) -> Piece:
    return Piece(
        batches=list(batches),
        next_offset=next_offset,
        aborted=aborted,
        high_watermark=state.watermarks.high_watermark,
        last_stable_offset=state.watermarks.last_stable_offset,
        log_start_offset=state.log_start_offset,
        is_remote=is_remote,
    )
