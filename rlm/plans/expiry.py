"""Plans which remote segments total retention ends, or why not: this decision deletes records.

Kafka's RLMExpirationTask, on the ledger instead of the broker's files. Segments are walked by
offset, inside the leader's merged lineage (H4), from the remote log start on; the walk stops at the
first one that retention keeps, so that the remote log start moves over a prefix only. It never
moves beyond what remote segments hold, and never depends on the broker's log start (H1).

- **Time.** A segment is too old if its newest record is older than retention (strictly). A segment
  without timestamps is never too old. The time is that of `retention_now`, below (H16).
- **Size.** The bytes of all remote segments in the lineage and of local segments beyond them,
  minus retention, may go; a segment goes by size only if all of it fits. Every offset is counted
  once: where segments overlap, and where one ends in a dead lineage, the part of its bytes that
  its offsets are. An attempt, a deletion or a disputed record (H3) counts nothing.
- **Doubt stops the walk.** A segment that is disputed or being copied; offsets that only the local
  log holds, or that an unsettled attempt may hold (H15).
- **Limit.** At most a share of the partition's remote bytes goes in one pass, but always one
  segment: a wrong setting or clock is noticed before everything is gone.

What ends at or below the remote log start may be deleted whatever raised it, as after a crash, in
whatever lineage it is, since no reader gets it any more (G4). Only records of a later leader epoch
than the decision's are kept: nobody has ended those (H4). Pure: the task acts. Source:
RemoteLogManager.RLMExpirationTask; KAFKA-20732.
"""

import enum
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.copy import TopicState, refuse_topic
from rlm.plans.coverage import SETTLED, empty_ranges, has_ended, missed, unsettled_end
from rlm.plans.guards import DeletionGuards, Forbidden, forbidden
from rlm.plans.retention import UNLIMITED
from rlmm.ledger import Hole, PartitionLedger, UsableExtent
from rlmm.settings_records import TotalRetention
from rlmm.settings_view import ClockSkew

MOST_SKEW_MS = 300_000
"""Clocks that differ by more say nothing about the age of a record."""
_ENDED_STATES = (
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
)


class NoExpiry(enum.Enum):
    """Reasons why nothing (more) expires, as `status` shows them."""

    NOT_READY = Forbidden.NOT_READY.value
    LEDGER_PROBLEM = Forbidden.LEDGER_PROBLEM.value
    FREEZE_RECORD = Forbidden.FREEZE_RECORD.value
    FROZEN = Forbidden.FROZEN.value
    TOPIC_REFUSED = "topic must not expire"
    NO_START = "the remote log start is not known"
    UNLIMITED = "total retention has no limit"
    CLOCK = "the time is not certain"
    WITHIN_RETENTION = "all is within total retention"
    COPYING = "a segment is being copied"
    DISPUTED = "a segment is disputed"
    ONLY_LOCAL = "records are not remote yet"
    UNSETTLED = "an attempt is not settled"
    LATER = "the rest goes in later passes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The times that must agree, in wall ms: our own clock, and the brokers' by the newest record
    of the settings topic and the monotonic time since it was read (None = none was read yet).
    `others`: live services beside brokers, and how far their clocks are ahead of the brokers'.
    """

    own_ms: int
    log_ms: int | None
    others: Sequence[ClockSkew] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Nothing expires, and why."""

    reason: NoExpiry
    detail: str = ""

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


def retention_now(clocks: Clocks) -> int | Held:
    """The time by which records are old, wall ms: the earlier of two clocks that agree (H16).

    The brokers' clock may be that of our own host, so every other service must agree with it too.
    """
    if clocks.log_ms is None:
        return Held(reason=NoExpiry.CLOCK, detail="no record of the settings topic was read yet")
    skew_ms = clocks.own_ms - clocks.log_ms
    if abs(skew_ms) > MOST_SKEW_MS:
        detail = f"our clock and the brokers' differ by {abs(skew_ms) // 1000} s"
        return Held(reason=NoExpiry.CLOCK, detail=detail)
    for other in clocks.others:
        if abs(other.skew_ms) > MOST_SKEW_MS:
            detail = f"the clocks of {other.who} and of the brokers differ by "
            return Held(reason=NoExpiry.CLOCK, detail=f"{detail}{abs(other.skew_ms) // 1000} s")
    return min(clocks.own_ms, clocks.log_ms)


