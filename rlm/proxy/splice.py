"""Decides what the client of a Fetch is answered, from the broker's answer and our view. Pure.

With `fetch_plan` it has every rule about positions (G7), access (G8) and dead lineages (H4). A
partition that replaces the broker's own shows the watermarks, log start offset (H22), aborted
transactions and tagged fields that a leader with the whole log would answer. This module must not
know sockets, tasks or where records come from.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from kafka_protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from kafka_protocol.fetch import (
    FetchedPartition,
    FetchResponse,
    PatchedPartition,
    SplicedPartition,
)
from rlm.proxy.fetch_plan import (
    BY_OUR_VIEW,
    NO_EPOCH,
    EpochVerdict,
    FetchPlan,
    Key,
    PartitionFetch,
    Source,
    epoch_verdict,
    judge_epoch,
)
from rlm.reading.values import RemoteRecords
from rlm.remote_log.tier import (
    EpochEnd,
    TierPartition,
    Watermarks,
    has_remote,
    is_remote_offset,
)

_STALE_EPOCH = frozenset({FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH})
Replacement = SplicedPartition | PatchedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """What one answer of the broker means for the fetch."""

    out_of_range: tuple[PartitionFetch, ...] = ()
    dropped: tuple[PartitionFetch, ...] = ()
    became_remote: tuple[PartitionFetch, ...] = ()
    doubted: tuple[PartitionFetch, ...] = ()
    leave_now: bool = False
    broker_bytes: int = 0


def judge_answer(
    plan: FetchPlan, response: FetchResponse, high_watermarks: dict[Key, int]
) -> JudgedAnswer:
    """Take one answer in: what it proves, what must be found out, and whether it ends the wait."""
    found: dict[_News, list[PartitionFetch]] = {news: [] for news in _News}
    leave_now = False
    broker_bytes = 0
    for _, place, answered in answers_of(plan, response):
        if answered.error_code == NONE:
            if place.tiered is not None:
                high_watermarks[place.key] = answered.high_watermark
            news = _judge_clean(plan, place, answered)
            if place.source in (Source.BROKER, Source.HOLE):
                broker_bytes += max(answered.records_size, 0)
                leave_now |= answered.preferred_read_replica != -1
        else:
            news = _judge_error(place, answered.error_code)
            if news is _News.DROPPED:
                high_watermarks.pop(place.key, None)
            leave_now |= news is None and answered.error_code != OFFSET_OUT_OF_RANGE
        if news is not None:
            found[news].append(place)
    return JudgedAnswer(
        out_of_range=tuple(found[_News.OUT_OF_RANGE]),
        became_remote=tuple(found[_News.BECAME_REMOTE]),
        dropped=tuple(found[_News.DROPPED]),
        doubted=tuple(found[_News.DOUBTED]),
        leave_now=leave_now,
        broker_bytes=broker_bytes,
    )


class _News(enum.Enum):
    """What remains to be done for a partition after an answer of the broker."""

    OUT_OF_RANGE = "out_of_range"
    BECAME_REMOTE = "became_remote"
    DROPPED = "dropped"
    DOUBTED = "doubted"


def _judge_clean(plan: FetchPlan, one: PartitionFetch, answered: FetchedPartition) -> _News | None:
    if _has_it_itself(one, answered):
        _drop(one)
        return _News.DROPPED
    if _is_doubtful(plan, one, answered):
        one.marks = _marks(answered)
        return _News.DOUBTED
    return _News.BECAME_REMOTE if _take_clean(one, answered) else None


def _judge_error(place: PartitionFetch, error_code: int) -> _News | None:
    if _is_answer_to_us(place, error_code):
        _drop(place)
        return _News.DROPPED
    is_ours = error_code == OFFSET_OUT_OF_RANGE and place.source is Source.BROKER
    return _News.OUT_OF_RANGE if is_ours else None


def _is_answer_to_us(place: PartitionFetch, error_code: int) -> bool:
    """Whether an error is about an offset or epoch that the client did not ask for."""
    if error_code in _STALE_EPOCH:
        is_named = place.asked.current_leader_epoch != NO_EPOCH
        return not is_named and place.source in BY_OUR_VIEW
    return error_code == OFFSET_OUT_OF_RANGE and place.ask_offset is not None


def _has_it_itself(place: PartitionFetch, answered: FetchedPartition) -> bool:
    """Whether the broker's own log holds an offset that was thought to be in the tier only: it is
    another log than the one we know (a topic recreated, H7; a leader change), or came back.
    """
    if place.source not in (Source.ASSUMED, Source.REMOTE):
        return False
    return 0 <= answered.log_start_offset <= place.asked.fetch_offset


def _is_doubtful(plan: FetchPlan, place: PartitionFetch, answered: FetchedPartition) -> bool:
    """Whether the broker's judgement of the last fetched epoch has to be looked into (H37).

    Below its first epoch, which a trim moves up to the log start, it gives that as the end of an
    epoch, or sees no divergence where there is one; a follower's judgement is its own.
    """
    if place.source is not Source.BROKER or place.asked.last_fetched_epoch < 0:
        return False
    if place.tiered is not None and (place.tiered.frozen or not place.tiered.led_here):
        return False
    if answered.diverging_epoch is not None:
        return answered.diverging_epoch[1] <= answered.log_start_offset
    return epoch_verdict(place, plan.epoch_ends) is EpochVerdict.DIVERGED


def judge_doubted(
    place: PartitionFetch, view: TierPartition | None, epoch_end: EpochEnd | None
) -> None:
    """Settle a doubtful answer after a passed barrier: ours, or the broker's as it came."""
    place.tiered = view
    if view is None or view.frozen or not view.led_here or place.marks is None:
        return
    if judge_epoch(place.asked, view.leader_epoch, epoch_end) is EpochVerdict.DIVERGED:
        _diverge(place, place.marks, epoch_end)


