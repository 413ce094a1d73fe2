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
    check_epoch,
    epoch_verdict,
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
class CheckedAnswer:
    """What one answer of the broker means for the Fetch."""

    out_of_range: tuple[PartitionFetch, ...] = ()
    dropped: tuple[PartitionFetch, ...] = ()
    became_remote: tuple[PartitionFetch, ...] = ()
    doubted: tuple[PartitionFetch, ...] = ()
    leave_now: bool = False
    broker_bytes: int = 0

    @property
    def is_unsettled(self) -> bool:
        """Whether anything has to be found out, or asked again."""
        return bool(self.out_of_range or self.dropped or self.became_remote or self.doubted)


def check_answer(
    plan: FetchPlan, response: FetchResponse, high_watermarks: dict[Key, int]
) -> CheckedAnswer:
    """Apply one answer of the broker to the plan: what it proves, what must be found out, and
    whether it ends the wait.
    """
    found: dict[News, list[PartitionFetch]] = {}
    leave_now = False
    broker_bytes = 0
    for _, partition, answered in answers_of(plan, response):
        news = check_partition(plan, partition, answered, high_watermarks)
        if answered.error_code != NONE:
            leave_now |= news is None and answered.error_code != OFFSET_OUT_OF_RANGE
        elif partition.source in (Source.BROKER, Source.HOLE):
            broker_bytes += max(answered.records_size, 0)
            leave_now |= answered.preferred_read_replica != -1
        if news is not None:
            found.setdefault(news, []).append(partition)
    return CheckedAnswer(
        out_of_range=tuple(found.get(News.OUT_OF_RANGE, ())),
        became_remote=tuple(found.get(News.BECAME_REMOTE, ())),
        dropped=tuple(found.get(News.DROPPED, ())),
        doubted=tuple(found.get(News.DOUBTED, ())),
        leave_now=leave_now,
        broker_bytes=broker_bytes,
    )


def check_partition(
    plan: FetchPlan,
    partition: PartitionFetch,
    answered: FetchedPartition,
    high_watermarks: dict[Key, int],
) -> "News | None":
    """Apply the broker's answer of one partition to the plan; None = nothing remains to be done."""
    if answered.error_code == NONE:
        if partition.tiered is not None:
            high_watermarks[partition.key] = answered.high_watermark
        return _check_clean(plan, partition, answered)
    news = _check_error(partition, answered.error_code)
    if news is News.DROPPED:
        high_watermarks.pop(partition.key, None)
    return news


class News(enum.Enum):
    """What remains to be done for a partition after an answer of the broker."""

    OUT_OF_RANGE = "out_of_range"
    BECAME_REMOTE = "became_remote"
    DROPPED = "dropped"
    DOUBTED = "doubted"


def _check_clean(plan: FetchPlan, one: PartitionFetch, answered: FetchedPartition) -> News | None:
    if _has_it_itself(one, answered):
        drop(one)
        return News.DROPPED
    if _is_doubtful(plan, one, answered):
        one.watermarks = _watermarks_of(answered)
        return News.DOUBTED
    return News.BECAME_REMOTE if _take_clean(one, answered) else None


def _check_error(partition: PartitionFetch, error_code: int) -> News | None:
    if _is_answer_to_us(partition, error_code):
        drop(partition)
        return News.DROPPED
    is_ours = error_code == OFFSET_OUT_OF_RANGE and partition.source is Source.BROKER
    return News.OUT_OF_RANGE if is_ours else None


def _is_answer_to_us(partition: PartitionFetch, error_code: int) -> bool:
    """Whether an error is about an offset or epoch that we asked for and the client did not."""
    if error_code in _STALE_EPOCH:
        is_named = partition.asked.current_leader_epoch != NO_EPOCH
        return not is_named and partition.source in BY_OUR_VIEW
    return error_code == OFFSET_OUT_OF_RANGE and partition.ask_offset is not None


