"""The columns of a DataFrame: all of Spark's Kafka schema, or those that the user names.

Spark's own source refuses a user's schema. This one reads only the columns of `.schema(...)`, in
its order, because every byte that crosses into the JVM costs time.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rlm_spark.decode import arrow_schema
from rlm_spark.plan.offset_specs import OptionError

HEADERS: Final = "headers"

_COLUMN_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


class SchemaError(OptionError):
    """A user's schema with columns that records do not have, or not with these types."""


def full_schema(*, include_headers: bool) -> StructType:
    """Spark's Kafka schema."""
    return StructType(
        [
            StructField(name, column_type)
            for name, column_type in _COLUMN_TYPES.items()
            if include_headers or name != HEADERS
        ]
    )


def pruned(schema: StructType) -> pa.Schema:
    """The Arrow schema of a DataFrame's `schema`, else SchemaError that says what is possible."""
    if not schema.fields:
        raise SchemaError(f"the schema has no columns; {_possible()}")
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the schema names columns twice: {', '.join(twice)}")
    for field in schema.fields:
        _check(field)
    return arrow_schema(names)


def _check(field: StructField) -> None:
    wanted = _COLUMN_TYPES.get(field.name)
    if wanted is None:
        raise SchemaError(f"there is no column '{field.name}'; {_possible()}")
    if field.dataType != wanted:
        raise SchemaError(
            f"column '{field.name}' is {wanted.simpleString()}, not "
            f"{field.dataType.simpleString()}; {_possible()}"
        )
    if not field.nullable:
        raise SchemaError(f"column '{field.name}' must be nullable, as in Spark's Kafka schema")


def _possible() -> str:
    columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _COLUMN_TYPES.items())
    return f"a schema is any of these columns in any order: {columns}"