def refuse_expiry(guards: DeletionGuards, topic: TopicState) -> Held | None:
    """Why no segment of a partition may be deleted now, None where it may."""
    deletion = forbidden(guards)
    if deletion is not None:
        return Held(reason=NoExpiry(deletion[0].value), detail=deletion[1])
    refused = refuse_topic(topic)
    if refused is not None:
        return Held(reason=NoExpiry.TOPIC_REFUSED, detail=refused[1] or refused[0].value)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryView:
    """One snapshot of a partition.

    `remote_log_start_epoch`: leader epoch under which the remote start was decided, -1 = unknown.
    `copying`: segment ids of live copy attempts. `retention`: the one in force. `now_ms`: of
    `retention_now`, Held where it is not certain. `most_percent`: of the remote bytes in one pass,
    None = no limit.
    """

    ledger: PartitionLedger
    lineage: Lineage
    log_end_offset: int
    remote_log_start_offset: int | None
    remote_log_start_epoch: int
    log: PartitionLog
    local_log_start_offset: int
    holes: Sequence[Hole]
    copying: Collection[Uuid]
    retention: TotalRetention
    now_ms: int | Held
    most_percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan:
    """Raise the remote log start to `new_start`, then delete `segments`, all of which end at or
    below it. `held`: why nothing more goes.
    """

    remote_log_start_offset: int
    new_start: int
    segments: tuple[RemoteLogSegmentMetadata, ...]
    held: Held

    @property
    def raises(self) -> bool:
        return self.new_start > self.remote_log_start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpiry:
    """The plan of one partition, or why there is none."""

    partition: int
    plan: ExpiryPlan | RemoteStorageError


def plan_expiry(view: ExpiryView) -> ExpiryPlan:
    """What expires now. Without a known remote log start nothing does (H2)."""
    start = view.remote_log_start_offset
    if start is None:
        held = Held(reason=NoExpiry.NO_START)
        return ExpiryPlan(remote_log_start_offset=-1, new_start=-1, segments=(), held=held)
    expired, new_start, held = _expired(view, start)
    return ExpiryPlan(
        remote_log_start_offset=start,
        new_start=new_start,
        segments=_deletable(view, start, new_start, expired),
        held=held,
    )


def _expired(view: ExpiryView, start: int) -> tuple[set[bytes], int, Held]:
    """The raw ids of the segments that retention ends, where the remote log then starts, and what
    stopped.
    """
    expired: set[bytes] = set()
    if view.retention == TotalRetention():
        return expired, start, Held(reason=NoExpiry.UNLIMITED)
    if isinstance(view.now_ms, Held):
        return expired, start, view.now_ms
    usable = view.ledger.extents(view.lineage, view.log_end_offset, start)
    breach = _Breach.of(view, usable, view.now_ms)
    budget = _pass_bytes(usable, view.most_percent)
    new_start = start
    for segment in usable:
        held = _doubt(view, segment, new_start)
        if held is None and not breach.takes(segment):
            held = Held(reason=NoExpiry.WITHIN_RETENTION)
        size_bytes = segment.size_bytes
        if held is None and expired and budget is not None and size_bytes > budget:
            held = Held(reason=NoExpiry.LATER)
        if held is not None:
            return expired, new_start, held
        budget = None if budget is None else budget - size_bytes
        expired.add(segment.segment)
        new_start = max(new_start, segment.next_offset)
    return expired, new_start, Held(reason=NoExpiry.WITHIN_RETENTION)


def _pass_bytes(usable: Iterable[UsableExtent], most_percent: int | None) -> int | None:
    if most_percent is None:
        return None
    return sum(one.size_bytes for one in usable) * most_percent // 100


class _Breach:
    """Whether segments breach retention, asked in order of offsets."""

    def __init__(
        self, counted: dict[bytes, int], excess_bytes: int | None, oldest_ms: int | None
    ) -> None:
        """`oldest_ms`: older timestamps have expired, None = none has. `excess_bytes` likewise."""
        self._counted = counted
        self._excess_bytes = excess_bytes
        self._oldest_ms = oldest_ms

    @classmethod
    def of(cls, view: ExpiryView, usable: Sequence[UsableExtent], now_ms: int) -> "_Breach":
        age, most = view.retention.retention_ms, view.retention.retention_bytes
        counted = _counted_bytes(usable)
        total = sum(counted.values()) + _only_local_bytes(view, usable)
        return cls(
            counted,
            excess_bytes=None if most == UNLIMITED else total - most,
            oldest_ms=None if age == UNLIMITED else now_ms - age,
        )

    def takes(self, segment: UsableExtent) -> bool:
        """Whether the next segment goes; what goes by its age leaves less to go by size."""
        size_bytes = self._counted[segment.segment]
        if not (self._is_too_old(segment) or self._is_too_much(size_bytes)):
            return False
        if self._excess_bytes is not None:
            self._excess_bytes -= size_bytes
        return True

    def _is_too_old(self, segment: UsableExtent) -> bool:
        newest_ms = segment.max_timestamp_ms
        return self._oldest_ms is not None and 0 <= newest_ms < self._oldest_ms

    def _is_too_much(self, size_bytes: int) -> bool:
        excess = self._excess_bytes
        return excess is not None and excess > 0 and size_bytes <= excess