def _diverge(place: PartitionFetch, marks: Watermarks, epoch_end: EpochEnd | None) -> None:
    place.source, place.marks, place.epoch_end = Source.DIVERGED, marks, epoch_end
    place.ask_offset = marks.high_watermark


def _drop(place: PartitionFetch) -> None:
    """The broker is asked again for what the client asked."""
    place.source, place.ask_offset, place.marks = Source.BROKER, None, None


def answers_of(
    plan: FetchPlan, response: FetchResponse
) -> Iterator[tuple[tuple[int, int], PartitionFetch, FetchedPartition]]:
    """The partitions answered that were asked for, in their order, and where each is."""
    for topic_at, topic in enumerate(response.topics):
        name = topic.topic_id if topic.topic_id is not None else topic.name or ""
        for partition_at, answered in enumerate(topic.partitions):
            place = plan.by_key.get((name, answered.index))
            if place is not None:
                yield (topic_at, partition_at), place, answered


def _marks(answered: FetchedPartition) -> Watermarks:
    return Watermarks(
        high_watermark=answered.high_watermark,
        last_stable_offset=answered.last_stable_offset,
        log_start_offset=answered.log_start_offset,
    )


def _take_clean(place: PartitionFetch, answered: FetchedPartition) -> bool:
    """An error-free answer; True when only now it shows that the offset is remote (KIP-392)."""
    marks = _marks(answered)
    if place.source is Source.ASSUMED:
        place.source = Source.REMOTE
    if place.source in (Source.REMOTE, Source.NOT_READY, Source.DIVERGED):
        place.marks, place.ask_offset = marks, answered.high_watermark
        return False
    sent_elsewhere = answered.preferred_read_replica != -1 and place.source is Source.BROKER
    if not sent_elsewhere or place.tiered is None or place.tiered.frozen:
        return False
    offset = place.asked.fetch_offset
    if offset < answered.log_start_offset and is_remote_offset(place.tiered, offset):
        place.source, place.marks = Source.REMOTE, marks
        place.ask_offset = answered.high_watermark
        return True
    return False


def judge_out_of_range(
    place: PartitionFetch,
    view: TierPartition | None,
    marks: Watermarks | None,
    epoch_end: EpochEnd | None = None,
) -> bool:
    """Settle an OFFSET_OUT_OF_RANGE after a passed barrier; True when the broker is asked again.

    `view` None = not tiered for certain. `marks` None = even the broker's watermarks failed.
    `epoch_end`: of the client's last fetched epoch, see `judge_epoch`.
    """
    place.tiered = view
    if view is None:
        return False  # the broker's error is passed on
    place.maybe_tiered = True
    if not view.led_here:
        return _refuse(place, NOT_LEADER_OR_FOLLOWER)
    if view.frozen:
        return _refuse(place, KAFKA_STORAGE_ERROR, marks)
    offset = place.asked.fetch_offset
    is_unsettled = offset < view.unsettled_next_offset
    if offset < view.remote_log_start_offset or not (has_remote(view) or is_unsettled):
        return False
    verdict = judge_epoch(place.asked, view.leader_epoch, epoch_end)
    if verdict is EpochVerdict.UNKNOWN:
        return False  # the broker's error is about the epoch
    if marks is None:
        return _refuse(place, KAFKA_STORAGE_ERROR)
    if verdict is EpochVerdict.DIVERGED:
        _diverge(place, marks, epoch_end)
        return False
    return _settle_position(place, view, marks)


