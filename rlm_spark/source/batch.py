"""A batch read as PySpark 4 requires it: planned on the driver, read on executors."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from rlm_spark.plan.options import BatchQuery
from rlm_spark.plan.planning import PlannedRange, plan_batch
from rlm_spark.source.reading import Tiers, planned_batches
from rlm_spark.source.schema import pruned
from rlm_spark.values import ConnectorOptions


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
