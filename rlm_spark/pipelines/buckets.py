"""Splits record batches by day or hour, and names the folder of each.

The record's own timestamp decides, in UTC. Timestamps outside of the years 1 to 9999 go to Hive's
folder for null. This module must not know files.
"""

from collections.abc import Iterator
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

HOUR_US = 3_600_000_000


_DAY_HOURS = 24


_EPOCH_DAY = date(1970, 1, 1).toordinal()


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


SPANS_US = {"day": _DAY_HOURS * HOUR_US, "hour": HOUR_US}
"""The periods by which a target can be partitioned."""


def folder_of(topic: str, bucket: int, partition_by: str) -> str:
    """`topic=T/date=2026-11-21[/hour=09]` of a bucket as `split` numbers it."""
    hours_a_bucket = SPANS_US[partition_by] // HOUR_US
    day, hour = divmod(bucket * hours_a_bucket, _DAY_HOURS)
    is_known = 1 <= day + _EPOCH_DAY <= date.max.toordinal()
    text = date.fromordinal(day + _EPOCH_DAY).isoformat() if is_known else NULL_FOLDER
    folder = f"topic={topic}/date={text}"
    if partition_by == "hour":
        folder += f"/hour={hour:02d}" if is_known else f"/hour={NULL_FOLDER}"
    return folder


def split(batch: pa.RecordBatch, partition_by: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(bucket, rows) of each bucket in the batch, rows in their order; a bucket is the number of
    days or hours since 1970.
    """
    buckets = _buckets(batch.column("timestamp"), SPANS_US[partition_by])
    bounds = pc.min_max(buckets).as_py()
    if bounds["min"] == bounds["max"]:
        if batch.num_rows:
            yield bounds["min"], batch
        return
    order = pc.sort_indices(buckets)  # stable
    runs = pc.run_end_encode(buckets.take(order))
    start = 0
    for bucket, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        # A copy: a small slice that is buffered for long would keep the whole batch in memory.
        yield bucket, batch.take(order.slice(start, end - start))
        start = end


def _buckets(timestamps: pa.Array, span_us: int) -> pa.Array:
    """The quotients rounded down; Arrow's division of integers rounds towards zero."""
    values = timestamps.view(pa.int64())
    quotients = pc.divide(values, span_us)
    is_rounded_up = pc.greater(pc.multiply(quotients, span_us), values)
    return pc.subtract(quotients, is_rounded_up.cast(pa.int64()))
