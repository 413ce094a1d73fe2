"""Pure corrections of answers about positions: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Why: a client that asks where data begins or where an epoch ended must hear about both tiers (G7);
the broker knows one. The broker's answer comes first and its errors pass: it is the authority on
access (G8). It must not know sockets, tasks or how long a barrier takes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_protocol.error_codes import LEADER_NOT_AVAILABLE, NONE
from rlm.reading.requests import TimestampedOffset
from rlm.remote_log.tier import EpochEnd, TierPartition, has_remote

Value = dict[str, Any]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_PASS_AT_ONCE = frozenset({LATEST, MAX_TIMESTAMP})
_UNKNOWN = -1
_FIRST_WITH_EPOCH = 4
CONSUMER_REPLICA_ID = -1

# What Java, librdkafka and aiokafka all ask again after; 78 OFFSET_NOT_AVAILABLE would do for the
# first two but is unknown to aiokafka, which then gives up. In DeleteRecords it makes Java's admin
# look the leader up and send again, and unlike REQUEST_TIMED_OUT never means "maybe done".
NOT_NOW = LEADER_NOT_AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One partition of a request about positions; `asked` is a timestamp or a leader epoch."""

    topic: str
    partition: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A corrected answer of ListOffsets."""

    offset: int
    leader_epoch: int
    timestamp_ms: int = -1


def needs_view(timestamp: int) -> bool:
    """Whether an answer of ListOffsets may be altered: all but -1 and -3 (H17)."""
    return timestamp not in _PASS_AT_ONCE


def needs_lookup(timestamp: int, view: TierPartition) -> bool:
    """Whether the remote tier must be searched for a timestamp."""
    return timestamp >= 0 and has_remote(view)


def questions(request: Value, field: str, *, name: str, index: str) -> list[Question]:
    """The partitions of a decoded request in its order; `field` holds what is asked."""
    return [
        Question(topic=topic[name], partition=partition[index], asked=partition[field])
        for topic in request["topics"]
        for partition in topic["partitions"]
    ]


def answers(response: Value, *, name: str, index: str) -> dict[tuple[str, int], Value]:
    """The partitions of a decoded answer; changing one changes the answer."""
    return {
        (topic[name], partition[index]): partition
        for topic in response["topics"]
        for partition in topic["partitions"]
    }


def paired(
    asked: Iterable[Question], response: Value, *, name: str, index: str
) -> list[tuple[Question, Value]]:
    """Each question with its answer, which is left out where there is none.

    A partition that is asked for twice is answered twice, in the order asked.
    """
    found: dict[tuple[str, int], list[Value]] = {}
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            found.setdefault((topic[name], partition[index]), []).append(partition)
    pairs = []
    for one in asked:
        waiting = found.get((one.topic, one.partition))
        if waiting:
            pairs.append((one, waiting.pop(0)))
    return pairs


def is_frozen_question(view: TierPartition, timestamp: int) -> bool:
    """A frozen partition is answered within the broker's own log only, never lower (H4)."""
    return view.frozen and timestamp != EARLIEST_LOCAL


def is_unsettled_question(view: TierPartition, timestamp: int) -> bool:
    """Whether the oldest data is not known yet: nothing remote can be read, something may be."""
    asks_for_old = timestamp == EARLIEST or timestamp >= 0
    is_unsettled = view.unsettled_next_offset > max(view.remote_log_start_offset, 0)
    return asks_for_old and is_unsettled and not has_remote(view)


def list_offsets_position(
    view: TierPartition,
    timestamp: int,
    answered: Value,
    found: TimestampedOffset | None,
    log_start_offset: int,
) -> int | Position | None:
    """The corrected position, a bare offset whose epoch is to be looked up, or None = it stands.

    `found` is the remote answer to a timestamp; `log_start_offset` the broker's, for -6.
    """
    offset = answered["offset"]
    if timestamp == EARLIEST:
        lower = has_remote(view) and view.remote_log_start_offset < offset
        return view.remote_log_start_offset if lower else None
    if timestamp == LATEST_TIERED:
        if not has_remote(view):
            return Position(offset=_UNKNOWN, leader_epoch=_UNKNOWN)
        return view.remote_next_offset - 1
    if timestamp == EARLIEST_PENDING_UPLOAD:
        remote_next = view.remote_next_offset if has_remote(view) else _UNKNOWN
        return max(remote_next, log_start_offset)
    if found is not None and (offset == _UNKNOWN or found.offset < offset):
        return Position(
            offset=found.offset,
            leader_epoch=found.leader_epoch,
            timestamp_ms=found.timestamp_ms,
        )
    return None


def apply_position(answered: Value, position: Position, version: int) -> None:
    """Write a position into a decoded answer of ListOffsets; epochs are there from v4 on."""
    answered["offset"] = position.offset
    if version >= _FIRST_WITH_EPOCH:
        answered["leader_epoch"] = position.leader_epoch
    answered["timestamp"] = position.timestamp_ms


def apply_error(answered: Value, error_code: int) -> None:
    """An error of ListOffsets or OffsetForLeaderEpoch: unknown positions beside it, as in Kafka."""
    answered["error_code"] = error_code
    for name in ("offset", "timestamp", "leader_epoch", "end_offset"):
        if name in answered:
            answered[name] = _UNKNOWN


def correct_epoch_end(answered: Value, known: EpochEnd | None) -> bool:
    """Use the merged lineage where it ends the epoch no higher, or where the broker knows nothing.

    A broker whose first epochs were trimmed ends older ones at its local start, and gives back the
    epoch asked for, though it may have no records (LeaderEpochFileCache.endOffsetFor): both too
    high, so that a truncation would go unseen (H37).
    """
    if known is None or answered["error_code"] != NONE:
        return False
    undefined = answered["end_offset"] == _UNKNOWN
    if not undefined and known.end_offset > answered["end_offset"]:
        return False  # the broker's log is not the one that we know
    if (known.leader_epoch, known.end_offset) == (answered["leader_epoch"], answered["end_offset"]):
        return False
    answered["leader_epoch"] = known.leader_epoch
    answered["end_offset"] = known.end_offset
    return True


def without_refused(request: Value, refused: Mapping[tuple[str, int], int]) -> Value | None:
    """A DeleteRecords request for the partitions that may be asked; None when none is left."""
    topics = []
    for topic in request["topics"]:
        kept = [
            partition
            for partition in topic["partitions"]
            if (topic["name"], partition["partition_index"]) not in refused
        ]
        if kept:
            topics.append({**topic, "partitions": kept})
    return {**request, "topics": topics} if topics else None


def merge_deletes(
    request: Value, response: Value | None, refused: Mapping[tuple[str, int], int]
) -> Value:
    """One DeleteRecords answer in the order of the request: the broker's and our refusals."""
    broker = {} if response is None else answers(response, name="name", index="partition_index")
    topics = []
    for topic in request["topics"]:
        partitions = []
        for partition in topic["partitions"]:
            index = partition["partition_index"]
            key = (topic["name"], index)
            if key in refused:
                partitions.append(
                    {"partition_index": index, "low_watermark": -1, "error_code": refused[key]}
                )
            elif key in broker:
                partitions.append(broker[key])
        topics.append({"name": topic["name"], "partitions": partitions})
    throttle_time_ms = 0 if response is None else response["throttle_time_ms"]
    return {"throttle_time_ms": throttle_time_ms, "topics": topics}
