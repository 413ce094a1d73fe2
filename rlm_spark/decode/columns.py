"""The columns of a record, in Arrow's types as PySpark maps Spark's own Kafka schema to them.

Free of pyspark: a test holds them equal to `pyspark.sql.pandas.types.to_arrow_schema`.
"""

from collections.abc import Sequence

import pyarrow as pa

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """The schema with these columns in this order; ValueError for one that records do not have."""
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(
            f"no such columns: {', '.join(unknown)}; records have {', '.join(COLUMNS)}"
        )
    return pa.schema([pa.field(name, COLUMNS[name]) for name in names])
