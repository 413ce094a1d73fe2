"""Identities of KIP-405: Kafka's Uuid, TopicIdPartition and RemoteLogSegmentId.

Offsets are record offsets (int64), positions are byte positions, epochs are leader epochs (int32).
This module must not know where anything is stored or how it is sent.
"""

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

MAX_OFFSET = 2**63 - 1
_UUID_BYTES = 16
_UUID_TEXT = 22


class _Raw(NamedTuple):
    raw: bytes


class Uuid(_Raw):
    """16 bytes, most significant first (org.apache.kafka.common.Uuid).

    A tuple, since it is part of most dictionary keys, and tuples are hashed and compared in C.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes) -> "Uuid":
        if len(raw) != _UUID_BYTES:
            raise ValueError(f"a uuid has 16 bytes, not {len(raw)}")
        return super().__new__(cls, raw)

    @classmethod
    def parse(cls, text: str) -> "Uuid":
        """Kafka's 22-character base64url text -> Uuid; ValueError says what is wrong."""
        if len(text) != _UUID_TEXT:
            raise ValueError(f"a uuid has 22 base64url characters: {text!r}")
        try:
            uuid = cls(base64.b64decode(text + "==", altchars=b"-_", validate=True))
        except ValueError as error:
            raise ValueError(f"not a base64url uuid: {text!r}") from error
        if str(uuid) != text:
            raise ValueError(f"not the canonical text of a uuid: {text!r}")
        return uuid

    def __str__(self) -> str:
        return _text(self.raw)


@lru_cache(maxsize=4_096)
def _text(raw: bytes) -> str:
    """The ids of topics are written again and again, as parts of settings keys."""
    return base64.urlsafe_b64encode(raw)[:_UUID_TEXT].decode("ascii")


ZERO_UUID = Uuid(bytes(_UUID_BYTES))


class PartitionKey(NamedTuple):
    """The permanent identity of a partition: the topic's id, not its name, and the partition
    number.
    """

    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}"


class TopicPartition(NamedTuple):
    """A partition by its topic's name, whatever id the topic has now."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicIdPartition:
    """A partition with the current name of its topic (org.apache.kafka.common.TopicIdPartition)."""

    topic_id: Uuid
    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not self.topic:
            raise ValueError("the topic name is empty")
        if self.partition < 0:
            raise ValueError(f"partition {self.partition} is negative")

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, self.partition)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RemoteLogSegmentId:
    """One copy attempt of one segment; a fresh id per attempt (KIP-405)."""

    topic_id_partition: TopicIdPartition
    id: Uuid

    def __str__(self) -> str:
        return f"{self.topic_id_partition}:{self.id}"
