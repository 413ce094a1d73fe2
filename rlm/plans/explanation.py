"""Explains in sentences where an offset of a partition is, who gets it, and what happens next.

Every reason comes from the plan that acts by it: `plan_copy` says why a segment is not copied,
`plan_trim` why the local log is not trimmed further. This module only finds the location of an
offset and puts all of it into words. What is readable follows the rules of the proxy: the broker
answers what its own log has; only below that the remote tier counts (rlm.proxy.splice). Pure.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kip405.ids import TopicPartition
from kip405.segments import layout_note
from rlm.log_dir.scanner import LocalSegment
from rlm.plans.copy import CopyPlan, WhyNot
from rlm.plans.coverage import NO_RECORDS
from rlm.plans.problems import human_bytes, human_utc
from rlm.plans.trim import EndedPlan, Held, TrimPlan
from rlmm.ledger import Hole, SegmentEntry
from rlmm.settings_records import (
    CAUSE_COMMAND,
    CAUSE_DELETE_RECORDS,
    CAUSE_ENABLE,
    CAUSE_RETENTION,
)


class OffsetLocation(enum.Enum):
    """Where an offset is, in the words that `rlm explain --json` prints."""

    BOTH = "both"
    REMOTE = "remote"
    LOCAL = "local"
    UNSETTLED = "unsettled"
    HOLE = "hole"
    EXPIRED = "expired"
    MISSING = "missing"
    BEYOND_END = "beyond-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCopy:
    """The readable remote segment that has the offset, of the leader's history up to `next_offset`.

    `store`: its name in the service's configuration, empty = not configured. `objects_stem`: see
    rsm_plugins.layout.keys. `problem`: why nobody gets it now, empty = nothing is known against it;
    `is_lost`: waiting does not help.
    """

    entry: SegmentEntry
    next_offset: int
    store: str
    objects_stem: str
    problem: str = ""
    is_lost: bool = False

    @property
    def since_ms(self) -> int | None:
        """When it was finished, by the brokers' clock; the newest record of a disputed one may say
        something else.
        """
        return None if self.entry.disputed else self.entry.timestamp_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainView:
    """One snapshot of a partition, and what the plans say of it. Ends are half-open.

    `remote_next_offset` None = nothing is remote. `remote_log_start_offset` None = never set.
    `copy_of_offset`: see RemoteCopy; None without an offset, too. `unsettled_end`: below it a gap
    may yet be filled by an unfinished or disputed segment. `trim` None: nothing is planned without
    a remote log start. `copy_failure` and `trim_failure`: why the last try failed, empty = it did
    not. `offset_epoch`: the leader epoch under which the offset was written, None = not known.
    """

    partition: TopicPartition
    leader: int
    leader_epoch: int
    is_enabled: bool
    remote_log_start_offset: int | None
    remote_log_start_cause: str
    remote_next_offset: int | None
    remote_segments: int
    remote_size_bytes: int
    local_log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    segments: Sequence[LocalSegment]
    holes: Sequence[Hole]
    unsettled_end: int
    frozen: str
    copy: CopyPlan
    copy_failure: str
    trim: TrimPlan | EndedPlan | Held | None
    trim_failure: str
    copy_of_offset: RemoteCopy | None = None
    offset_epoch: int | None = None

    @property
    def has_remote(self) -> bool:
        """Whether readers get anything of the remote tier."""
        start, end = self.remote_log_start_offset, self.remote_next_offset
        return start is not None and end is not None and start < end

    @property
    def copy_reason(self) -> str:
        return _joined(self.copy.summary.value, self.copy.detail)

    @property
    def trim_reason(self) -> str:
        """Empty where nothing holds the trim."""
        held = self.trim if isinstance(self.trim, Held) else None
        return "" if held is None else _joined(held.reason.value, held.detail)

    def local_segment(self, offset: int) -> LocalSegment | None:
        """The segment of the log that has the offset, if the log has it."""
        if not self.local_log_start_offset <= offset < self.log_end_offset:
            return None
        at_or_below = [one for one in self.segments if one.base_offset <= offset]
        return at_or_below[-1] if at_or_below else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`offset`, `location` and `readable` are None for a partition as a whole. `unreadable_reason`:
    why clients do not get the offset through the proxy now, empty where they do.
    """

    view: ExplainView
    sentences: tuple[str, ...]
    offset: int | None = None
    location: OffsetLocation | None = None
    readable: bool | None = None
    unreadable_reason: str = ""


