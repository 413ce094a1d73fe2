"""Decides what a Fetch asks of the broker for the client, and what the client is answered. Pure.

Every rule about positions (G7), access (G8) and dead lineages (H4) is here, without IO. The broker
is asked for every partition. A partition that is known to be remote is asked at its high watermark
(H20): an error-free answer then proves access, leadership and epoch and carries the watermarks,
while long polling still works. This module must not know sockets, tasks or where bytes come from.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka_protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from kafka_protocol.fetch import (
    CONSUMER_REPLICA_ID,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from kip405.ids import Uuid
from rlm.proxy.divergence import EpochEnds, EpochVerdict, judge_epoch
from rlm.proxy.sizes import AnswerRoom
from rlm.remote_log.tier import (
    EpochEnd,
    TierPartition,
    TopicRef,
    Watermarks,
    has_remote,
    is_remote_offset,
)

READ_COMMITTED = 1
_FULL_SESSION_EPOCHS = (0, -1)
_NO_EPOCH = -1
_FIRST_WITH_LOG_START = 5  # older answers cannot prove that the broker's log is the known one
_STALE_EPOCH = frozenset({FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH})

Key = tuple[str | bytes, int]
View = Callable[[TopicRef, int], TierPartition | None]


class Source(enum.Enum):
    """Where the answer of a partition comes from."""

    BROKER = "broker"  # asked at its own offset; the broker's answer is passed on
    ASSUMED = "assumed"  # asked at the high watermark; an error-free answer makes it REMOTE
    REMOTE = "remote"  # the broker proved access; records come from the remote tier
    HOLE = "hole"  # asked at the local start: answered like a compaction gap (H15)
    NOT_READY = "not_ready"  # error 0, no records, real watermarks, held for up to max_wait (H17)
    REFUSED = "refused"  # the answer is `error_code`
    DIVERGED = "diverged"  # no records: where the client's last fetched epoch ended (KIP-595, H37)


_BY_OUR_VIEW = (Source.ASSUMED, Source.REMOTE, Source.DIVERGED)


@dataclass(slots=True)
class PartitionFetch:
    """One partition of one Fetch as it is settled step by step."""

    key: Key
    ref: TopicRef
    at: tuple[int, int]
    asked: FetchPartition
    tiered: TierPartition | None
    maybe_tiered: bool
    source: Source = Source.BROKER
    ask_offset: int | None = None
    marks: Watermarks | None = None
    error_code: int = NONE
    epoch_end: EpochEnd | None = None

    @property
    def ends_wait(self) -> bool:
        """What leaves at once; 56 waits for max_wait so that clients do not spin (H25)."""
        if self.source is Source.DIVERGED:
            return True
        return self.source is Source.REFUSED and self.error_code != KAFKA_STORAGE_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """What one answer of the broker means for the fetch."""

    out_of_range: tuple[PartitionFetch, ...] = ()
    dropped: tuple[PartitionFetch, ...] = ()
    became_remote: tuple[PartitionFetch, ...] = ()
    doubted: tuple[PartitionFetch, ...] = ()
    leave_now: bool = False
    broker_bytes: int = 0


@dataclass(slots=True)
class FetchPlan:
    """All partitions of a Fetch, each once, in request order; `epoch_ends` is that of the Tier.

    When a partition is named twice, the last entry counts, in the position of the first
    (FetchRequest.fetchData).
    """

    request: FetchRequest
    places: tuple[PartitionFetch, ...]
    epoch_ends: EpochEnds
    by_key: Mapping[Key, PartitionFetch] = field(init=False)

    def __post_init__(self) -> None:
        self.by_key = {place.key: place for place in self.places}

    @property
    def is_plain(self) -> bool:
        """No partition is tiered, for all we know, and we know."""
        return not any(place.maybe_tiered for place in self.places)

    @property
    def read_committed(self) -> bool:
        return self.request.isolation_level == READ_COMMITTED

    @property
    def can_ask_again(self) -> bool:
        """Whether asking again can bring news without returning at once for an old offset."""
        quiet = all(
            place.source in (Source.BROKER, Source.HOLE) or place.ask_offset is not None
            for place in self.places
        )
        return quiet and any(p.source in (Source.BROKER, Source.HOLE) for p in self.places)

    def sources(self, *wanted: Source) -> Iterator[PartitionFetch]:
        """The partitions answered from these sources."""
        return (place for place in self.places if place.source in wanted)

    def replacements(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Patches of the request: (fetch_offset, partition_max_bytes) by place."""
        patches = {}
        for place in self.places:
            if place.ask_offset is not None:
                is_hole = place.source is Source.HOLE
                size_bytes = place.asked.partition_max_bytes if is_hole else 1
                patches[place.at] = (place.ask_offset, size_bytes)
        return patches

    def leader_epochs(self) -> dict[tuple[int, int], int]:
        """Patches of the request: the epoch of our view, where the client names none.

        The broker then refuses to vouch for a view of another leadership (H4).
        """
        return {
            place.at: place.tiered.leader_epoch
            for place in self.sources(*_BY_OUR_VIEW)
            if place.tiered is not None and place.asked.current_leader_epoch == _NO_EPOCH
        }

    @property
    def hides_rack(self) -> bool:
        """Whether the leader itself must give the records: it is asked for others than the client
        named (H15), which a preferred replica could not be asked for (KIP-392).
        """
        return any(self.sources(Source.HOLE))

    @property
    def is_contended(self) -> bool:
        """Whether what the broker may give depends on what the tier gives before it."""
        is_brokers = [place.source in (Source.BROKER, Source.HOLE) for place in self.places]
        asked_bytes = sum(place.asked.partition_max_bytes for place in self.places)
        return any(is_brokers) and not is_brokers[0] and asked_bytes > self.request.max_bytes

    def broker_max_bytes(self, known_bytes: Callable[[PartitionFetch], int | None]) -> int | None:
        """The broker's share of max_bytes: remote partitions that were asked for first go first.

        `known_bytes`: what a partition takes of the answer, None = not known yet, so all it may.
        """
        room = AnswerRoom(self.request.max_bytes)
        for place in self.places:
            if place.source in (Source.BROKER, Source.HOLE):
                break
            if place.source in (Source.ASSUMED, Source.REMOTE):
                known = known_bytes(place)
                may = room.limit(place.asked.partition_max_bytes)
                room.take(may if known is None else known)
        return None if room.is_empty else max(1, room.left_bytes)


