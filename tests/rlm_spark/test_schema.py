"""Spark's Kafka schema and what a user may make of it."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from rlm_spark.source.schema import SchemaError, full_schema, pruned

PLAIN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_the_full_schema_is_sparks() -> None:
    assert full_schema(include_headers=False).fieldNames() == PLAIN
    with_headers = full_schema(include_headers=True)
    assert with_headers.fieldNames() == [*PLAIN, "headers"]
    assert with_headers.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


@pytest.mark.parametrize("include_headers", [True, False])
def test_batches_have_exactly_the_types_that_pyspark_checks_for(include_headers: bool) -> None:
    schema = full_schema(include_headers=include_headers)

    assert pruned(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_any_columns_in_any_order() -> None:
    schema = StructType([StructField("offset", LongType()), StructField("key", BinaryType())])

    assert pruned(schema).names == ["offset", "key"]
    assert pruned(schema).equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (StructType([]), "the schema has no columns; a schema is any of these columns"),
        (StructType().add("valu", "binary"), "there is no column 'valu'; a schema is any"),
        (StructType().add("Value", "binary"), "there is no column 'Value'"),
        (StructType().add("value", "string"), "column 'value' is binary, not string"),
        (StructType([StructField("offset", IntegerType())]), "column 'offset' is bigint, not int"),
        (StructType().add("key", "binary", False), "column 'key' must be nullable"),
        (
            StructType().add("key", "binary").add("key", "binary"),
            "the schema names columns twice: key",
        ),
        (StructType().add("headers", "binary"), "column 'headers' is array<struct<"),
    ],
)
def test_anything_else_is_refused_with_what_is_possible(schema: StructType, wanted: str) -> None:
    with pytest.raises(SchemaError, match=wanted):
        pruned(schema)