def explain(view: ExplainView, offset: int | None) -> Explanation:
    """All that can be said of the offset; None = of the partition as a whole."""
    if offset is None:
        return Explanation(view=view, sentences=tuple(_of_partition(view)))
    location = location_of(view, offset)
    why_not = _why_not_readable(view, offset, location)
    sentences = (
        *_where(view, offset, location),
        *_next_steps(view, offset, location),
        _readable(view, offset, location, why_not),
    )
    return Explanation(
        view=view,
        sentences=sentences,
        offset=offset,
        location=location,
        readable=not why_not,
        unreadable_reason=why_not,
    )


def location_of(view: ExplainView, offset: int) -> OffsetLocation:
    """Where the offset is. A copy counts from the remote log start on: below it readers get
    none.
    """
    if offset >= view.log_end_offset:
        return OffsetLocation.BEYOND_END
    start, is_local = view.remote_log_start_offset, offset >= view.local_log_start_offset
    is_ended = start is not None and offset < start
    if view.copy_of_offset is not None and not is_ended:
        return OffsetLocation.BOTH if is_local else OffsetLocation.REMOTE
    if is_local:
        return OffsetLocation.LOCAL
    if is_ended:
        return OffsetLocation.EXPIRED
    if offset < view.unsettled_end:
        return OffsetLocation.UNSETTLED
    return OffsetLocation.MISSING if _hole(view, offset) is None else OffsetLocation.HOLE


def _hole(view: ExplainView, offset: int) -> Hole | None:
    return next((one for one in view.holes if one.start <= offset < one.end), None)


def _where(view: ExplainView, offset: int, location: OffsetLocation) -> Iterator[str]:
    name = f"Offset {offset} of {view.partition}"
    if location is OffsetLocation.HOLE:
        yield from _in_hole(view, name, offset)
    else:
        yield f"{name} {_location_words(view, location)}."
    if location in (OffsetLocation.BOTH, OffsetLocation.REMOTE) and view.copy_of_offset is not None:
        yield from _of_copy(view.copy_of_offset)
    local = view.local_segment(offset)
    if local is not None:
        yield f"Broker {view.leader} has it in {_local_words(local)}."


def _location_words(view: ExplainView, location: OffsetLocation) -> str:
    known = view.offset_epoch
    epoch = "" if known is None else f", written under leader epoch {known}"
    topic, number = view.partition.topic, view.partition.partition
    return {
        OffsetLocation.BOTH: f"is in both tiers{epoch}",
        OffsetLocation.REMOTE: f"is in the remote tier only{epoch}",
        OffsetLocation.LOCAL: f"is in the local log only{epoch}",
        OffsetLocation.UNSETTLED: "is in no tier that can be read: a remote segment that would "
        "have it is unfinished or disputed, and the next cleanup decides about it",
        OffsetLocation.EXPIRED: f"is below the remote log start {_start_words(view)}: it has ended",
        OffsetLocation.MISSING: "is in no tier, and no hole is on record; `rlm partition "
        f"accept-loss {topic} -p {number}` shows what is proven",
        OffsetLocation.BEYOND_END: f"is not written yet: the log ends at {view.log_end_offset}",
    }[location]


def _in_hole(view: ExplainView, name: str, offset: int) -> Iterator[str]:
    hole = _hole(view, offset)
    if hole is None:
        return
    span = f"offsets {hole.start} to {hole.end - 1}"
    if hole.cause == NO_RECORDS:
        yield f"{name} has no record: {span} are empty ({hole.cause})."
    else:
        yield f"{name} is in a hole on record, {span}, which no tier has: {hole.cause}."