def _counted_bytes(usable: Iterable[UsableExtent]) -> dict[bytes, int]:
    """What each segment counts for retention by size: the share of its offsets that are in the
    lineage and in no segment before it.
    """
    counted: dict[bytes, int] = {}
    reach = 0
    for one in usable:
        offsets = max(0, one.next_offset - max(one.start_offset, reach))
        share = one.size_bytes * offsets
        of_all = one.end_offset - one.start_offset
        counted[one.segment] = 0 if one.disputed else share // of_all
        reach = reach if one.disputed else max(reach, one.next_offset)
    return counted


def _only_local_bytes(view: ExpiryView, usable: Iterable[UsableExtent]) -> int:
    """Bytes of local segments that begin at or beyond the end of the remote ones."""
    end = max((one.next_offset for one in usable), default=view.remote_log_start_offset or 0)
    return sum(one.size_bytes for one in view.log.segments if one.base_offset >= end)


def _doubt(view: ExpiryView, segment: UsableExtent, cursor: int) -> Held | None:
    """Why the walk may not go over a segment, or over the offsets from `cursor` up to it."""
    first, end = segment.start_offset, segment.next_offset
    if segment.disputed:
        return Held(reason=NoExpiry.DISPUTED, detail=f"it begins at {first}")
    for segment_id in view.copying:
        entry = view.ledger.entries.get(segment_id)
        if entry is not None and entry.metadata.start_offset < end:
            return Held(reason=NoExpiry.COPYING, detail=f"from {entry.metadata.start_offset}")
    gap = [(cursor, first)] if cursor < first else []
    for gap_start, gap_end in missed(gap, _without_records(view) if gap else ()):
        if view.local_log_start_offset < gap_end:
            detail = f"offsets {gap_start} to {gap_end - 1}"
            return Held(reason=NoExpiry.ONLY_LOCAL, detail=detail)
        unsettled = unsettled_end(
            view.ledger,
            view.lineage,
            view.log_end_offset,
            start=gap_start,
            next_offset=gap_end,
            trusted=True,
        )
        if unsettled != SETTLED:
            detail = f"offsets {gap_start} to {gap_end - 1}"
            return Held(reason=NoExpiry.UNSETTLED, detail=detail)
    return None


def _without_records(view: ExpiryView) -> tuple[tuple[int, int], ...]:
    """Ranges that are known to hold no records that anybody misses, ascending. A recorded hole
    never covers what the local log holds: it is copied first (H15).
    """
    empty = ((one.start, one.next_offset) for one in empty_ranges(view.log, view.holes))
    holes = missed(((hole.start, hole.end) for hole in view.holes), _local_ranges(view))
    return tuple(sorted({*empty, *holes}))


def _local_ranges(view: ExpiryView) -> tuple[tuple[int, int], ...]:
    """What the local segments that have records hold, ascending; perhaps below the log start."""
    end = view.log_end_offset
    return tuple(
        (one.base_offset, end if one.next_offset is None else one.next_offset)
        for one in view.log.segments
        if one.size_bytes
    )


def _deletable(
    view: ExpiryView, start: int, new_start: int, expired: Collection[bytes]
) -> tuple[RemoteLogSegmentMetadata, ...]:
    """By start offset: what has just expired, and what ended below the start that holds already."""
    found = [
        entry.metadata
        for entry in view.ledger.in_state(*_ENDED_STATES, up_to=new_start)
        if not entry.disputed
        and (entry.metadata.segment_id.id.raw in expired or _has_ended(view, entry.metadata, start))
    ]
    return tuple(found)


def _has_ended(view: ExpiryView, metadata: RemoteLogSegmentMetadata, start: int) -> bool:
    if metadata.segment_id.id in view.copying:
        return False
    return has_ended(metadata, start, view.remote_log_start_epoch)
