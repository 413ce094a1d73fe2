"""History of tiered topics as Spark DataFrames: `register(spark)` and `read(spark, **options)`.

Importing this package imports neither pyspark nor any client, so that executors and commands pay
only for what they use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["read", "register"]


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("kafka_tiered")` and `readStream` work in this session.

    PySpark 4.0 or newer, else SparkTooOldError; with 3.5 use `read`.
    """
    if not hasattr(spark, "dataSource"):
        from rlm_spark.errors import SparkTooOldError

        raise SparkTooOldError(spark.version)
    from rlm_spark.errors import needing_spark

    with needing_spark():
        from rlm_spark.source.source import register as register_source

    register_source(spark)


def read(
    spark: "SparkSession",
    *,
    schema: "StructType | str | None" = None,
    **options: str | int | bool,
) -> "DataFrame":
    """A batch DataFrame as `format("kafka_tiered")` gives it, on PySpark 3.5 and newer.

    `options` are those of the data source, `**{"rlm.endpoints": "..."}`; `schema` names the
    columns. The topics and offsets are looked up now; needs pandas, as PySpark's mapInArrow does.
    Errors: OptionError and OffsetError at once, the rest when the DataFrame is used.
    """
    from rlm_spark.errors import needing_spark

    with needing_spark():
        from rlm_spark.source.legacy import read as read_planned

    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    return read_planned(spark, schema=schema, options=texts)