def _of_copy(copy: RemoteCopy) -> Iterator[str]:
    metadata = copy.entry.metadata
    store = f"store {copy.store}" if copy.store else "a store that is not configured here"
    since = "" if copy.since_ms is None else f" since {human_utc(copy.since_ms)} UTC"
    yield (
        f"Remote segment {metadata.segment_id.id} has offsets {metadata.start_offset} to "
        f"{copy.next_offset - 1}, {human_bytes(metadata.segment_size_bytes)}, copied by broker "
        f"{metadata.broker_id}; it is in {store}{since}."
    )
    if copy.objects_stem:
        note = layout_note(metadata.custom_metadata)
        yield f"Its objects are {copy.objects_stem}.*{f' ({note})' if note else ''}."
    if copy.entry.disputed:
        yield f"It is disputed, so no trim relies on it: {copy.entry.disputed}."


def _local_words(segment: LocalSegment) -> str:
    size = human_bytes(segment.size_bytes)
    if segment.next_offset is None:
        return f"the active segment, from {segment.base_offset} on, {size}"
    return f"the closed segment {_span(segment)}, {size}"


def _span(segment: LocalSegment) -> str:
    return f"{segment.base_offset} to {(segment.next_offset or 0) - 1}"


_STARTS = {
    CAUSE_ENABLE: "where its log began when the topic was enabled",
    CAUSE_RETENTION: "raised by total retention",
    CAUSE_DELETE_RECORDS: "raised by a client's DeleteRecords",
    CAUSE_COMMAND: "raised by a command",
}


def _start_words(view: ExplainView) -> str:
    kind, _, who = view.remote_log_start_cause.partition(": ")
    return f"{view.remote_log_start_offset} ({_joined(_STARTS.get(kind, kind), who)})"


def _next_steps(view: ExplainView, offset: int, location: OffsetLocation) -> Iterator[str]:
    """What the tasks will do with the offset, or why they do not."""
    if location is OffsetLocation.LOCAL:
        yield from _copying(view, offset)
    if location in (OffsetLocation.LOCAL, OffsetLocation.BOTH):
        yield from _trimming(view)


def _copying(view: ExplainView, offset: int) -> Iterator[str]:
    segment, start = view.local_segment(offset), view.remote_log_start_offset
    if start is not None and offset < start:
        yield f"It is not copied: it is below the remote log start {_start_words(view)}."
        return
    if segment is None:
        yield f"Whether its segment may be copied is not known: {view.copy_reason}."
        return
    if segment.next_offset is None:
        yield "It is not copied yet: only closed segments are, and the broker still writes to it."
    elif segment in view.copy.segments:
        before = view.copy.segments.index(segment)
        turn = f"segments that come before it: {before}" if before else "it is the next one"
        yield f"It is not copied yet, and may be now: {turn}."
    elif segment.size_bytes == 0:
        yield "It is not copied: its segment has 0 bytes."
    else:
        yield f"It is not copied yet: {_joined(view.copy.reason.value, view.copy.detail)}."
    yield from _copy_failure(view)


def _copy_failure(view: ExplainView) -> Iterator[str]:
    if view.copy_failure:
        yield f"The last copy failed, and is tried again: {view.copy_failure}."


def _trimming(view: ExplainView) -> Iterator[str]:
    start = view.local_log_start_offset
    match view.trim:
        case None:
            yield f"The local log is not trimmed beyond {start}: the remote log has no start yet."
        case Held():
            yield f"The local log is not trimmed beyond {start}: {view.trim_reason}."
        case TrimPlan(bound=bound):
            yield (
                f"The local log is due to be trimmed from {start} to {bound}, once the stores have "
                "shown the copies."
            )
        case EndedPlan(bound=bound):
            yield f"What ended below {bound} is due to be deleted from the local log."
    if view.trim_failure:
        yield f"The last trim was refused: {view.trim_failure}."


