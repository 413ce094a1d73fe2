"""The offsets that an export covers, given by the options of the data source.

Without a starting option an export starts where the previous one ended. This module must not know
files or Spark.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from rlm_spark.errors import LossRule
from rlm_spark.pipelines.chunks import ExportError, Interval, Span
from rlm_spark.plan import offsets
from rlm_spark.plan.offset_specs import EARLIEST
from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.options import BatchQuery
from tiered_reads.values import TopicPartition

Bound = Literal["starting", "ending"]
STARTING_OPTIONS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")


def bound_options(text: str, bound: Bound) -> dict[str, str]:
    """`--from` or `--to` as options: `earliest`, `latest`, a date or time (ISO 8601, UTC unless it
    says otherwise), `@` and milliseconds, or Spark's JSON of offsets (`{"topic": {"0": 17}}`).

    A timestamp means the earliest record at or after it; none is the end. ExportError.
    """
    text = text.strip()
    if text in ("earliest", "latest") or text.startswith("{"):
        return {f"{bound}Offsets": text}
    found = {f"{bound}Timestamp": str(_timestamp_ms(text))}
    if bound == "starting":
        found["startingOffsetsByTimestampStrategy"] = "latest"
    return found


def _timestamp_ms(text: str) -> int:
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ExportError(
            f"{text!r} is not a position in a topic: give earliest, latest, a date or time like "
            "2026-11-21T09:00, @ and milliseconds, or JSON of offsets"
        ) from error
    moment = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def spans(
    query: BatchQuery,
    topic_partitions: frozenset[TopicPartition],
    positions: Positions,
    taken: Mapping[TopicPartition, Sequence[Interval]],
    *,
    goes_on: bool,
) -> dict[TopicPartition, Span]:
    """The requested offsets of each partition; partitions without new offsets are left out.

    `goes_on`: start at the end of the `taken` offsets. ExportError: offsets beyond the end, a
    partition that ends below its exported offsets. PlannedLossError: requested offsets are gone, by
    the loss rule of the query. OffsetError, OptionError as of a batch read.
    """
    earliest, latest = positions.earliest(topic_partitions), positions.latest(topic_partitions)
    topic_partitions &= earliest.keys() & latest.keys()
    for topic_partition in sorted(topic_partitions):
        _check_not_shrunk(topic_partition, taken.get(topic_partition, ()), latest[topic_partition])
    start = offsets.bound(query.starting, topic_partitions, positions, starting=True)
    if goes_on:
        start |= {
            topic_partition: taken[topic_partition][-1][1]
            for topic_partition in topic_partitions
            if taken.get(topic_partition)
        }
    end = offsets.resolved(
        offsets.bound(query.ending, topic_partitions, positions, starting=False), positions
    )
    rule = LossRule(fail=query.connector.fail_on_data_loss)
    found = {
        topic_partition: _span(
            topic_partition,
            start[topic_partition],
            end[topic_partition],
            (earliest[topic_partition], latest[topic_partition]),
            rule,
        )
        for topic_partition in sorted(start.keys() & end.keys() & topic_partitions)
    }
    return {
        topic_partition: span
        for topic_partition, span in found.items()
        if span.start_offset < span.end_offset
    }


def _span(
    topic_partition: TopicPartition, start: int, end: int, there: Interval, rule: LossRule
) -> Span:
    earliest, latest = there
    if end > latest:
        raise ExportError(f"{topic_partition}: offset {end} is beyond its end {latest}")
    first = earliest if start == EARLIEST else start
    if first < (known := min(earliest, end)):
        rule.planned(f"Offsets [{first}, {known}) of {topic_partition} are wanted and gone")
        first = known
    return Span(start_offset=first, end_offset=end, from_earliest=start == EARLIEST)


def _check_not_shrunk(
    topic_partition: TopicPartition, taken: Sequence[Interval], latest: int
) -> None:
    if taken and taken[-1][1] > latest:
        raise ExportError(
            f"{topic_partition}: offsets up to {taken[-1][1]} were exported, and it ends at "
            f"{latest}: it was recreated or lost data; export it to another directory"
        )