def _has_it_itself(partition: PartitionFetch, answered: FetchedPartition) -> bool:
    """Whether the broker's own log holds an offset that should be in the remote tier only. The log
    is then another one than we know (a topic recreated, H7; a leader change), or it was restored.
    """
    if partition.source not in (Source.ASSUMED, Source.REMOTE):
        return False
    return 0 <= answered.log_start_offset <= partition.asked.fetch_offset


def _is_doubtful(plan: FetchPlan, partition: PartitionFetch, answered: FetchedPartition) -> bool:
    """Whether the broker's answer about the last fetched epoch must be checked (H37).

    A trim moves the broker's first epoch up to its log start. Below it, the broker returns that
    offset as the end of an epoch, or sees no divergence where there is one. A follower knows only
    its own epochs.
    """
    if partition.source is not Source.BROKER or partition.asked.last_fetched_epoch < 0:
        return False
    if partition.tiered is not None and (partition.tiered.frozen or not partition.tiered.led_here):
        return False
    if answered.diverging_epoch is not None:
        return answered.diverging_epoch[1] <= answered.log_start_offset
    return epoch_verdict(partition, plan.epoch_ends) is EpochVerdict.DIVERGED


def settle_doubted(
    partition: PartitionFetch, view: TierPartition | None, epoch_end: EpochEnd | None
) -> None:
    """Settle a doubtful answer after a passed barrier: by the merged lineage, or as the broker gave
    it.
    """
    partition.tiered = view
    if view is None or view.frozen or not view.led_here or partition.watermarks is None:
        return
    if check_epoch(partition.asked, view.leader_epoch, epoch_end) is EpochVerdict.DIVERGED:
        _diverge(partition, partition.watermarks, epoch_end)


def _diverge(partition: PartitionFetch, watermarks: Watermarks, epoch_end: EpochEnd | None) -> None:
    partition.epoch_end = epoch_end
    _answer_from(partition, Source.DIVERGED, watermarks, watermarks.high_watermark)


def _answer_from(
    partition: PartitionFetch, source: Source, watermarks: Watermarks, ask_offset: int
) -> None:
    """The answer comes from `source`; the broker is asked at `ask_offset` from now on."""
    partition.source, partition.watermarks = source, watermarks
    partition.ask_offset = ask_offset


def drop(partition: PartitionFetch) -> None:
    """Make the broker answer the client's own question again."""
    partition.source, partition.ask_offset, partition.watermarks = Source.BROKER, None, None


def answers_of(
    plan: FetchPlan, response: FetchResponse
) -> Iterator[tuple[tuple[int, int], PartitionFetch, FetchedPartition]]:
    """The answered partitions of the plan, in the order of the answer, each with its position
    there.
    """
    for topic_at, topic in enumerate(response.topics):
        name = topic.topic_id if topic.topic_id is not None else topic.name or ""
        for partition_at, answered in enumerate(topic.partitions):
            partition = plan.by_key.get((name, answered.index))
            if partition is not None:
                yield (topic_at, partition_at), partition, answered


def _watermarks_of(answered: FetchedPartition) -> Watermarks:
    return Watermarks(
        high_watermark=answered.high_watermark,
        last_stable_offset=answered.last_stable_offset,
        log_start_offset=answered.log_start_offset,
    )


def _take_clean(partition: PartitionFetch, answered: FetchedPartition) -> bool:
    """Apply an error-free answer. True if it shows only now that the offset is remote (KIP-392)."""
    watermarks = _watermarks_of(answered)
    if partition.source is Source.ASSUMED:
        partition.source = Source.REMOTE
    if partition.source in (Source.REMOTE, Source.NOT_READY, Source.DIVERGED):
        partition.watermarks, partition.ask_offset = watermarks, answered.high_watermark
        return False
    sent_elsewhere = answered.preferred_read_replica != -1 and partition.source is Source.BROKER
    if not sent_elsewhere or partition.tiered is None or partition.tiered.frozen:
        return False
    offset = partition.asked.fetch_offset
    if offset < answered.log_start_offset and is_remote_offset(partition.tiered, offset):
        _answer_from(partition, Source.REMOTE, watermarks, answered.high_watermark)
        return True
    return False


