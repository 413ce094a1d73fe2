"""Computes the offsets at which a query starts and ends, from its options and present positions.

There are two steps, as in Spark: `bound` gives each partition an offset or leaves EARLIEST or
LATEST, which `resolved` replaces at each execution (late binding). The rules, their order and the
errors are those of KafkaOffsetReaderAdmin and KafkaSourceProvider. Pure except for `Positions`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, Self

from rlm_spark.plan.offset_specs import (
    EARLIEST,
    LATEST,
    Assign,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    OffsetSpec,
    OptionError,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    Subscription,
    named,
)
from tiered_reads.errors import ConnectorError
from tiered_reads.values import TopicPartition

_log: Final = logging.getLogger(__name__)

# Topics.isInternal of Kafka: no source of Spark reads them.
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


class OffsetError(ConnectorError):
    """Offsets that do not fit what is there: Spark's IllegalStateException."""


class Positions(Protocol):
    """Where topics begin and end now, by the read mode of the options it was opened with."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...

    def topics(self, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
        """Partitions by topic, unknown names left out; None: every topic there is."""
        ...

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each; partitions that do not exist are left out."""
        ...

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each (the next offset to be read); those that do not exist are left out."""
        ...

    def for_timestamps(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The earliest offset with at least that timestamp; None: no record has."""
        ...


def assigned(
    subscription: Subscription, positions: Positions, *, must_exist: bool
) -> frozenset[TopicPartition]:
    """The partitions the subscription means now.

    A topic named that does not exist is an error where `must_exist` (the first plan), else left
    out (it was deleted under a stream). Internal topics are never read.
    """
    match subscription:
        case SubscribePattern(pattern=pattern):
            found = positions.topics(None)
            wanted = {name: found[name] for name in found if pattern.search(name)}
            return _partitions_of(wanted)
        case Subscribe(topics=topics):
            return _partitions_of(_named_topics(topics, positions, must_exist=must_exist))
        case Assign(partitions=partitions):
            topics = tuple(sorted({topic_partition.topic for topic_partition in partitions}))
            there = _partitions_of(_named_topics(topics, positions, must_exist=must_exist))
            if must_exist and partitions - there:
                _log.warning(
                    "event=assigned_partitions_missing partitions=%s", named(partitions - there)
                )
            return partitions & there


def bound(
    spec: OffsetSpec,
    topic_partitions: frozenset[TopicPartition],
    positions: Positions,
    *,
    starting: bool,
) -> dict[TopicPartition, int]:
    """An offset for each partition; EARLIEST and LATEST stay where the query says so."""
    match spec:
        case Earliest():
            return dict.fromkeys(topic_partitions, EARLIEST)
        case Latest():
            return dict.fromkeys(topic_partitions, LATEST)
        case SpecificOffsets(offsets=offsets):
            _check_offsets_named(offsets, topic_partitions)
            return dict(offsets)
        case SpecificTimestamps(timestamps_ms=timestamps_ms, no_match=no_match):
            _check_timestamps_named(timestamps_ms, topic_partitions, starting=starting)
            return _at_timestamps(timestamps_ms, no_match, positions, starting=starting)
        case GlobalTimestamp(timestamp_ms=timestamp_ms, no_match=no_match):
            timestamps_ms = dict.fromkeys(topic_partitions, timestamp_ms)
            return _at_timestamps(timestamps_ms, no_match, positions, starting=starting)


def resolved(
    offsets: Mapping[TopicPartition, int], positions: Positions
) -> dict[TopicPartition, int]:
    """`offsets` with EARLIEST and LATEST looked up; a partition gone since then is left out."""
    known = {topic_partition: offset for topic_partition, offset in offsets.items() if offset >= 0}
    first = [topic_partition for topic_partition, offset in offsets.items() if offset == EARLIEST]
    last = [topic_partition for topic_partition, offset in offsets.items() if offset == LATEST]
    if first:
        known |= positions.earliest(first)
    if last:
        known |= positions.latest(last)
    return known