def topic_ref(name: str | None, topic_id: bytes | None) -> TopicRef:
    """The topic as the client named it."""
    return TopicRef(name=name) if topic_id is None else TopicRef(topic_id=Uuid(topic_id))


def is_consumer(request: FetchRequest) -> bool:
    """Replicas and debugging tools are none of our business (H21)."""
    return request.replica_id == CONSUMER_REPLICA_ID


def is_incremental(request: FetchRequest) -> bool:
    """A fetch of a session that we never gave out: we keep every client in full mode (KIP-227)."""
    return request.session_position >= 0 and request.session_epoch not in _FULL_SESSION_EPOCHS


def plan_fetch(
    request: FetchRequest,
    view: View,
    epoch_ends: EpochEnds,
    *,
    ready: bool,
    high_watermarks: Mapping[Key, int],
) -> FetchPlan:
    """Look every partition up, and assume remote what is known to be (H20)."""
    places: dict[Key, PartitionFetch] = {}
    for topic_at, topic in enumerate(request.topics):
        ref = topic_ref(topic.name, topic.topic_id)
        name = topic.topic_id if topic.topic_id is not None else topic.name or ""
        for partition_at, asked in enumerate(topic.partitions):
            tiered = view(ref, asked.index)
            place = PartitionFetch(
                key=(name, asked.index),
                ref=ref,
                at=(topic_at, partition_at),
                asked=asked,
                tiered=tiered,
                maybe_tiered=tiered is not None or not ready,
            )
            if tiered is not None and request.api_version >= _FIRST_WITH_LOG_START:
                _assume(place, tiered, high_watermarks, _verdict(place, epoch_ends))
            places[place.key] = place
    return FetchPlan(request, tuple(places.values()), epoch_ends)


def _verdict(place: PartitionFetch, epoch_ends: EpochEnds) -> EpochVerdict:
    """What the merged lineage as it is known now says of the client's last fetched epoch."""
    view, epoch = place.tiered, place.asked.last_fetched_epoch
    if view is None or epoch < 0:
        return EpochVerdict.CONSISTENT
    epoch_end = epoch_ends(view.topic_id, view.partition, epoch)
    return judge_epoch(place.asked, view.leader_epoch, epoch_end)


def _assume(
    place: PartitionFetch,
    view: TierPartition,
    high_watermarks: Mapping[Key, int],
    verdict: EpochVerdict,
) -> None:
    offset = place.asked.fetch_offset
    if view.frozen or not view.led_here or not is_remote_offset(view, offset):
        return
    if verdict is not EpochVerdict.CONSISTENT:
        return  # an error or a divergence is answered behind a barrier only (H17)
    if place.asked.current_leader_epoch not in (_NO_EPOCH, view.leader_epoch):
        return  # either side may not know today's leader; the broker knows it
    known = view.watermarks
    if known is None:
        return
    high_watermark = max(high_watermarks.get(place.key, -1), known.high_watermark)
    if offset < known.log_start_offset <= high_watermark:
        stable = known.last_stable_offset if known.last_stable_offset >= 0 else high_watermark
        place.source = Source.ASSUMED
        place.ask_offset = high_watermark
        place.marks = Watermarks(
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=known.log_start_offset,
        )


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
        is_named = place.asked.current_leader_epoch != _NO_EPOCH
        return not is_named and place.source in _BY_OUR_VIEW
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
    return _verdict(place, plan.epoch_ends) is EpochVerdict.DIVERGED


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
