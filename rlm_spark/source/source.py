"""`format("kafka_tiered")`: the data source as PySpark 4 requires it.

Options, plan and reading are in other modules. Instances are pickled to planning processes and
executors. PySpark passes options with lower-case keys and calls by keyword (`schema`).
"""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from rlm_spark.plan.offset_specs import OptionError
from rlm_spark.plan.options import (
    BatchQuery,
    StreamQuery,
    includes_headers,
    parse_batch,
    parse_stream,
)
from rlm_spark.source.driver import read_text, user
from rlm_spark.source.pyspark_readers import TieredReader, TieredStreamReader
from rlm_spark.source.schema import full_schema

FORMAT = "kafka_tiered"


class TieredDataSource(DataSource):
    """Kafka topics with their history, for batch and streaming reads."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
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
        query = parse_stream(self.options, user=user(), read_text=read_text)
        return stream_reader(query, schema)


def _filtering_reader(query: BatchQuery, schema: StructType) -> DataSourceReader:
    """Only with pushdown=true: Spark refuses a reader with pushFilters unless it is enabled."""
    try:
        from rlm_spark.source.pushdown import FilteringReader
    except ImportError as error:  # PySpark 4.0
        raise OptionError("pushdown=true needs PySpark 4.1 or newer") from error
    return FilteringReader(query, schema)


def register(spark: SparkSession) -> None:
    """Make `format("kafka_tiered")` known to this session. PySpark 4.0 or newer."""
    spark.dataSource.register(TieredDataSource)


def stream_reader(query: StreamQuery, schema: StructType) -> TieredStreamReader:
    """The reader with all features of the installed PySpark."""
    try:
        from rlm_spark.source.available_now import LimitedStreamReader
    except ImportError:  # PySpark before 4.2
        return TieredStreamReader(query, schema)
    return LimitedStreamReader(query, schema)