def settle_out_of_range(
    partition: PartitionFetch,
    view: TierPartition | None,
    watermarks: Watermarks | None,
    epoch_end: EpochEnd | None = None,
) -> bool:
    """Settle an OFFSET_OUT_OF_RANGE after a passed barrier; True when the broker must be asked
    again.

    `view` None = certainly not tiered. `watermarks` None = not even the broker gave watermarks.
    `epoch_end` belongs to the client's last fetched epoch, see `check_epoch`.
    """
    partition.tiered = view
    if view is None:
        return False  # the broker's error is passed on
    partition.maybe_tiered = True
    if not view.led_here:
        return _refuse(partition, NOT_LEADER_OR_FOLLOWER)
    if view.frozen:
        return _refuse(partition, KAFKA_STORAGE_ERROR, watermarks)
    offset = partition.asked.fetch_offset
    is_unsettled = offset < view.unsettled_next_offset
    if offset < view.remote_log_start_offset or not (has_remote(view) or is_unsettled):
        return False
    verdict = check_epoch(partition.asked, view.leader_epoch, epoch_end)
    if verdict is EpochVerdict.UNKNOWN:
        return False  # the broker's error is about the epoch
    if watermarks is None:
        return _refuse(partition, KAFKA_STORAGE_ERROR)
    if verdict is EpochVerdict.DIVERGED:
        _diverge(partition, watermarks, epoch_end)
        return False
    return _settle_position(partition, view, watermarks)


def _settle_position(
    partition: PartitionFetch, view: TierPartition, watermarks: Watermarks
) -> bool:
    """Decide whether the offset is remote, not settled yet, in a hole, or in range by now. True
    when the broker must be asked again.
    """
    offset = partition.asked.fetch_offset
    if is_remote_offset(view, offset):
        _answer_from(partition, Source.REMOTE, watermarks, watermarks.high_watermark)
        return False
    if offset < view.unsettled_next_offset:
        not_ready(partition, watermarks)
        return False
    # The broker may have given its watermarks after the view was taken, and what was copied and
    # trimmed in between is no hole: a reader would skip it.
    known = view.watermarks or watermarks
    hole_end = min(known.log_start_offset, watermarks.log_start_offset)
    if offset < hole_end:
        _answer_from(partition, Source.HOLE, watermarks, hole_end)
        return True
    if offset <= watermarks.high_watermark:
        not_ready(partition, watermarks)  # the offset came into range meanwhile
    return False


def settle_gap(
    partition: PartitionFetch, view: TierPartition | None, read_from: TierPartition
) -> None:
    """Settle, after a passed barrier, a read that found no records from the offset up to the end of
    the remote data as `read_from` has it.

    A segment ends where the next one of the broker begins, and compaction may have removed its last
    records. A consumer that has read the ones before is no step further with an empty answer: it
    goes on where the broker's log begins, as over any other gap that compaction left. That may be
    before the remote data ends: what compaction took from a copy the leader may still have.
    """
    watermarks, offset = partition.watermarks, partition.asked.fetch_offset
    is_same = view is not None and view.topic_id == read_from.topic_id and view.led_here
    if view is None or watermarks is None or not is_same or not is_remote_offset(view, offset):
        drop(partition)
        return
    partition.tiered = view
    if view.frozen:
        _refuse(partition, KAFKA_STORAGE_ERROR, watermarks)
    elif (
        view.remote_next_offset != read_from.remote_next_offset
        or view.leader_epoch != read_from.leader_epoch  # whose lineage may have other segments
        or offset < view.unsettled_next_offset
    ):
        not_ready(partition, watermarks)
    else:
        ask_offset = max(offset, watermarks.log_start_offset)
        _answer_from(partition, Source.HOLE, watermarks, ask_offset)


def not_ready(partition: PartitionFetch, watermarks: Watermarks | None) -> None:
    """Answer no records and no error with the real high watermark, or error 56 without one
    (H17).
    """
    partition.maybe_tiered = True
    if watermarks is None:
        _refuse(partition, KAFKA_STORAGE_ERROR)
        return
    _answer_from(partition, Source.NOT_READY, watermarks, watermarks.high_watermark)


