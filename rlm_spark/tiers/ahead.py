"""Produces items ahead of their consumer: a thread fills a bounded queue.

Fetched pieces and decoded Arrow batches are produced so. Spark's worker blocks while the JVM takes
a batch, and an export while it compresses; the next batch is decoded meanwhile. An exception of the
thread is raised in the consumer. Leaving the block stops the thread, even while it waits, and joins
it. `prepare` sets up the worker process once, because Spark reuses it for many tasks. This module
must not know where the pieces come from.
"""

import gc
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from types import TracebackType
from typing import Generic, TypeVar

import pyarrow as pa

from kip405.process import KEPT_BY_A_TASK_BYTES, keep_freed_memory
from rlm_spark.decode import record_batches
from rlm_spark.errors import ConnectorError
from rlm_spark.stopping import Stop, Stopped
from rlm_spark.values import Fetched, OffsetRange

MOST_ITEMS = 4
MOST_BYTES = 32 << 20
"""What one task holds beyond what it decodes; one larger item alone is let through."""

T = TypeVar("T")


class Ahead(Generic[T]):
    """`with Ahead(produce, stop, size_of) as items: for item in items: ...`"""

    def __init__(
        self,
        produce: Callable[[], Generator[T, None, None]],
        stop: Stop,
        size_of: Callable[[T], int],
        *,
        most_items: int = MOST_ITEMS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._produce = produce
        self._stop = stop
        self._size_of = size_of
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._condition = threading.Condition()
        self._items: deque[T] = deque()
        self._bytes = 0
        self._is_done = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rlm-fetch-ahead", daemon=True)

    def __enter__(self) -> Iterator[T]:
        self._thread.start()
        return self._taken()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._items.clear()

    def _taken(self) -> Iterator[T]:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._items or self._is_done)
                if not self._items:
                    break
                item = self._items.popleft()
                self._bytes -= self._size_of(item)
                self._condition.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with closing(self._produce()) as items:
                for item in items:
                    self._put(item)
        except Stopped as stopped:
            if not self._stop.is_set:  # else the end of what was fetched would pass for the end
                self._error = ConnectorError("what was fetched from was closed meanwhile")
                self._error.__cause__ = stopped
        except BaseException as error:  # noqa: BLE001 - raised again where the consumer is
            self._error = error
        finally:
            with self._condition:
                self._is_done = True
                self._condition.notify_all()

    def _put(self, item: T) -> None:
        size = self._size_of(item)
        with self._stop.running(self._wake), self._condition:
            self._condition.wait_for(lambda: self._stop.is_set or self._fits(size))
            self._stop.check()
            self._items.append(item)
            self._bytes += size
            self._condition.notify_all()

    def _fits(self, size: int) -> bool:
        if not self._items:
            return True
        return len(self._items) < self._most_items and self._bytes + size <= self._most_bytes

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


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