def _settle_position(place: PartitionFetch, view: TierPartition, marks: Watermarks) -> bool:
    """Remote, not settled yet, a hole or in range by now; True when the broker is asked again."""
    offset = place.asked.fetch_offset
    if is_remote_offset(view, offset):
        place.source, place.marks, place.ask_offset = Source.REMOTE, marks, marks.high_watermark
        return False
    if offset < view.unsettled_next_offset:
        not_ready(place, marks)
        return False
    if offset < marks.log_start_offset:
        place.source, place.marks, place.ask_offset = Source.HOLE, marks, marks.log_start_offset
        return True
    if offset <= marks.high_watermark:
        not_ready(place, marks)  # the offset came into range meanwhile
    return False


def not_ready(place: PartitionFetch, marks: Watermarks | None) -> None:
    """Neither data nor a verdict: empty with the real high watermark, or 56 without one (H17)."""
    place.maybe_tiered = True
    if marks is None:
        _refuse(place, KAFKA_STORAGE_ERROR)
        return
    place.source, place.marks, place.ask_offset = Source.NOT_READY, marks, marks.high_watermark


def refuse_follower(place: PartitionFetch) -> None:
    """Remote data is read at the leader only."""
    _refuse(place, NOT_LEADER_OR_FOLLOWER)


def refuse_storage(place: PartitionFetch, marks: Watermarks | None) -> None:
    """Frozen (H4) or lost for good (H25)."""
    place.maybe_tiered = True
    _refuse(place, KAFKA_STORAGE_ERROR, marks)


def _refuse(place: PartitionFetch, error_code: int, marks: Watermarks | None = None) -> bool:
    place.source, place.error_code, place.marks = Source.REFUSED, error_code, marks
    place.ask_offset = None if marks is None else marks.high_watermark
    return False


def shown_log_start(view: TierPartition | None, log_start_offset: int) -> int | None:
    """The log start clients are to see instead of the broker's (H22); None = the broker's."""
    if view is None or not has_remote(view) or log_start_offset < 0:
        return None
    start = view.remote_log_start_offset
    return start if start < log_start_offset else None


def splice_records(
    place: PartitionFetch, records: RemoteRecords | None, error_code: int, *, read_committed: bool
) -> SplicedPartition:
    """The answer of a partition that is not the broker's: records, nothing yet, or an error.

    `records` without any: not even the first batch fits.
    """
    is_plain = error_code == NONE and place.source is not Source.DIVERGED
    marks = place.marks
    shown = None
    if marks is not None:
        shown = shown_log_start(place.tiered, marks.log_start_offset)
    return SplicedPartition(
        error_code=error_code,
        high_watermark=-1 if marks is None else marks.high_watermark,
        last_stable_offset=-1 if marks is None else marks.last_stable_offset,
        log_start_offset=_start(marks) if shown is None else shown,
        aborted_transactions=_aborted(records) if read_committed and is_plain else None,
        preferred_read_replica=-1,
        records=() if records is None or error_code != NONE else records.records,
        diverging_epoch=_diverging_epoch(place) if error_code == NONE else None,
    )


def _diverging_epoch(place: PartitionFetch) -> tuple[int, int] | None:
    end = place.epoch_end
    if place.source is not Source.DIVERGED or end is None:
        return None
    return end.leader_epoch, end.end_offset


def _start(marks: Watermarks | None) -> int:
    return -1 if marks is None else marks.log_start_offset


def _aborted(records: RemoteRecords | None) -> tuple[tuple[int, int], ...] | None:
    """As a broker: null where not even the first batch fits (ReplicaManager.checkFetchDataInfo)."""
    if records is None:
        return ()
    return records.aborted if records.size_bytes else None


def patch_clean(
    place: PartitionFetch, answered: FetchedPartition, given_bytes: int
) -> PatchedPartition | None:
    """The log start of the broker's own answer (H22), and the room that is left for its records."""
    start = shown_log_start(place.tiered, answered.log_start_offset)
    is_cut = given_bytes < answered.records_size
    if start is None and not is_cut:
        return None
    return PatchedPartition(
        log_start_offset=start, records_size_bytes=given_bytes if is_cut else None
    )


def empty_clean(place: PartitionFetch, answered: FetchedPartition) -> SplicedPartition:
    """The broker's own answer where not even its first batch fits: no records, null aborted."""
    start = shown_log_start(place.tiered, answered.log_start_offset)
    return SplicedPartition(
        error_code=NONE,
        high_watermark=answered.high_watermark,
        last_stable_offset=answered.last_stable_offset,
        log_start_offset=answered.log_start_offset if start is None else start,
        aborted_transactions=None,
        preferred_read_replica=answered.preferred_read_replica,
        records=(),
    )
