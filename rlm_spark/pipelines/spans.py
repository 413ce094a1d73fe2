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
from rlm_spark.values import TopicPartition

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
            f"{text!r} is no place in a topic: give earliest, latest, a date or time like "
            "2026-11-21T09:00, @ and milliseconds, or JSON of offsets"
        ) from error
    moment = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def spans(
    query: BatchQuery,
    places: frozenset[TopicPartition],
    positions: Positions,
    taken: Mapping[TopicPartition, Sequence[Interval]],
    *,
    goes_on: bool,
) -> dict[TopicPartition, Span]:
    """The requested offsets of each of `places`, without partitions that have no new offsets.

    `goes_on`: start at the end of the `taken` offsets. ExportError: offsets beyond the end, a
    partition that ends below its exported offsets. PlannedLossError: requested offsets are gone, by
    the loss rule of the query. OffsetError, OptionError as of a batch read.
    """
    earliest, latest = positions.earliest(places), positions.latest(places)
    places &= earliest.keys() & latest.keys()
    for place in sorted(places):
        _check_not_shrunk(place, taken.get(place, ()), latest[place])
    start = offsets.bound(query.starting, places, positions, starting=True)
    if goes_on:
        start |= {place: taken[place][-1][1] for place in places if taken.get(place)}
    end = offsets.resolved(
        offsets.bound(query.ending, places, positions, starting=False), positions
    )
    rule = LossRule(fail=query.connector.fail_on_data_loss)
    found = {
        place: _span(place, start[place], end[place], (earliest[place], latest[place]), rule)
        for place in sorted(start.keys() & end.keys() & places)
    }
    return {place: span for place, span in found.items() if span.start_offset < span.end_offset}


def _span(place: TopicPartition, start: int, end: int, there: Interval, rule: LossRule) -> Span:
    earliest, latest = there
    if end > latest:
        raise ExportError(f"{place}: offset {end} is beyond its end {latest}")
    first = earliest if start == EARLIEST else start
    if first < (known := min(earliest, end)):
        rule.planned(f"Offsets [{first}, {known}) of {place} are wanted and gone")
        first = known
    return Span(start_offset=first, end_offset=end, from_earliest=start == EARLIEST)


def _check_not_shrunk(place: TopicPartition, taken: Sequence[Interval], latest: int) -> None:
    if taken and taken[-1][1] > latest:
        raise ExportError(
            f"{place}: offsets up to {taken[-1][1]} were exported, and it ends at {latest}: it was "
            "recreated or lost data; export it to another directory"
        )
