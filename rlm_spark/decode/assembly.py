"""Makes Arrow record batches of a schema from the buffers of a builder, without a copy.

The columns of topic and partition are made once, and sliced. This module must not know where the
buffers come from.
"""

from collections.abc import Callable

import pyarrow as pa

from kip405.crc import ByteBuffer
from rlm_spark.decode.engine import (
    COLUMNS,
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Binary,
    Headers,
    Rows,
)
from tiered_reads.values import TopicPartition

_BITS = {
    "key": KEY,
    "value": VALUE,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": TIMESTAMP_TYPE,
    "headers": HEADERS,
}


class Assembly:
    """Makes record batches of one schema for one partition."""

    def __init__(self, schema: pa.Schema, topic_partition: TopicPartition) -> None:
        self._schema = schema
        self.columns = 0
        for field in schema:
            if COLUMNS.get(field.name) != field.type:
                raise ValueError(f"column {field.name} of type {field.type} is none of a record's")
            self.columns |= _BITS.get(field.name, 0)
        self._constants = {
            "topic": _Constant(pa.scalar(topic_partition.topic, pa.string())),
            "partition": _Constant(pa.scalar(topic_partition.partition, pa.int32())),
        }

        sizes = {"topic": 4 + len(topic_partition.topic.encode()), "partition": 4}
        self.constant_row_bytes = sum(sizes.get(name, 0) for name in schema.names)

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """The batch with exactly the schema's columns; it keeps the buffers alive."""
        if not len(self._schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows.row_count, pa.struct([])))
        arrays = [self._column(field.name, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, rows: Rows) -> pa.Array:
        if name in self._constants:
            return self._constants[name].array(rows.row_count)
        return _MAKERS[name](rows)


class _Constant:
    """A column with the same value in every row."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._longest = pa.repeat(value, 0)

    def array(self, count: int) -> pa.Array:
        if len(self._longest) < count:
            self._longest = pa.repeat(self._value, max(count, 2 * len(self._longest)))
        return self._longest.slice(0, count)


def _fixed(name: str, buffer: ByteBuffer, count: int) -> pa.Array:
    return pa.Array.from_buffers(COLUMNS[name], count, [None, pa.py_buffer(buffer)], 0)


def _bytes(column: Binary, count: int, kind: pa.DataType) -> pa.Array:
    nulls, validity, ends, data = column
    return pa.Array.from_buffers(
        kind, count, [_optional(validity), *map(pa.py_buffer, (ends, data))], nulls
    )


def _lists(column: Headers, count: int) -> pa.Array:
    nulls, validity, ends, headers, names, values = column
    kind = COLUMNS["headers"]
    fields = [_bytes(names, headers, pa.string()), _bytes(values, headers, pa.binary())]
    structs = pa.Array.from_buffers(kind.value_type, headers, [None], 0, children=fields)
    return pa.Array.from_buffers(
        kind, count, [_optional(validity), pa.py_buffer(ends)], nulls, children=[structs]
    )


def _optional(buffer: ByteBuffer | None) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(buffer)


_MAKERS: dict[str, Callable[[Rows], pa.Array]] = {
    "key": lambda rows: _bytes(rows.key, rows.row_count, pa.binary()),
    "value": lambda rows: _bytes(rows.value, rows.row_count, pa.binary()),
    "offset": lambda rows: _fixed("offset", rows.offset, rows.row_count),
    "timestamp": lambda rows: _fixed("timestamp", rows.timestamp_us, rows.row_count),
    "timestampType": lambda rows: _fixed("timestampType", rows.timestamp_type, rows.row_count),
    "headers": lambda rows: _lists(rows.headers, rows.row_count),
}
