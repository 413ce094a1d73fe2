"""The interface of a decoder of record sections, and the choice between the two decoders.

`_native` (C, built where there is a compiler) and `plain` (Python) have the same names, take the
same arguments, return the same buffers byte for byte, and refuse the same bytes with the same
message. The columns of a record have the Arrow types to which PySpark maps Spark's Kafka schema;
a test compares them, because this module does not import pyspark. It must not know batches,
transactions or ranges: see `scan`.
"""

import importlib
import os
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple, Protocol, cast

import pyarrow as pa

from kip405.crc import ByteBuffer

ENVIRONMENT = "KAFKA_RLM_DECODER"

# Columns that a builder can be asked for, as bits.
KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = (1 << bit for bit in range(6))

# A batch ends with the record that brings it to target_bytes; one that would carry it beyond twice
# the target begins the next. With this limit Arrow's 32-bit offsets cannot overflow.
MAX_TARGET_BYTES = (1 << 30) - 1


class Section(NamedTuple):
    """The records of one batch, decompressed: `data` up to `end`, and what its header says.

    `timestamp_ms` is the batch's maximum under LogAppendTime, else what records count from. Only
    records with offsets in [first_offset, until_offset) are taken.
    """

    data: ByteBuffer
    end: int
    record_count: int
    base_offset: int
    last_offset: int
    timestamp_ms: int
    is_log_append_time: bool
    first_offset: int
    until_offset: int


# Nulls, validity bits (None without nulls), 32-bit offsets, bytes.
Binary = tuple[int, ByteBuffer | None, ByteBuffer, ByteBuffer]
# Nulls, validity bits, 32-bit offsets into the headers, headers, their names and values.
Headers = tuple[int, ByteBuffer | None, ByteBuffer, int, Binary, Binary]


class Rows(NamedTuple):
    """Arrow's buffers of the rows; a column that was not requested has no rows."""

    row_count: int
    key: Binary
    value: Binary
    offset: ByteBuffer
    timestamp_us: ByteBuffer
    timestamp_type: ByteBuffer
    headers: Headers


class RowBuilder(Protocol):
    """Appends records to growing Arrow buffers."""

    @property
    def row_count(self) -> int:
        """Rows since the last `finish`."""

    def append(self, section: Section, position: int, index: int) -> tuple[int, int]:
        """Take records from number `index` at byte `position` on; (position, index) of the next.

        The index is the section's record_count when all was taken; less when the builder is full:
        call `finish` and go on from there. ValueError, in one line, for bytes that are not records;
        the builder's rows are lost then.
        """

    def finish(self) -> tuple[object, ...]:
        """The fields of `Rows`; the builder is empty afterwards."""


class Engine(Protocol):
    """The interface of a decoder's module."""

    __name__: str

    def crc32c(self, data: ByteBuffer, start: int, end: int) -> int:
        """CRC-32C of data[start:end]."""

    def RowBuilder(self, columns: int, target_bytes: int, constant_row_bytes: int) -> RowBuilder:
        """A builder of these columns whose batches end at about target_bytes.

        A row of the columns that are added later takes constant_row_bytes.
        """


def is_compiled() -> bool:
    """Whether the compiled decoder is used here."""
    return choose().__name__.endswith("._native")


def choose(name: str | None = None) -> Engine:
    """The compiled decoder where it was built, else Python's; the environment forces one.

    ImportError where `compiled` is forced and was not built; ValueError for another word.
    """
    wanted = name or os.environ.get(ENVIRONMENT) or "any"
    if wanted not in ("any", "compiled", "python"):
        raise ValueError(f"{ENVIRONMENT}={wanted}: allowed are compiled and python")
    if wanted == "python":
        return _load("plain")
    try:
        return _load("_native")
    except ImportError:
        if wanted == "compiled":
            raise
        return _load("plain")


def _load(module: str) -> Engine:
    loaded: ModuleType = importlib.import_module(f"rlm_spark.decode.{module}")
    return cast(Engine, loaded)


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
