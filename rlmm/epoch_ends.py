"""OffsetForLeaderEpoch v3 and ListOffsets v5, as aiokafka sends requests: where logs end, and
which leader epochs their brokers know.

aiokafka has no class for the one, and of the other none that tells the epoch. Sources:
OffsetForLeaderEpochRequest.json, ListOffsetsRequest.json and their responses.

Whether an end offset is the leader's, or that of one that was deposed and has not noticed (H17).

A leader that stood still answers with its old high watermark before it learns of the election, and
one that is cut off from the controller for as long as that lasts. To ask with an epoch does not
help: nobody knows the newer one yet. But a record counts as written once it is in as many replicas
as min.insync.replicas says. So of any (replicas - min.insync.replicas + 1) replicas one has it, and
knows the epoch it was written under: it got the record from a leader of that epoch. Where so many,
the leader among them, were asked after the question came up and none knows a newer epoch than the
leader's, everything written before is below the leader's end. With one replica, or where all must
have a record, the leader alone is enough. Pure.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Int64, Schema, String

from kip405.errors import Unavailable
from rlmm.barrier import Place
from rlmm.divergence import EpochEnd


class LogEnd(NamedTuple):
    """End of a partition by one broker: the leader's high watermark, another replica's log end; and
    the leader epoch that broker knows.
    """

    end_offset: int
    leader_epoch: int


class ReplicaVotes:
    """The answers to one question for the end of a partition, as they come."""

    def __init__(
        self, place: Place, *, leader: int, replicas: frozenset[int], min_insync_replicas: int
    ) -> None:
        self._place = place
        self._leader = leader
        self._others_needed = max(0, len(replicas) - max(1, min_insync_replicas))
        self._others = replicas - {leader}
        self._epochs: dict[int, int] = {}
        self._end: LogEnd | None = None
        self._silent: dict[int, str] = {}

    @property
    def others(self) -> frozenset[int]:
        """Whom to ask beside the leader."""
        return self._others if self._others_needed else frozenset()

    def take(self, node: int, answer: LogEnd) -> None:
        """What a replica answered."""
        if node == self._leader:
            self._end = answer
        else:
            self._epochs[node] = answer.leader_epoch

    def refuse(self, node: int, why: str) -> None:
        """A replica gave no answer."""
        self._silent[node] = why

    @property
    def has_end(self) -> bool:
        """The leader has answered."""
        return self._end is not None

    @property
    def is_decided(self) -> bool:
        """Nothing that may still come can change the result for the better."""
        if self._leader in self._silent:
            return True
        has_enough = len(self._epochs) >= self._others_needed
        is_all = len(self._epochs) + len(self._silent.keys() & self._others) == len(self._others)
        return self._end is not None and (has_enough or is_all)

    def end(self) -> int:
        """The end offset behind everything that was written before the question; Unavailable where
        it is not known.
        """
        what = f"end offset of {self._place}"
        if self._end is None:
            raise Unavailable(f"{what}: {self._silent.get(self._leader, 'no leader')}")
        newer = [node for node, epoch in self._epochs.items() if epoch > self._end.leader_epoch]
        if newer:
            raise Unavailable(f"{what}: broker {newer[0]} knows a newer leader than {self._leader}")
        if len(self._epochs) < self._others_needed:
            silent = "; ".join(f"broker {node}: {why}" for node, why in self._silent.items())
            raise Unavailable(f"{what}: too few replicas confirm the leader's epoch ({silent})")
        return self._end.end_offset


_CONSUMER = -1
_DEBUGGING = -2
"""Any replica answers, the leader or not (ListOffsetsRequest.DEBUGGING_REPLICA_ID)."""
_LATEST = -1
_READ_UNCOMMITTED = 0
_ANY_EPOCH = -1
"""As current leader epoch: whoever takes himself for the leader answers; see `divergence`."""


def _topics(*partition_fields: tuple[str, Any]) -> tuple[str, Any]:
    """The field `topics` of a message: partitions by topic, each with these fields."""
    partitions = ("partitions", Array(*partition_fields))
    return "topics", Array(("topic", String("utf-8")), partitions)


class EpochEndsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("error_code", Int16),
            ("partition", Int32),
            ("leader_epoch", Int32),
            ("end_offset", Int64),
        ),
    )


class EpochEndsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndsResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        _topics(
            ("partition", Int32),
            ("current_leader_epoch", Int32),
            ("leader_epoch", Int32),
        ),
    )


class EpochEndsRequest(Request[EpochEndsStruct]):  # type: ignore[misc]
    """Leader epochs by partition, all of one leader."""

    API_KEY = 23

    def __init__(self, epochs: Mapping[Place, int]) -> None:
        self._epochs = epochs

    def build(self, request_struct_class: type[EpochEndsStruct]) -> EpochEndsStruct:
        topics: dict[str, list[tuple[int, int, int]]] = {}
        for place, epoch in self._epochs.items():
            topics.setdefault(place.topic, []).append((place.partition, _ANY_EPOCH, epoch))
        return request_struct_class(_CONSUMER, list(topics.items()))


def read_epoch_ends(answer: Any) -> tuple[dict[Place, EpochEnd], dict[Place, str]]:
    """What the leader told, and the names of errors where it told nothing."""
    found: dict[Place, EpochEnd] = {}
    refused: dict[Place, str] = {}
    for topic, partitions in answer.topics:
        for error_code, partition, leader_epoch, end_offset in partitions:
            place = Place(topic, partition)
            if error_code:
                refused[place] = for_code(error_code).__name__
            else:
                found[place] = EpochEnd(leader_epoch, end_offset)
    return found, refused


class LogEndResponse(Response):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _topics(
            ("partition", Int32),
            ("error_code", Int16),
            ("timestamp", Int64),
            ("offset", Int64),
            ("leader_epoch", Int32),
        ),
    )


class LogEndStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 2
    API_VERSION = 5
    RESPONSE_TYPE = LogEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("isolation_level", Int8),
        _topics(
            ("partition", Int32),
            ("current_leader_epoch", Int32),
            ("timestamp", Int64),
        ),
    )


class LogEndRequest(Request[LogEndStruct]):  # type: ignore[misc]
    """The end of one partition; `of_leader` False = as whatever replica is asked has it."""

    API_KEY = 2

    def __init__(self, place: Place, *, of_leader: bool) -> None:
        self._place = place
        self._replica_id = _CONSUMER if of_leader else _DEBUGGING

    def build(self, request_struct_class: type[LogEndStruct]) -> LogEndStruct:
        partitions = [(self._place.partition, _ANY_EPOCH, _LATEST)]
        topics = [(self._place.topic, partitions)]
        return request_struct_class(self._replica_id, _READ_UNCOMMITTED, topics)


def read_log_end(answer: Any) -> LogEnd:
    """What the broker told; its KafkaError where it refused."""
    for topic, partitions in answer.topics:
        for _, error_code, _, offset, leader_epoch in partitions:
            if error_code:
                raise for_code(error_code)(topic)
            return LogEnd(offset, leader_epoch)
    raise KafkaError("an empty answer")
