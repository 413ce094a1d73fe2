"""Looks up offsets by position, timestamp and leader epoch, for the proxy, the API and readers
alike.

A client that asks where data begins or where an epoch ended needs the answer for both tiers (G7),
but the broker knows one. The broker is asked first, and its errors are passed on: it is the
authority on access (G8). Callers pass a barrier between the broker's answer and the view (H17).
Must not know Kafka's protocol, gRPC or how long a barrier takes.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.apis.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from kip405.errors import Corrupt, Fenced, Invalid, NotFound, RemoteStorageError, Unavailable
from rlm.reading.values import TimestampedOffset
from rlm.remote_log.reads import lost
from rlm.remote_log.tier import EpochEnd, Tier, TierPartition, TopicRef, has_remote

_OF_THE_BROKER_ALONE = frozenset({LATEST_TIMESTAMP, MAX_TIMESTAMP})
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """An answer of ListOffsets."""

    offset: int
    leader_epoch: int
    timestamp_ms: int = -1


NOWHERE = Position(offset=_UNKNOWN, leader_epoch=_UNKNOWN)
"""No record matches."""

FindTimestamp = Callable[[int], Awaitable[TimestampedOffset | None]]


class RemoteBounds(Protocol):
    """Start and end of the remote tier of one partition; they are equal without records."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def has_records(self) -> bool: ...

    def epoch_for_offset(self, offset: int) -> int: ...


def needs_view(timestamp: int) -> bool:
    """Whether the remote tier may change the broker's answer: all timestamps but -1 and -3
    (H17).
    """
    return timestamp not in _OF_THE_BROKER_ALONE


async def remote_position(remote: RemoteBounds, find: FindTimestamp, timestamp: int) -> Position:
    """The position in the remote tier alone, NOWHERE where no remote record matches.

    Latest is the remote end and earliest the remote log start. `find` looks a timestamp up.
    Invalid: only a broker knows this position.
    """
    if timestamp == LATEST_TIMESTAMP:
        return _at(remote, remote.next_offset)
    if timestamp == EARLIEST_TIMESTAMP:
        return _at(remote, remote.log_start_offset)
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return _at(remote, remote.next_offset - 1) if remote.has_records else NOWHERE
    if timestamp < 0:
        raise Invalid(f"timestamp {timestamp}: the remote tier alone does not know it")
    return await position_of_timestamp(find, timestamp)


async def position_of_timestamp(find: FindTimestamp, timestamp_ms: int) -> Position:
    """The first remote record at or after the timestamp; NOWHERE without one."""
    found = await find(timestamp_ms)
    if found is None:
        return NOWHERE
    return Position(
        offset=found.offset, leader_epoch=found.leader_epoch, timestamp_ms=found.timestamp_ms
    )


class BothTiers:
    """Corrects our broker's answers, for partitions that it leads, by the view of the remote tier.

    `deadline_ms` bounds a request to the broker. Errors: Fenced: the partition is frozen (H4).
    Unavailable: not known yet, retry. Corrupt: objects are damaged or missing (H25).
    """

    def __init__(self, tier: Tier, *, deadline_ms: int) -> None:
        self._tier = tier
        self._deadline_ms = deadline_ms

    async def position(
        self, view: TierPartition, timestamp: int, broker_offset: int
    ) -> Position | None:
        """The position over both tiers, None where the broker's answer is right. `broker_offset` is
        the broker's answer, -1 where no local record matches.
        """
        if timestamp == EARLIEST_LOCAL_TIMESTAMP:
            return None
        _refuse_uncertain(view, timestamp)
        remote = _Leading(tier=self._tier, view=view)
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return await remote_position(remote, remote.offset_for_timestamp, timestamp)
        if timestamp == EARLIEST_PENDING_UPLOAD_TIMESTAMP:
            remote_next = remote.next_offset if remote.has_records else _UNKNOWN
            return _at(remote, max(remote_next, await self._local_log_start(view)))
        if not remote.has_records:
            return None
        found = await remote_position(remote, remote.offset_for_timestamp, timestamp)
        is_lower = found.offset < broker_offset or broker_offset == _UNKNOWN
        return found if found != NOWHERE and is_lower else None

    def epoch_end(
        self, view: TierPartition, leader_epoch: int, broker: EpochEnd
    ) -> EpochEnd | None:
        """The merged lineage's answer where it ends the epoch no higher than the broker's, or where
        the broker knows nothing; None where the broker's answer is right.

        A broker whose first epochs were trimmed ends older epochs at its local start and returns
        the epoch that was asked for, though it may have no records
        (LeaderEpochFileCache.endOffsetFor). Both are too high, so that a truncation would not be
        detected (H37).
        """
        if view.frozen:
            if broker.end_offset < 0:
                raise _frozen(view)
            return None
        known = self._tier.epoch_end(view.topic_id, view.partition, leader_epoch)
        if known is None or known == broker:
            return None
        if broker.end_offset != _UNKNOWN and known.end_offset > broker.end_offset:
            return None  # the broker's log differs from the one that we know
        return known

    async def _local_log_start(self, view: TierPartition) -> int:
        if view.watermarks is not None:
            return view.watermarks.log_start_offset
        ref = TopicRef(name=view.topic)
        try:
            watermarks = await self._tier.watermarks(ref, view.partition, self._deadline_ms)
        except RemoteStorageError as error:
            raise Unavailable(
                f"{_name(view)}: its local log start is not known: {error}"
            ) from error
        return watermarks.log_start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leading:
    """The remote tier of a partition as seen by the service of its leader."""

    tier: Tier
    view: TierPartition

    @property
    def log_start_offset(self) -> int:
        return self.view.remote_log_start_offset

    @property
    def next_offset(self) -> int:
        return self.view.remote_next_offset

    @property
    def has_records(self) -> bool:
        return has_remote(self.view)

    def epoch_for_offset(self, offset: int) -> int:
        return self.tier.epoch_for_offset(self.view.topic_id, self.view.partition, offset)

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        view = self.view
        try:
            return await self.tier.offset_for_timestamp(view.topic_id, view.partition, timestamp_ms)
        except (NotFound, Corrupt) as error:
            raise lost(_name(view), error) from error


def _refuse_uncertain(view: TierPartition, timestamp: int) -> None:
    """A frozen partition is answered within the broker's own log only, never lower (H4). The
    earliest offset is unknown while no remote record can be read but some may exist (H15).
    """
    if not view.led_here:
        raise Unavailable(f"{_name(view)} is not led here any more")
    if view.frozen:
        raise _frozen(view)
    asks_for_old = timestamp == EARLIEST_TIMESTAMP or timestamp >= 0
    is_unsettled = view.unsettled_next_offset > max(view.remote_log_start_offset, 0)
    if asks_for_old and is_unsettled and not has_remote(view):
        raise Unavailable(f"{_name(view)}: where the remote data begins is not settled yet")


def _frozen(view: TierPartition) -> Fenced:
    return Fenced(f"{_name(view)} is frozen: `rlm status` says why")


def _name(view: TierPartition) -> str:
    return f"{view.topic}-{view.partition}"


def _at(remote: RemoteBounds, offset: int) -> Position:
    return Position(offset=offset, leader_epoch=remote.epoch_for_offset(offset))
