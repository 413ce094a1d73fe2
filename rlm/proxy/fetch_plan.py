"""Decides what one Fetch asks of the broker for the client. Pure.

The broker is asked for every partition. A partition that is known to be remote is asked at its high
watermark (H20): an error-free answer then proves access, leadership and epoch and carries the
watermarks, while long polling still works. A position counts as remote only if the merged lineage
has the client's last fetched epoch there (KIP-595). A trim cuts the broker's leader epochs, so the
broker alone would call every remote position diverging (H37).

The bytes of the answer are divided in request order, whichever tier gives them. A client plans its
memory by max_bytes and partition_max_bytes, and must make progress where one batch is larger than
both (KIP-74). The rules are those of a leader without tiering (ReplicaManager.readFromLog,
LogSegment.read, Partition.readRecords, LeaderEpochFileCache.endOffsetFor). This module must not
know sockets, tasks or where bytes come from.
"""

import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kafka_protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
)
from kafka_protocol.fetch import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
)
from kafka_protocol.primitives import Buffer
from kip405.ids import Uuid
from rlm.remote_log.tier import (
    EpochEnd,
    TierPartition,
    TopicRef,
    Watermarks,
    is_remote_offset,
)

_LENGTH = struct.Struct(">8xi")
_LOG_OVERHEAD_BYTES = 12
READ_COMMITTED = 1
_FULL_SESSION_EPOCHS = (0, -1)
NO_EPOCH = -1
_FIRST_WITH_LOG_START = 5  # older answers cannot prove that the broker's log is the known one
_MOST_WAIT_MS = 60_000
_MOST_WAIT_BESIDE_OTHERS_MS = 5_000
_REMEMBERED_TOPICS = 4096
_MOST_REMEMBERED = 200_000
_MOST_READABLE = 1_000  # topics of one connection; each name may be as long as a name can be
_TOPIC_NAME_MAX_CHARS = 249  # org.apache.kafka.common.internals.Topic
Key = tuple[str | bytes, int]
View = Callable[[TopicRef, int], TierPartition | None]


@dataclass(slots=True)
class AnswerRoom:
    """The room left in one answer; `is_empty` holds until a partition has given the first bytes."""

    left_bytes: int
    is_empty: bool = True

    def limit(self, partition_max_bytes: int) -> int:
        """Bytes that the next partition may have, except for the one batch of an empty answer."""
        return max(0, min(partition_max_bytes, self.left_bytes))

    def allowed(self, partition_max_bytes: int, size_bytes: int, first_batch_bytes: int) -> int:
        """How many of `size_bytes` bytes are given: all, less, or none.

        An empty answer takes the first batch whole, whatever the limits. Otherwise records end at
        the limit, in the middle of a batch as a broker's do, and none are given where not even the
        first batch would be whole.
        """
        limit = self.limit(partition_max_bytes)
        if self.is_empty:
            limit = max(limit, first_batch_bytes)
        if size_bytes <= limit:
            return size_bytes
        return limit if first_batch_bytes <= limit else 0

    def take(self, size_bytes: int) -> None:
        """Count what a partition gave, or would have given if more of it had been read."""
        if size_bytes > 0:
            self.is_empty = False
        self.left_bytes = max(0, self.left_bytes - size_bytes)


def first_batch_bytes(records: Buffer) -> int:
    """Size of the first batch by its own header. 0 without records; more than there is for a batch
    that is cut off.
    """
    if len(records) < _LOG_OVERHEAD_BYTES:
        return len(records) + 1 if len(records) else 0
    (length,) = _LENGTH.unpack_from(records)
    return int(length) + _LOG_OVERHEAD_BYTES


EpochEnds = Callable[[Uuid, int, int], EpochEnd | None]
"""Where a leader epoch of a partition ended, None where only the broker knows it; see Tier."""


class EpochVerdict(enum.Enum):
    """What a leader answers about the epoch of the record before the fetch offset."""

    CONSISTENT = "consistent"  # or the client named no epoch
    DIVERGED = "diverged"  # the epoch ended before the offset, or has no records here
    UNKNOWN = "unknown"  # newer than any epoch of the leader: a broker answers OFFSET_OUT_OF_RANGE


