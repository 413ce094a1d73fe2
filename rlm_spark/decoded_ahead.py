"""Decodes the pieces of a range into Arrow batches ahead of their consumer, in a thread.

Spark's worker blocks while the JVM takes a batch, and an export while it compresses; the next batch
is decoded meanwhile. `prepare` sets up the worker process once, because Spark reuses it for many
tasks. This module must not know where the pieces come from.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator

import pyarrow as pa

from kip405.process import KEPT_BY_A_TASK_BYTES, keep_freed_memory
from rlm_spark.decode import record_batches
from tiered_reads.ahead import Ahead
from tiered_reads.stopping import Stop
from tiered_reads.values import Fetched, OffsetRange

_IS_REUSED = "SPARK_REUSE_WORKER"
_is_done = False


def prepare() -> None:
    """Sets up a worker process that runs many tasks, once; other processes are left alone.

    A reused worker collects garbage after each task before it takes the next one
    (pyspark/daemon.py). With pandas, pyarrow and gRPC loaded this took a sixth of its time, so the
    collector ignores what is loaded by now. As much time went into memory of messages and batches,
    which the C library kept returning to the system; it is kept instead (kip405/process.py).
    """
    global _is_done
    if _is_done or not os.environ.get(_IS_REUSED):
        return
    _is_done = True
    gc.freeze()
    keep_freed_memory(KEPT_BY_A_TASK_BYTES)


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