def check_specs(start: OffsetSpec, end: OffsetSpec) -> None:
    """OptionError where start and end name other partitions, or a start lies after its end."""
    match start, end:
        case SpecificOffsets(offsets=first), SpecificOffsets(offsets=last):
            _check_pairs(first, last, "offset")
        case SpecificTimestamps(timestamps_ms=first), SpecificTimestamps(timestamps_ms=last):
            _check_pairs(first, last, "timestamp")
        case _:
            pass


def check_resolved(topic_partition: TopicPartition, start_offset: int, end_offset: int) -> None:
    """OffsetError where the start turned out to lie after the end."""
    if start_offset > end_offset:
        raise OffsetError(
            f"The resolved start offset {start_offset} is greater than the resolved end offset "
            f"{end_offset} for topic {topic_partition.topic} partition {topic_partition.partition}."
        )


def _named_topics(
    topics: Sequence[str], positions: Positions, *, must_exist: bool
) -> dict[str, tuple[int, ...]]:
    found = positions.topics(topics)
    missing = [topic for topic in topics if topic not in found]
    if missing and must_exist:
        raise OffsetError(
            "This server does not host this topic-partition: unknown topics "
            + ", ".join(sorted(missing))
        )
    return found


def _partitions_of(topics: Mapping[str, Sequence[int]]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic, partition)
        for topic, partitions in topics.items()
        if topic not in _INTERNAL_TOPICS
        for partition in partitions
    )


def _check_offsets_named(
    offsets: Mapping[TopicPartition, int], topic_partitions: frozenset[TopicPartition]
) -> None:
    if offsets.keys() != topic_partitions:
        raise OffsetError(
            "Partitions specified for Kafka start offsets don't match what are assigned. Maybe "
            "topic partitions are created or deleted while the query is running. Use -1 for "
            f"latest, -2 for earliest. Specified: {named(offsets)} "
            f"Assigned: {named(topic_partitions)}"
        )


def _check_timestamps_named(
    timestamps_ms: Mapping[TopicPartition, int],
    topic_partitions: frozenset[TopicPartition],
    *,
    starting: bool,
) -> None:
    if timestamps_ms.keys() != topic_partitions:
        raise OffsetError(
            f"Partitions specified for Kafka timestamp based {'start' if starting else 'end'} "
            "offsets don't match what are assigned. Maybe topic partitions are created or deleted "
            "while the query is running, or you didn't specify all the partitions. Specified: "
            f"{named(timestamps_ms)} Assigned: {named(topic_partitions)}"
        )


def _at_timestamps(
    timestamps_ms: Mapping[TopicPartition, int],
    no_match: NoMatch,
    positions: Positions,
    *,
    starting: bool,
) -> dict[TopicPartition, int]:
    """Offsets at timestamps. No match means the end, which is looked up now and does not move."""
    found = positions.for_timestamps(timestamps_ms) if timestamps_ms else {}
    unmatched = sorted(
        topic_partition for topic_partition, offset in found.items() if offset is None
    )
    if unmatched and starting and no_match is NoMatch.ERROR:
        topic_partition = unmatched[0]
        raise OptionError(
            f"No offset matched from request of topic-partition {topic_partition} and timestamp "
            f"{timestamps_ms[topic_partition]}."
        )
    at_end = positions.latest(unmatched) if unmatched else {}
    return {
        topic_partition: offset for topic_partition, offset in found.items() if offset is not None
    } | at_end


def _check_pairs(
    first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int], what: str
) -> None:
    if first.keys() != last.keys():
        raise OptionError(
            "The specified start offset and end offset should have the same topic-partitions. "
            f"Topic-partitions for start offset: {named(first)}, topic-partitions for end "
            f"offset: {named(last)}."
        )
    for topic_partition in sorted(first):
        if first[topic_partition] > last[topic_partition] >= 0:
            raise OptionError(
                f"The specified start {what} {first[topic_partition]} is greater than the end "
                f"{what} {last[topic_partition]} for topic {topic_partition.topic} partition "
                f"{topic_partition.partition}."
            )
