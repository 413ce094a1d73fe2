"""`record_batches`: decodes the pieces of a range into Arrow record batches.

It connects `scan` (which records), a decoder (their buffers) and `assembly` (Arrow).
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from rlm_spark.decode.assembly import Assembly
from rlm_spark.decode.engine import RowBuilder, Rows, Section, choose
from rlm_spark.decode.scan import Scan
from rlm_spark.values import Fetched, OffsetRange

# Measured: smaller batches are slower, larger ones win nothing.
TARGET_BYTES = 2 << 20


def record_batches(
    pieces: Iterable[Fetched],
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    read_committed: bool,
    target_bytes: int = TARGET_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The user's records of the range in order, as batches of exactly `schema`: any columns of
    COLUMNS in any order.

    Batches have about target_bytes, at most twice that or one record. No rows, no batch. Pieces
    are asked for only until the range is covered; offsets they repeat are given once. DecodeError
    for stored bytes that are no records; ValueError for a schema that records do not have.
    """
    engine = choose()
    assembly = Assembly(schema, wanted.place)
    builder = engine.RowBuilder(assembly.columns, target_bytes, assembly.constant_row_bytes)
    scan = Scan(engine, wanted, read_committed=read_committed)
    for section, start in scan.sections(pieces):
        for rows in _full(scan, builder, section, start):
            yield assembly.batch(rows)
    if builder.row_count:
        yield assembly.batch(Rows._make(builder.finish()))


def _full(scan: Scan, builder: RowBuilder, section: Section, position: int) -> Iterator[Rows]:
    """Take the whole section; the builder's rows whenever it is full."""
    index = 0
    while True:
        try:
            position, index = builder.append(section, position, index)
        except ValueError as error:
            raise scan.error(section.base_offset, str(error)) from error
        if index == section.record_count:
            return
        yield Rows._make(builder.finish())