def check_epoch(
    asked: FetchPartition, leader_epoch: int, epoch_end: EpochEnd | None
) -> EpochVerdict:
    """Check `last_fetched_epoch` by where it ended; None = it is the current epoch or a newer
    one.
    """
    fetched_epoch = asked.last_fetched_epoch
    if fetched_epoch < 0:
        return EpochVerdict.CONSISTENT
    if epoch_end is None:
        is_newer = fetched_epoch > leader_epoch
        return EpochVerdict.UNKNOWN if is_newer else EpochVerdict.CONSISTENT
    is_same_epoch = epoch_end.leader_epoch == fetched_epoch
    if is_same_epoch and asked.fetch_offset <= epoch_end.end_offset:
        return EpochVerdict.CONSISTENT
    return EpochVerdict.DIVERGED


class Source(enum.Enum):
    """Where the answer of a partition comes from."""

    BROKER = "broker"  # asked at its own offset; the broker's answer is passed on
    ASSUMED = "assumed"  # asked at the high watermark; an error-free answer makes it REMOTE
    REMOTE = "remote"  # the broker proved access; records come from the remote tier
    HOLE = "hole"  # asked at the local start: answered like a compaction gap (H15)
    NOT_READY = "not_ready"  # error 0, no records, real watermarks, held for up to max_wait (H17)
    REFUSED = "refused"  # the answer is `error_code`
    DIVERGED = "diverged"  # no records: where the client's last fetched epoch ended (KIP-595, H37)


BY_OUR_VIEW = (Source.ASSUMED, Source.REMOTE, Source.DIVERGED)


@dataclass(slots=True)
class PartitionFetch:
    """One partition of one Fetch, which is settled step by step."""

    key: Key
    ref: TopicRef
    asked: FetchPartition
    tiered: TierPartition | None
    maybe_tiered: bool
    source: Source = Source.BROKER
    ask_offset: int | None = None
    watermarks: Watermarks | None = None
    error_code: int = NONE
    epoch_end: EpochEnd | None = None

    @property
    def ends_wait(self) -> bool:
        """Whether the answer is sent at once. Error 56 waits for max_wait, so that clients do not
        spin (H25).
        """
        if self.source is Source.DIVERGED:
            return True
        return self.source is Source.REFUSED and self.error_code != KAFKA_STORAGE_ERROR


class HighWatermarks(dict[Key, int]):
    """Last high watermark of each tiered partition, for all connections; cleared when full."""

    def __setitem__(self, key: Key, high_watermark: int) -> None:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        super().__setitem__(key, high_watermark)


class ReadableTopics:
    """Topics with remote data that one client may read, as the broker's answers to it have shown:
    rights are those of topics. Cleared when full; then the broker is asked first again.
    """

    def __init__(self) -> None:
        self._topics: set[str | bytes] = set()

    def has(self, partition: PartitionFetch) -> bool:
        """Whether the broker has answered one of the topic's partitions, and refused none since."""
        return partition.key[0] in self._topics

    def heed(self, partition: PartitionFetch, error_code: int) -> None:
        """The broker has answered a partition."""
        topic = partition.key[0]
        if error_code == TOPIC_AUTHORIZATION_FAILED:
            self._topics.discard(topic)
        elif error_code == NONE and partition.source is Source.REMOTE:
            if len(self._topics) >= _MOST_READABLE:
                self._topics.clear()
            self._topics.add(topic)


