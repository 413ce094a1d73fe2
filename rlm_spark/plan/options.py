"""Checks and types the options of a query: those of Spark's Kafka source and our own.

Keys are case-insensitive. A wrong value is an OptionError that names the option. Unknown options
are ignored, as Spark ignores them; a warning names those that are probably misspelt. No message and
no repr contains a secret. The order of the checks and the wording of the errors are those of
KafkaSourceProvider. Pure: the user's name and a function that reads files are arguments.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rlm_spark.plan.connection_options import connector_options
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
    offsets_from_json,
    partitions_from_json,
    timestamps_from_json,
)
from rlm_spark.plan.offsets import check_specs
from rlm_spark.plan.option_map import OPTIONS, OptionMap
from tiered_reads.values import ConnectorOptions

_log: Final = logging.getLogger(__name__)

_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_HOW_ALIKE: Final = 0.84  # of difflib: one letter more or less in a name of six and longer

_GROUP_ID_WARNING: Final = (
    "Kafka option 'kafka.group.id' has been set on this query, it is not recommended to set this "
    "option. The connector assigns partitions itself and commits nothing, the group is not used"
)
_RESET_REFUSED: Final = (
    "Kafka option 'auto.offset.reset' is not supported. Instead set the source option "
    "'startingoffsets' to 'earliest' or 'latest' to specify where to start. Structured Streaming "
    "manages which offsets are consumed internally, rather than relying on the kafkaConsumer to "
    "do it. This will ensure that no data is missed when new topics/partitions are dynamically "
    "subscribed. Note that 'startingoffsets' only applies when a new Streaming query is started, "
    "and that resuming will always pick up from where the query left off. See the docs for more "
    "details."
)
_REFUSED: Final = {
    "kafka.auto.offset.reset": _RESET_REFUSED,
    "kafka.key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays "
        "with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys."
    ),
    "kafka.value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte "
        "arrays with ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize "
        "the values."
    ),
    "kafka.enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "kafka.interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The options that batch and streaming queries share. Pickles; its repr shows no secret."""

    subscription: Subscription
    starting: OffsetSpec
    connector: ConnectorOptions
    min_partitions: int | None = None
    max_records_per_partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuery(Query):
    """A query with an end."""

    ending: OffsetSpec
    has_pushdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuery(Query):
    """A query without an end, with limits on what one trigger takes."""

    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int


def parse_batch(
    options: Mapping[str, str], *, user: str, read_text: Callable[[str], str]
) -> BatchQuery:
    """The batch query that `options` describe, else OptionError.

    `user` is the user that runs the query; `read_text(path)` reads a small file (`rlm.token.file`).
    """
    given = OptionMap(options)
    starting, ending = _starting(given, Earliest()), _ending(given)
    _check_batch_starting(starting)
    _check_batch_ending(ending)
    _check_common(given)
    for ignored in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if ignored in given:
            _log.warning("event=option_ignored option=%s reason=batch query", ignored)
    check_specs(starting, ending)
    return BatchQuery(
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        connector=connector_options(given, user=user, read_text=read_text),
        min_partitions=given.value("minPartitions"),
        max_records_per_partition=given.value("maxRecordsPerPartition"),
        has_pushdown=given.value("pushdown"),
    )


