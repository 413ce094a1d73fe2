"""Decodes requests and answers about offsets: ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Each question is paired with its answer, and answers are changed in place.
rlm/remote_log/list_offsets.py decides what is right. This module must not know sockets or tasks.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafka_protocol.error_codes import LEADER_NOT_AVAILABLE
from rlm.remote_log.list_offsets import Position
from rlm.remote_log.tier import EpochEnd

Value = dict[str, Any]

_UNKNOWN = -1
_FIRST_WITH_EPOCH = 4

# Java, librdkafka and aiokafka all repeat the request after this error. 78 OFFSET_NOT_AVAILABLE
# would do for the first two, but aiokafka does not know it and gives up. After it, the Java admin
# client looks up the leader of a DeleteRecords and sends it again; unlike REQUEST_TIMED_OUT it
# never means "perhaps done".
NOT_NOW = LEADER_NOT_AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One partition of a request about offsets; `asked` is a timestamp, a leader epoch or an
    offset.
    """

    topic: str
    partition: int
    asked: int


def questions(request: Value, field: str, *, name: str, index: str) -> list[Question]:
    """The partitions of a decoded request in its order; `field` holds what is asked."""
    return [
        Question(topic=topic[name], partition=partition[index], asked=partition[field])
        for topic in request["topics"]
        for partition in topic["partitions"]
    ]


def paired(
    asked: Iterable[Question], response: Value, *, name: str, index: str
) -> list[tuple[Question, Value]]:
    """Each question with its answer, which is left out where there is none.

    A partition that is asked for twice is answered twice, in the order asked.
    """
    found: dict[tuple[str, int], deque[Value]] = {}
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            found.setdefault((topic[name], partition[index]), deque()).append(partition)
    pairs = []
    for one in asked:
        waiting = found.get((one.topic, one.partition))
        if waiting:
            pairs.append((one, waiting.popleft()))
    return pairs


def apply_position(answered: Value, position: Position, version: int) -> None:
    """Write a position into a decoded answer of ListOffsets; epochs are there from v4 on."""
    answered["offset"] = position.offset
    if version >= _FIRST_WITH_EPOCH:
        answered["leader_epoch"] = position.leader_epoch
    answered["timestamp"] = position.timestamp_ms


def apply_error(answered: Value, error_code: int) -> None:
    """Write an error of ListOffsets or OffsetForLeaderEpoch; its positions are unknown, as in
    Kafka.
    """
    answered["error_code"] = error_code
    for name in ("offset", "timestamp", "leader_epoch", "end_offset"):
        if name in answered:
            answered[name] = _UNKNOWN


def epoch_end_of(answered: Value) -> EpochEnd:
    """What a decoded answer of OffsetForLeaderEpoch says."""
    return EpochEnd(leader_epoch=answered["leader_epoch"], end_offset=answered["end_offset"])


def apply_epoch_end(answered: Value, known: EpochEnd) -> None:
    """Replace the end in a decoded answer."""
    answered["leader_epoch"] = known.leader_epoch
    answered["end_offset"] = known.end_offset
