"""How a query names partitions and offsets, and their JSON: the forms of Spark's Kafka source.

`{"t":[0,1]}` names partitions, `{"t":{"0":5,"1":-1}}` gives each an offset (-2 earliest, -1 latest)
or a timestamp. The same JSON is what a stream writes to its checkpoint (Spark: JsonUtils,
KafkaOffsetRangeLimit, ConsumerStrategy). This module must not know where offsets come from.
"""

import enum
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tiered_reads.errors import ConnectorError
from tiered_reads.values import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2

_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_PARTITION: Final = (1 << 31) - 1

_PARTITIONS_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[0,1]}'
_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_EXAMPLE: Final = (
    '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'
)


class OptionError(ConnectorError, ValueError):
    """An option, or options together, that cannot be used: Spark's IllegalArgumentException."""


class NoMatch(enum.Enum):
    """What a starting timestamp later than every record means."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Exactly these partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """All partitions of these topics, those added later too."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePattern:
    """All partitions of every topic in whose name the pattern is found."""

    pattern: re.Pattern[str]


Subscription = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset there is, whenever the query is executed."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end, whenever the query is executed."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition; EARLIEST and LATEST are allowed values."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """A timestamp in ms for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]
    no_match: NoMatch


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """One timestamp in ms for every partition."""

    timestamp_ms: int
    no_match: NoMatch


OffsetSpec = Earliest | Latest | SpecificOffsets | SpecificTimestamps | GlobalTimestamp


def partitions_from_json(text: str) -> frozenset[TopicPartition]:
    """Partitions out of `{"t":[0,1]}`; OptionError with an example otherwise."""
    try:
        document = json.loads(text)
        return frozenset(
            TopicPartition(topic, _partition(number))
            for topic, numbers in document.items()
            for number in _list(numbers)
        )
    except (ValueError, AttributeError) as error:
        raise OptionError(f"Expected e.g. {_PARTITIONS_EXAMPLE}, got {text}") from error


def offsets_from_json(text: str) -> dict[TopicPartition, int]:
    """Offsets out of `{"t":{"0":5}}`: 0 or more, -1 latest, -2 earliest."""
    try:
        return _by_partition(json.loads(text), smallest=EARLIEST)
    except (ValueError, AttributeError) as error:
        raise OptionError(f"Expected e.g. {_OFFSETS_EXAMPLE}, got {text}") from error


def timestamps_from_json(text: str) -> dict[TopicPartition, int]:
    """Timestamps in ms out of `{"t":{"0":123456789}}`."""
    try:
        return _by_partition(json.loads(text), smallest=0)
    except (ValueError, AttributeError) as error:
        raise OptionError(f"Expected e.g. {_TIMESTAMPS_EXAMPLE}, got {text}") from error


def offsets_from_checkpoint(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Offsets out of the parsed JSON of a stream offset."""
    try:
        return _by_partition(document, smallest=0)
    except (ValueError, AttributeError) as error:
        text = json.dumps(document)
        raise OptionError(f"Expected e.g. {_OFFSETS_EXAMPLE}, got {text}") from error


def checkpoint_document(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The stream offset of `offsets`, always in the same order: Spark compares its text."""
    document: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        document.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[
            topic_partition
        ]
    return document


def named(topic_partitions: Iterable[TopicPartition]) -> str:
    """Partitions as messages show them: `t-0, t-1`, sorted."""
    return ", ".join(str(topic_partition) for topic_partition in sorted(topic_partitions))


def _by_partition(document: object, *, smallest: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, by_number in _object(document).items():
        for number, value in _object(by_number).items():
            found[TopicPartition(topic, _partition(int(number)))] = _whole(
                value, smallest=smallest, biggest=_MAX_OFFSET
            )
    return found


def _partition(value: object) -> int:
    return _whole(value, smallest=0, biggest=_MAX_PARTITION)


def _whole(value: object, *, smallest: int, biggest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= biggest:
        raise ValueError(f"{value!r} is not a whole number from {smallest} to {biggest}")
    return value


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a JSON object")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a JSON list")
    return value
