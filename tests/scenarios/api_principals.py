"""Principals with one arrangement of ACLs each, and what they ask of a topic: of the broker by a
request of Kafka, and of the API by the calls that would show the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from rlm.v1 import fetch_pb2
from tests.scenarios.acl_requests import FIRST_TIMESTAMP_MS, Ask, epoch_end, fetch, list_offsets

_ALLOW, _DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_LITERAL, _PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
_READ, _DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An ACL on a topic: TOPIC stands for its name, and TO for the first letters of it."""

    operation: AclOperation
    permission: AclPermissionType = _ALLOW
    topic: str = "TOPIC"
    pattern: ResourcePatternType = _LITERAL
    host: str = "*"

    def binding(self, name: str, topic: str) -> AclBinding:
        names = {"TOPIC": topic, "TO": topic[:-3]}
        return AclBinding(
            ResourceType.TOPIC,
            names.get(self.topic, self.topic),
            self.pattern,
            f"User:{name}",
            self.host,
            self.operation,
            self.permission,
        )


ENTRIES: Mapping[str, tuple[Entry, ...]] = {
    "nobody": (),
    "describes": (Entry(operation=_DESCRIBE),),
    "reads": (Entry(operation=_READ),),
    "writes": (Entry(operation=AclOperation.WRITE),),
    "reads-all": (Entry(operation=_READ, topic="*"),),
    "reads-prefix": (Entry(operation=_READ, topic="TO", pattern=_PREFIXED),),
    "reads-other-prefix": (Entry(operation=_READ, topic="other", pattern=_PREFIXED),),
    "may-not-read": (
        Entry(operation=AclOperation.ALL, topic="*"),
        Entry(operation=_READ, permission=_DENY),
    ),
    "may-not-describe": (
        Entry(operation=_READ),
        Entry(operation=_DESCRIBE, permission=_DENY, topic="TO", pattern=_PREFIXED),
    ),
    "denied-all": (
        Entry(operation=_READ),
        Entry(operation=AclOperation.ALL, permission=_DENY, topic="*"),
    ),
    "from-elsewhere": (Entry(operation=_READ, host="192.0.2.1"),),
    "not-from-here": (
        Entry(operation=_READ),
        Entry(operation=_READ, permission=_DENY, host="127.0.0.1"),
    ),
    "from-here": (Entry(operation=_READ, host="127.0.0.1"),),
}
_READ_BY = {"reads", "reads-all", "reads-prefix", "may-not-describe", "from-here"}
_DESCRIBED_BY = {
    *("describes", "reads", "writes", "reads-all", "reads-prefix", "may-not-read"),
    *("from-here", "not-from-here"),
}
MAY: Mapping[str, frozenset[str]] = {
    "read": frozenset(_READ_BY),
    "describe": frozenset(_DESCRIBED_BY),
}
"""Who may, so that the decisions of broker and API are not equal by all being the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the broker is asked, and the calls that would show the same of the topic."""

    right: str
    ask: Ask
    calls: tuple[tuple[str, Any], ...]


def questions(topic: str) -> Iterator[tuple[str, Question]]:
    """What a client of the API may ask; REMOTE_ONLY needs no broker, and the same rights."""
    ref = fetch_pb2.TopicRef(name=topic)
    fetches = [fetch_pb2.FetchRequest(topic=ref, end_offset=1, tiers=tier) for tier in _TIERS]
    yield (
        "fetch",
        Question(right="read", ask=fetch(12, 0), calls=tuple(("Fetch", one) for one in fetches)),
    )
    for timestamp in (-1, -2, -3, -4, -5, FIRST_TIMESTAMP_MS):
        asked = [
            fetch_pb2.ListOffsetsRequest(topic=ref, timestamp=timestamp, tiers=tier)
            for tier in _TIERS
        ]
        calls = tuple(("ListOffsets", one) for one in asked)
        yield (
            f"offset {timestamp}",
            Question(right="describe", ask=list_offsets(11, timestamp), calls=calls),
        )
    yield (
        "epochs",
        Question(
            right="describe",
            ask=epoch_end(4, 0),
            calls=(
                ("DescribePartition", fetch_pb2.DescribePartitionRequest(topic=ref)),
                ("DescribeRemoteLog", fetch_pb2.DescribeRemoteLogRequest(topic=ref)),
            ),
        ),
    )


_TIERS = (fetch_pb2.ALL_TIERS, fetch_pb2.REMOTE_ONLY)