@dataclass(slots=True)
class FetchPlan:
    """All partitions of a Fetch, each once, in request order; `epoch_ends` is that of the Tier.

    When a partition is named twice, the last entry counts, in the position of the first
    (FetchRequest.fetchData).
    """

    request: FetchRequest
    partitions: tuple[PartitionFetch, ...]
    epoch_ends: EpochEnds
    by_key: Mapping[Key, PartitionFetch] = field(init=False)

    def __post_init__(self) -> None:
        self.by_key = {partition.key: partition for partition in self.partitions}

    @property
    def is_plain(self) -> bool:
        """Whether the tier is ready and none of the partitions is tiered."""
        return not any(partition.maybe_tiered for partition in self.partitions)

    @property
    def is_brokers(self) -> bool:
        """Whether the broker answers every partition, as far as our view knows. Clients that name
        a last fetched epoch may be answered that it diverged, which only the whole answer can show
        (H37).
        """
        return all(
            partition.source is Source.BROKER
            and partition.asked.last_fetched_epoch < 0
            and not _is_below_log(partition)
            for partition in self.partitions
        )

    @property
    def read_committed(self) -> bool:
        return self.request.isolation_level == READ_COMMITTED

    @property
    def can_ask_again(self) -> bool:
        """Whether another request may return new records, and does not return at once because of an
        old offset.
        """
        quiet = all(
            partition.source in (Source.BROKER, Source.HOLE) or partition.ask_offset is not None
            for partition in self.partitions
        )
        return quiet and any(p.source in (Source.BROKER, Source.HOLE) for p in self.partitions)

    def sources(self, *wanted: Source) -> Iterator[PartitionFetch]:
        """The partitions answered from these sources."""
        return (partition for partition in self.partitions if partition.source in wanted)

    def replacements(self) -> dict[FetchPartition, tuple[int, int]]:
        """Patches of the request: (fetch_offset, partition_max_bytes)."""
        patches = {}
        for partition in self.partitions:
            if partition.ask_offset is not None:
                is_hole = partition.source is Source.HOLE
                size_bytes = partition.asked.partition_max_bytes if is_hole else 1
                ask_offset = self._held_offset(partition.ask_offset, partition)
                patches[partition.asked] = (ask_offset, size_bytes)
        return patches

    def _held_offset(self, ask_offset: int, partition: PartitionFetch) -> int:
        """Where the broker holds a request that waits: of read_committed it does not beyond the
        last stable offset (DelayedFetch.tryComplete). An ASSUMED partition is asked without a wait.
        """
        known = partition.watermarks
        if not self.read_committed or known is None or partition.source is Source.ASSUMED:
            return ask_offset
        stable = known.last_stable_offset
        return min(ask_offset, stable) if stable >= 0 else ask_offset

    def leader_epochs(self) -> dict[FetchPartition, int]:
        """Patches of the request: the leader epoch of our view, where the client names none.

        The broker then refuses to answer for a view of another leadership (H4).
        """
        return {
            partition.asked: partition.tiered.leader_epoch
            for partition in self.sources(*BY_OUR_VIEW)
            if partition.tiered is not None and partition.asked.current_leader_epoch == NO_EPOCH
        }

    @property
    def hides_rack(self) -> bool:
        """Whether the leader itself must give the records. It is asked for other records than the
        client named (H15), which a preferred replica could not be asked for (KIP-392).
        """
        return any(self.sources(Source.HOLE))

    @property
    def is_contended(self) -> bool:
        """Whether the broker's share of the answer depends on what the tier gives before it."""
        is_brokers = [
            partition.source in (Source.BROKER, Source.HOLE) for partition in self.partitions
        ]
        asked_bytes = sum(partition.asked.partition_max_bytes for partition in self.partitions)
        return any(is_brokers) and not is_brokers[0] and asked_bytes > self.request.max_bytes

    def broker_max_bytes(self, known_bytes: Callable[[PartitionFetch], int | None]) -> int | None:
        """The broker's share of max_bytes. Remote partitions that come earlier in the request are
        served first.

        `known_bytes` returns what a partition takes of the answer, None = not known yet, so it may
        take all that its limit allows.
        """
        room = AnswerRoom(self.request.max_bytes)
        for partition in self.partitions:
            if partition.source in (Source.BROKER, Source.HOLE):
                break
            if partition.source in (Source.ASSUMED, Source.REMOTE):
                known = known_bytes(partition)
                may = room.limit(partition.asked.partition_max_bytes)
                room.take(may if known is None else known)
        return None if room.is_empty else max(1, room.left_bytes)


def _is_below_log(partition: PartitionFetch) -> bool:
    """Whether the broker will answer OFFSET_OUT_OF_RANGE, by what was last known of its log."""
    known = None if partition.tiered is None else partition.tiered.watermarks
    return known is not None and partition.asked.fetch_offset < known.log_start_offset


