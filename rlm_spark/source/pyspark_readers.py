"""The readers that PySpark 4 calls, for a batch and for a stream: partitions as ranges.

The driver plans, executors read. Offsets of a stream are Spark's JSON. PySpark 4.0 and 4.1 call
`latestOffset()`, so each trigger takes all available records. Admission control and
Trigger.AvailableNow need 4.2 and are a subclass (`available_now`). One instance is on the driver
while the query runs; executors get copies, which only read.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rlm_spark.plan.offset_specs import checkpoint_document, offsets_from_checkpoint
from rlm_spark.plan.options import BatchQuery, StreamQuery
from rlm_spark.plan.planning import PlannedRange, plan_batch
from rlm_spark.source.micro_batches import MicroBatches, Waiting
from rlm_spark.source.reading import Tiers, planned_batches
from rlm_spark.source.schema import pruned
from tiered_reads import clock
from tiered_reads.values import ConnectorOptions

_log: Final = logging.getLogger(__name__)

Document = dict[str, dict[str, int]]
_WALL_CLOCK: Final = Waiting(now_ms=clock.now_ms, sleep_ms=clock.sleep_ms)


class TieredReader(DataSourceReader):
    """One batch read: planned on the driver, read on executors."""

    def __init__(self, query: BatchQuery, schema: StructType, tiers: Tiers | None = None) -> None:
        self._query = query
        self._schema = pruned(schema)
        self._tiers = tiers or Tiers()

    def partitions(self) -> list[InputPartition]:
        """The ranges there are now; called once for each plan."""
        return [InputPartition(planned) for planned in self._plan()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range."""
        return partition_batches(self._query.connector, partition, self._schema, self._tiers)

    def _plan(self) -> list[PlannedRange]:
        with self._tiers.open_positions(self._query.connector) as positions:
            return plan_batch(self._query, positions)


def partition_batches(
    options: ConnectorOptions, partition: InputPartition, schema: pa.Schema, tiers: Tiers
) -> Iterator[pa.RecordBatch]:
    """The records of one task; none for the partition that PySpark makes of an empty plan."""
    planned = partition.value
    if not isinstance(planned, PlannedRange):
        return iter(())
    return planned_batches(options, planned, schema, tiers)


class TieredStreamReader(DataSourceStreamReader):
    """One streaming read. Offsets are those to be read next, `{"t":{"0":5}}`."""

    def __init__(
        self,
        query: StreamQuery,
        schema: StructType,
        tiers: Tiers | None = None,
        waiting: Waiting = _WALL_CLOCK,
    ) -> None:
        self._query = query
        self._schema = pruned(schema)
        self._tiers = tiers or Tiers()
        self._waiting = waiting
        self._held = ExitStack()
        self._opened: MicroBatches | None = None

    def initialOffset(self) -> Document:
        """Where the query starts if it has no checkpoint."""
        return checkpoint_document(self._batches().initial())

    def latestOffset(
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> Document:
        """Where the next micro-batch ends; `start` where there is nothing to do yet."""
        if start is None:
            return self._all_there_is()
        known = offsets_from_checkpoint(start)
        max_rows, min_rows = getattr(limit, "max_rows", None), getattr(limit, "min_rows", None)
        if max_rows is not None:
            min_rows = self._query.min_offsets_per_trigger  # Spark passes one limit, not two
        end = self._batches().end(known, max_offsets=max_rows, min_offsets=min_rows)
        return checkpoint_document(end)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The ranges between two offsets, also of a micro-batch that a restart repeats."""
        plan = self._batches().plan(offsets_from_checkpoint(start), offsets_from_checkpoint(end))
        return [InputPartition(planned) for planned in plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range, on an executor."""
        return partition_batches(self._query.connector, partition, self._schema, self._tiers)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Logs the lag. All state is in Spark's checkpoint."""
        behind = self._batches().behind(offsets_from_checkpoint(end))
        _log.debug("event=micro_batch_done offsets_behind_latest_min_max_mean=%s", behind)

    def stop(self) -> None:
        """Close the driver's connections."""
        self._opened = None
        self._held.close()

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the query, not the driver's connections."""
        return {**self.__dict__, "_held": ExitStack(), "_opened": None}

    def _batches(self) -> MicroBatches:
        if self._opened is None:
            positions = self._held.enter_context(self._tiers.open_positions(self._query.connector))
            self._opened = MicroBatches(self._query, positions, self._waiting)
        return self._opened

    def _all_there_is(self) -> Document:
        query = self._query
        if query.max_offsets_per_trigger or query.min_offsets_per_trigger:
            _log.warning("event=trigger_limits_ignored reason=they need PySpark 4.2")
        return checkpoint_document(self._batches().end(None, max_offsets=None, min_offsets=None))
