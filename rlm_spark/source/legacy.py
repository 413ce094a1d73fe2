"""Builds a batch DataFrame without a Python data source, for Spark 3.5 and newer.

The query is planned at once. A DataFrame with one number for each task selects the range that the
task reads in `mapInArrow`, with the reader and decoder of the data source.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

from rlm_spark.plan.options import includes_headers, parse_batch
from rlm_spark.plan.planning import PlannedRange, plan_batch
from rlm_spark.source.driver import read_text, user
from rlm_spark.source.reading import Tiers, planned_batches
from rlm_spark.source.schema import SchemaError, full_schema, pruned
from tiered_reads.values import ConnectorOptions


def read(
    spark: SparkSession,
    *,
    schema: StructType | str | None,
    options: Mapping[str, str],
    tiers: Tiers | None = None,
) -> DataFrame:
    """The DataFrame that `options` describe; see `rlm_spark.read`."""
    tiers = tiers or Tiers()
    query = parse_batch(options, user=user(), read_text=read_text)
    columns = _columns(schema, options)
    wanted = pruned(columns)
    with tiers.open_positions(query.connector) as positions:
        plan = plan_batch(query, positions)
    tasks = spark.range(0, len(plan), 1, max(len(plan), 1))
    return tasks.mapInArrow(_reader(query.connector, plan, wanted, tiers), columns)


def _columns(schema: StructType | str | None, options: Mapping[str, str]) -> StructType:
    if schema is None:
        return full_schema(include_headers=includes_headers(options))
    parsed = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise SchemaError(f"the schema names no columns: {schema}")
    return parsed


def _reader(
    connector: ConnectorOptions, plan: Sequence[PlannedRange], schema: pa.Schema, tiers: Tiers
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read_planned(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from planned_batches(connector, plan[number], schema, tiers)

    return read_planned