def _why_not_readable(view: ExplainView, offset: int, location: OffsetLocation) -> str:
    """As the proxy decides: its broker first, then freezes, then the location. Empty = readable."""
    if location is OffsetLocation.BEYOND_END:
        return "it is not written yet"
    if offset >= view.local_log_start_offset:
        if offset < view.high_watermark:
            return ""
        return f"it is not below the high watermark {view.high_watermark} yet"
    if view.frozen:
        return f"the partition is frozen: {view.frozen}"
    copy = view.copy_of_offset
    if location is OffsetLocation.REMOTE and copy is not None and copy.problem:
        how = "clients get an error" if copy.is_lost else "clients wait"
        return f"{copy.problem}; {how}"
    if location is OffsetLocation.EXPIRED:
        return "clients get OFFSET_OUT_OF_RANGE"
    if location is OffsetLocation.UNSETTLED:
        return "clients wait until it is settled"
    if location in (OffsetLocation.HOLE, OffsetLocation.MISSING) and not view.has_remote:
        return "nothing is remote, so clients get OFFSET_OUT_OF_RANGE"
    return ""


def _readable(view: ExplainView, offset: int, location: OffsetLocation, why_not: str) -> str:
    if why_not:
        return f"It is not readable through the proxy now: {why_not}."
    if location in (OffsetLocation.HOLE, OffsetLocation.MISSING):
        return "Through the proxy clients go on behind it, as over a compaction gap."
    tier = (
        "from the store"
        if location is OffsetLocation.REMOTE
        else f"from broker {view.leader}'s log"
    )
    if offset >= view.last_stable_offset:
        return (
            f"It is readable through the proxy now, {tier}; with read_committed once the open "
            f"transaction at {view.last_stable_offset} has ended."
        )
    return f"It is readable through the proxy now, {tier}."


def _of_partition(view: ExplainView) -> Iterator[str]:
    yield f"{view.partition} is led by broker {view.leader} under leader epoch {view.leader_epoch}."
    if not view.is_enabled:
        yield "Its topic is not enabled: what is remote is kept, and nothing more is copied."
    if view.frozen:
        yield f"It is frozen, so nothing is copied, trimmed or deleted: {view.frozen}."
    yield from _remote_extent(view)
    yield (
        f"Local are offsets {view.local_log_start_offset} to {view.log_end_offset - 1}, in "
        f"{len(view.segments)} segments, "
        f"{human_bytes(sum(one.size_bytes for one in view.segments))}."
        if view.log_end_offset > view.local_log_start_offset
        else f"The local log is empty and begins at {view.local_log_start_offset}."
    )
    for hole in view.holes:
        if hole.cause != NO_RECORDS and hole.end > (view.remote_log_start_offset or 0):
            yield f"No tier has offsets {hole.start} to {hole.end - 1}: {hole.cause}."
    yield from _lag(view)
    yield from _copy_failure(view)
    yield from _trimming(view)


def _remote_extent(view: ExplainView) -> Iterator[str]:
    if view.remote_log_start_offset is None:
        yield "The remote log has no start yet: nothing was copied."
        return
    yield f"The remote log starts at {_start_words(view)}."
    if view.remote_next_offset is None or not view.has_remote:
        yield "Nothing is remote."
        return
    yield (
        f"Remote are offsets up to {view.remote_next_offset - 1}, in {view.remote_segments} "
        f"segments, {human_bytes(view.remote_size_bytes)}."
    )


def _lag(view: ExplainView) -> Iterator[str]:
    lag = view.copy.lag
    if lag.segments:
        yield f"{lag.words}: {view.copy_reason}."
    elif view.copy.reason in (WhyNot.CAUGHT_UP, WhyNot.NO_CLOSED_SEGMENT):
        yield f"Nothing is left to copy: {view.copy_reason}."
    else:
        yield f"Nothing is copied: {view.copy_reason}."


def _joined(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else reason
