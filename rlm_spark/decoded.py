"""The records of a range as Arrow batches, decoded by a thread ahead of whoever takes them.

Spark's worker blocks while the JVM takes a batch, an export while it compresses: what comes next is
decoded meanwhile. Must not know where the pieces come from.
"""

from collections.abc import Callable, Generator, Iterator

import pyarrow as pa

from rlm_spark.ahead import Ahead
from rlm_spark.decode import record_batches
from rlm_spark.stopping import Stop
from rlm_spark.values import Fetched, OffsetRange
from rlm_spark.worker import prepare

MOST_BATCHES = 2
"""Decoded and waiting, at most."""


def decoded_ahead(
    read: Callable[[Stop], Iterator[Fetched]],
    wanted: OffsetRange,
    schema: pa.Schema,
    *,
    read_committed: bool,
) -> Generator[pa.RecordBatch, None, None]:
    """As decode.record_batches. `read` is called, and what it gives is asked for, in the thread;
    the stop it is handed ends it (read_range's `stopped_by`). What either raises is raised here.
    Closing the generator ends the thread.
    """
    prepare()
    stop = Stop()

    def decoded() -> Generator[pa.RecordBatch, None, None]:
        pieces = read(stop)
        try:
            yield from record_batches(pieces, wanted, schema, read_committed=read_committed)
        finally:
            if isinstance(pieces, Generator):
                pieces.close()  # ends its thread where the caller wanted no more

    with Ahead(decoded, stop, _size_of, most_items=MOST_BATCHES) as batches:
        yield from batches


def _size_of(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)
