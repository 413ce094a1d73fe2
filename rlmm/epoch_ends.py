"""OffsetForLeaderEpoch v3, as aiokafka sends requests: where a leader's log ends an epoch.

aiokafka has no class for it. Source: OffsetForLeaderEpochRequest.json, -Response.json.
"""

from collections.abc import Mapping
from typing import Any

from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from rlmm.barrier import Place
from rlmm.divergence import EpochEnd

_CONSUMER = -1
_ANY_EPOCH = -1
"""As current leader epoch: whoever takes himself for the leader answers; see `divergence`."""


class EpochEndsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class EpochEndsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndsResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("leader_epoch", Int32),
                    ),
                ),
            ),
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