def refuse_follower(partition: PartitionFetch) -> None:
    """Refuse because only the leader reads remote data."""
    _refuse(partition, NOT_LEADER_OR_FOLLOWER)


def refuse_storage(partition: PartitionFetch, watermarks: Watermarks | None) -> None:
    """Refuse because the partition is frozen (H4) or permanently lost (H25)."""
    partition.maybe_tiered = True
    _refuse(partition, KAFKA_STORAGE_ERROR, watermarks)


def _refuse(
    partition: PartitionFetch, error_code: int, watermarks: Watermarks | None = None
) -> bool:
    partition.source, partition.error_code, partition.watermarks = (
        Source.REFUSED,
        error_code,
        watermarks,
    )
    partition.ask_offset = None if watermarks is None else watermarks.high_watermark
    return False


def shown_log_start(view: TierPartition | None, log_start_offset: int) -> int | None:
    """The log start offset to show instead of the broker's (H22); None = show the broker's."""
    if view is None or not has_remote(view) or log_start_offset < 0:
        return None
    start = view.remote_log_start_offset
    return start if start < log_start_offset else None


def splice_records(
    partition: PartitionFetch,
    records: RemoteRecords | None,
    error_code: int,
    *,
    read_committed: bool,
) -> SplicedPartition:
    """The answer of a partition that the broker does not answer: records, nothing yet, or an error.

    `records` without bytes mean that not even the first batch fits.
    """
    is_plain = error_code == NONE and partition.source is not Source.DIVERGED
    watermarks = partition.watermarks
    shown = None
    if watermarks is not None:
        shown = shown_log_start(partition.tiered, watermarks.log_start_offset)
    return SplicedPartition(
        error_code=error_code,
        high_watermark=-1 if watermarks is None else watermarks.high_watermark,
        last_stable_offset=-1 if watermarks is None else watermarks.last_stable_offset,
        log_start_offset=_start(watermarks) if shown is None else shown,
        aborted_transactions=_aborted(records) if read_committed and is_plain else None,
        preferred_read_replica=-1,
        records=() if records is None or error_code != NONE else records.records,
        diverging_epoch=_diverging_epoch(partition) if error_code == NONE else None,
    )


def _diverging_epoch(partition: PartitionFetch) -> tuple[int, int] | None:
    end = partition.epoch_end
    if partition.source is not Source.DIVERGED or end is None:
        return None
    return end.leader_epoch, end.end_offset


def _start(watermarks: Watermarks | None) -> int:
    return -1 if watermarks is None else watermarks.log_start_offset


def _aborted(records: RemoteRecords | None) -> tuple[tuple[int, int], ...] | None:
    """As a broker answers: null if not even the first batch fits
    (ReplicaManager.checkFetchDataInfo).
    """
    if records is None:
        return ()
    return records.aborted if records.size_bytes else None


def patch_clean(
    partition: PartitionFetch, answered: FetchedPartition, given_bytes: int
) -> PatchedPartition | None:
    """Correct the log start of the broker's own answer (H22), and cut its records to the room that
    is left.
    """
    start = shown_log_start(partition.tiered, answered.log_start_offset)
    is_cut = given_bytes < answered.records_size
    if start is None and not is_cut:
        return None
    return PatchedPartition(
        log_start_offset=start, records_size_bytes=given_bytes if is_cut else None
    )


def empty_clean(partition: PartitionFetch, answered: FetchedPartition) -> SplicedPartition:
    """The broker's own answer if not even its first batch fits: no records, null aborted
    transactions.
    """
    start = shown_log_start(partition.tiered, answered.log_start_offset)
    return SplicedPartition(
        error_code=NONE,
        high_watermark=answered.high_watermark,
        last_stable_offset=answered.last_stable_offset,
        log_start_offset=answered.log_start_offset if start is None else start,
        aborted_transactions=None,
        preferred_read_replica=answered.preferred_read_replica,
        records=(),
    )