def topic_ref(name: str | None, topic_id: bytes | None) -> TopicRef:
    """The topic as the client named it. A name that no topic can have, which may be as long as a
    request, is not remembered (H36).
    """
    if name is not None and len(name) > _TOPIC_NAME_MAX_CHARS:
        return TopicRef(name=name)
    return _remembered_ref(name, topic_id)


@lru_cache(maxsize=_REMEMBERED_TOPICS)
def _remembered_ref(name: str | None, topic_id: bytes | None) -> TopicRef:
    return TopicRef(name=name) if topic_id is None else TopicRef(topic_id=Uuid(topic_id))


def within_bound(request: FetchRequest, others_wait: Callable[[], bool]) -> FetchRequest:
    """The request with a wait that is bounded, and shorter where `others_wait` for the memory that
    it holds meanwhile (H36): a client may be answered early that there is nothing.
    """
    if request.max_wait_ms <= _MOST_WAIT_BESIDE_OTHERS_MS:
        return request
    most_ms = _MOST_WAIT_BESIDE_OTHERS_MS if others_wait() else _MOST_WAIT_MS
    return request._replace(max_wait_ms=min(request.max_wait_ms, most_ms))


def is_consumer(request: FetchRequest) -> bool:
    """Whether a consumer asks; requests of replicas and debugging tools are passed on (H21)."""
    return request.replica_id == CONSUMER_REPLICA_ID


def is_incremental(request: FetchRequest) -> bool:
    """Whether the request belongs to a fetch session. The proxy never creates one, so every client
    stays in full mode (KIP-227).
    """
    return request.session_position >= 0 and request.session_epoch not in _FULL_SESSION_EPOCHS


def plan_fetch(
    request: FetchRequest,
    view: View,
    epoch_ends: EpochEnds,
    *,
    ready: bool,
    high_watermarks: Mapping[Key, int],
) -> FetchPlan:
    """Find every partition in the view, and assume that a known remote offset is still remote
    (H20).
    """
    partitions: dict[Key, PartitionFetch] = {}
    for topic in request.topics:
        ref = topic_ref(topic.name, topic.topic_id)
        name = topic.topic_id if topic.topic_id is not None else topic.name or ""
        for asked in topic.partitions:
            tiered = view(ref, asked.index)
            partition = PartitionFetch(
                key=(name, asked.index),
                ref=ref,
                asked=asked,
                tiered=tiered,
                maybe_tiered=tiered is not None or not ready,
            )
            if tiered is not None and request.api_version >= _FIRST_WITH_LOG_START:
                _assume(partition, tiered, high_watermarks, epoch_verdict(partition, epoch_ends))
            partitions[partition.key] = partition
    return FetchPlan(request, tuple(partitions.values()), epoch_ends)


def epoch_verdict(partition: PartitionFetch, epoch_ends: EpochEnds) -> EpochVerdict:
    """Check the client's last fetched epoch by the merged lineage as it is known now."""
    view, epoch = partition.tiered, partition.asked.last_fetched_epoch
    if view is None or epoch < 0:
        return EpochVerdict.CONSISTENT
    epoch_end = epoch_ends(view.topic_id, view.partition, epoch)
    return check_epoch(partition.asked, view.leader_epoch, epoch_end)


def _assume(
    partition: PartitionFetch,
    view: TierPartition,
    high_watermarks: Mapping[Key, int],
    verdict: EpochVerdict,
) -> None:
    offset = partition.asked.fetch_offset
    if view.frozen or not view.led_here or not is_remote_offset(view, offset):
        return
    if verdict is not EpochVerdict.CONSISTENT:
        return  # an error or a divergence is answered behind a barrier only (H17)
    if partition.asked.current_leader_epoch not in (NO_EPOCH, view.leader_epoch):
        return  # either side may not know today's leader; the broker knows it
    known = view.watermarks
    if known is None:
        return
    high_watermark = max(high_watermarks.get(partition.key, -1), known.high_watermark)
    if offset < known.log_start_offset <= high_watermark:
        stable = known.last_stable_offset if known.last_stable_offset >= 0 else high_watermark
        partition.source = Source.ASSUMED
        partition.ask_offset = high_watermark
        partition.watermarks = Watermarks(
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=known.log_start_offset,
        )
