"""`format("kafka_tiered")`: the data source as PySpark 4 wants it.

Thin: options, plan and reading are elsewhere. Instances are pickled to planning processes and
executors. PySpark hands options over with lower-case keys and calls by keyword (`schema`).
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from rlm_spark.offset_specs import OptionError
from rlm_spark.options import BatchQuery, includes_headers, parse_batch, parse_stream
from rlm_spark.planning import PlannedRange, plan_batch
from rlm_spark.reading import Tiers, planned_batches
from rlm_spark.schema import full_schema, pruned
from rlm_spark.user import read_text, user
from rlm_spark.values import ConnectorOptions

FORMAT = "kafka_tiered"


class TieredDataSource(DataSource):
    """Kafka topics with their history, for batch and streaming reads."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return FORMAT

    def schema(self) -> StructType:
        """Spark's Kafka schema; asked for only where the user gives none."""
        return full_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns of `schema`."""
        query = parse_batch(self.options, user=user(), read_text=read_text)
        if query.has_pushdown:
            return _filtering_reader(query, schema)
        return TieredReader(query, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of the columns of `schema`."""
        from rlm_spark.stream import stream_reader

        query = parse_stream(self.options, user=user(), read_text=read_text)
        return stream_reader(query, schema)


def _filtering_reader(query: BatchQuery, schema: StructType) -> DataSourceReader:
    """Only where asked for: Spark refuses a reader with pushFilters while its switch is off."""
    try:
        from rlm_spark.pushdown import FilteringReader
    except ImportError as error:  # PySpark 4.0
        raise OptionError("pushdown=true needs PySpark 4.1 or newer") from error
    return FilteringReader(query, schema)


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


def register(spark: SparkSession) -> None:
    """Make `format("kafka_tiered")` known to this session. PySpark 4.0 or newer."""
    spark.dataSource.register(TieredDataSource)
