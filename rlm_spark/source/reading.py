"""Runs one task: reads a planned range as Arrow record batches, by late binding and the loss rule.

It runs on executors for batch queries, streams and `rlm_spark.read`. It must not know Spark.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa

from rlm_spark.decoded_ahead import decoded_ahead
from rlm_spark.errors import LossRule
from rlm_spark.plan.offsets import Positions
from rlm_spark.plan.planning import PlannedRange
from rlm_spark.plan.positions import open_positions
from tiered_reads.range_reader import read_range
from tiered_reads.stopping import Stop
from tiered_reads.values import ConnectorOptions, DataLoss, Fetched, OffsetRange

_log: Final = logging.getLogger(__name__)


class RangeReader(Protocol):
    """tiered_reads.range_reader.read_range."""

    def __call__(
        self,
        options: ConnectorOptions,
        wanted: OffsetRange,
        on_loss: Callable[[DataLoss], None],
        *,
        stopped_by: Stop,
    ) -> Iterator[Fetched]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The functions through which a task reads the tiers; tests pass fakes."""

    read_range: RangeReader = read_range
    open_positions: Callable[[ConnectorOptions], Positions] = open_positions


def planned_batches(
    options: ConnectorOptions, planned: PlannedRange, schema: pa.Schema, tiers: Tiers
) -> Iterator[pa.RecordBatch]:
    """The records of `planned` with the columns of `schema`, in offset order, as 1-4 MB batches.

    Errors: DataLossError by failOnDataLoss, DecodeError, the clients' errors.
    """
    rule = LossRule(fail=options.fail_on_data_loss)
    if not planned.to_latest:
        yield from _range(options, planned, schema, tiers, rule)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="rlm-latest") as aside:
        # The end is asked for while the planned range is read, so it costs no time.
        end = aside.submit(_end_now, options, planned, tiers)
        is_all_gone = yield from _range(options, planned, schema, tiers, rule)
        grown = replace(
            planned,
            wanted=OffsetRange(
                topic_partition=planned.topic_partition,
                start_offset=planned.wanted.end_offset,
                end_offset=end.result(),
            ),
            from_earliest=planned.from_earliest and is_all_gone,
        )
    yield from _range(options, grown, schema, tiers, rule)


def _end_now(options: ConnectorOptions, planned: PlannedRange, tiers: Tiers) -> int:
    """The latest offset, capped; the planned end where the partition is gone or was cut."""
    with tiers.open_positions(options) as positions:
        latest = positions.latest([planned.topic_partition]).get(planned.topic_partition, 0)
    if planned.before_offset is not None:
        latest = min(latest, planned.before_offset)
    return max(latest, planned.wanted.end_offset)


def _range(
    options: ConnectorOptions,
    planned: PlannedRange,
    schema: pa.Schema,
    tiers: Tiers,
    rule: LossRule,
) -> Generator[pa.RecordBatch, None, bool]:
    """The range's batches; returns whether all of it lies before the earliest offset by now."""
    wanted = planned.wanted
    if wanted.size <= 0:
        return True
    gone_before = wanted.start_offset

    def on_loss(loss: DataLoss) -> None:
        nonlocal gone_before
        is_at_start = planned.from_earliest and loss.start_offset <= gone_before
        if is_at_start and loss.resumes_at is not None:
            gone_before = max(gone_before, loss.end_offset)
            _log.info(
                "event=earliest_moved partition=%s to=%d", wanted.topic_partition, gone_before
            )
        else:
            rule.met(loss)

    yield from decoded_ahead(
        lambda stop: tiers.read_range(options, wanted, on_loss, stopped_by=stop),
        wanted,
        schema,
        read_committed=options.read_committed,
    )
    return gone_before >= wanted.end_offset