def parse_stream(
    options: Mapping[str, str], *, user: str, read_text: Callable[[str], str]
) -> StreamQuery:
    """The streaming query that `options` describe, else OptionError; arguments as parse_batch."""
    given = OptionMap(options)
    if "endingOffsets" in given:
        raise OptionError("ending offset not valid in streaming queries")
    if "endingOffsetsByTimestamp" in given:
        raise OptionError("ending timestamp not valid in streaming queries")
    if "endingTimestamp" in given:
        _log.warning("event=option_ignored option=endingTimestamp reason=streaming query")
    _check_common(given)
    return StreamQuery(
        subscription=_subscription(given),
        starting=_starting(given, Latest()),
        connector=connector_options(given, user=user, read_text=read_text),
        min_partitions=given.value("minPartitions"),
        max_records_per_partition=given.value("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.value("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.value("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.value("maxTriggerDelay"),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column headers."""
    return bool(OptionMap(options).value("includeHeaders"))


def _starting(given: OptionMap, default: OffsetSpec) -> OffsetSpec:
    return _spec(
        given,
        ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        default,
    )


def _ending(given: OptionMap) -> OffsetSpec:
    return _spec(given, ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"), Latest())


def _spec(given: OptionMap, keys: tuple[str, str, str], default: OffsetSpec) -> OffsetSpec:
    """The first of `keys` that is given wins: one timestamp, timestamps, offsets."""
    one_timestamp, timestamps, offsets = keys
    no_match: NoMatch = given.value("startingOffsetsByTimestampStrategy")
    if one_timestamp in given:
        return GlobalTimestamp(_timestamp_ms(given[one_timestamp].strip()), no_match)
    if timestamps in given:
        return SpecificTimestamps(timestamps_from_json(given[timestamps].strip()), no_match)
    if offsets not in given:
        return default
    text = given[offsets].strip()
    match text.lower():
        case "latest":
            return Latest()
        case "earliest":
            return Earliest()
        case _:
            return SpecificOffsets(offsets_from_json(text))


def _timestamp_ms(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise OptionError(f"Expected a single long value, got {text}")
    return int(text)


def _check_batch_starting(starting: OffsetSpec) -> None:
    match starting:
        case Latest():
            raise OptionError("starting offset can't be latest for batch queries on Kafka")
        case SpecificOffsets(offsets=offsets):
            for topic_partition in sorted(offsets):
                if offsets[topic_partition] == LATEST:
                    raise OptionError(
                        f"startingOffsets for {topic_partition} can't be latest for batch queries "
                        "on Kafka"
                    )
        case _:
            pass


def _check_batch_ending(ending: OffsetSpec) -> None:
    match ending:
        case Earliest():
            raise OptionError("ending offset can't be earliest for batch queries on Kafka")
        case SpecificOffsets(offsets=offsets):
            for topic_partition in sorted(offsets):
                if offsets[topic_partition] == EARLIEST:
                    raise OptionError(
                        f"ending offset for {topic_partition} can't be earliest for batch queries "
                        "on Kafka"
                    )
        case _:
            pass


def _check_common(given: OptionMap) -> None:
    """KafkaSourceProvider.validateGeneralOptions, in its order."""
    _subscription(given)
    given.value("minPartitions")
    given.value("maxRecordsPerPartition")
    if "kafka.group.id" in given:
        _log.warning("event=option_not_used message=%s", _GROUP_ID_WARNING)
    for key, refusal in _REFUSED.items():
        if key in given:
            raise OptionError(refusal)
    least, most = given.value("minOffsetsPerTrigger"), given.value("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"The value of minOffsetPerTrigger({least}) is higher than the "
            f"maxOffsetsPerTrigger({most})."
        )
    _warn_of_misspelt(given)


def _subscription(given: OptionMap) -> Subscription:
    strategies = [name for name in _STRATEGIES if name in given]
    names = ", ".join(_STRATEGIES)
    if not strategies:
        raise OptionError(
            f"One of the following options must be specified for Kafka source: {names}. "
            "See the docs for more details."
        )
    if len(strategies) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {names}. "
            "See the docs for more details."
        )
    value = given[strategies[0]]
    match strategies[0]:
        case "assign":
            return _assign(value)
        case "subscribe":
            return _subscribe(value)
        case _:
            return _subscribe_pattern(value)


def _assign(value: str) -> Assign:
    if not value.strip().startswith("{"):
        raise OptionError(
            f"No topicpartitions to assign as specified value for option 'assign' is '{value}'"
        )
    return Assign(partitions=partitions_from_json(value))


def _subscribe(value: str) -> Subscribe:
    topics = [name.strip() for name in value.split(",") if name.strip()]
    if not topics:
        raise OptionError(
            f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
        )
    return Subscribe(topics=tuple(dict.fromkeys(topics)))


def _subscribe_pattern(value: str) -> SubscribePattern:
    text = value.strip()
    if not text:
        raise OptionError(
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is "
            f"'{value}'"
        )
    try:
        return SubscribePattern(pattern=re.compile(text))
    except re.error as error:
        raise OptionError(f"option 'subscribePattern' is not a pattern: {text}: {error}") from error


def _warn_of_misspelt(given: OptionMap) -> None:
    known = {name.lower() for name in OPTIONS.keys}
    for key in given:
        if key in known or key.startswith("kafka."):
            continue
        meant = OPTIONS.nearest(key, _HOW_ALIKE)
        if meant is not None:
            _log.warning("event=option_unknown option=%s ignored=true did_you_mean=%s", key, meant)
        elif key.startswith("rlm."):
            _log.warning("event=option_unknown option=%s ignored=true", key)
