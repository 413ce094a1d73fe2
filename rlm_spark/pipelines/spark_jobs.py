"""Runs many independent pieces of work as one Spark job, reports progress, and stops on request.

The job is an RDD with one task for each item, which works alike on PySpark 3.5 and 4. No record
crosses into the JVM, and results are small. This module must not know what the work is.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pyspark import Accumulator, InheritableThread
from pyspark.sql import SparkSession

from rlm_spark import clock
from rlm_spark.errors import ConnectorError

_POLL_S = 0.2
_END_WAIT_S = 30.0
# The last line of a Python traceback, and what Spark says where there is none.
_RAISED = re.compile(r"^  File [^\n]*\n(?:(?: {4}|  File )[^\n]*\n)*([\w.]+): ([^\n]*)", re.M)
_LOST = re.compile(r"most recent failure: (Lost task [^\n]+)")


class Result(Protocol):
    """The result of one item, which is sent to the driver."""

    @property
    def rows(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def weight(self) -> int:
        """Its share of the whole, in the unit of the caller's total."""
        ...


Item = TypeVar("Item")
R = TypeVar("R", bound=Result)


class JobStopped(Exception):
    """The job was stopped on request; finished items stay finished."""


class JobFailed(ConnectorError):
    """Spark aborted the job; the message is the worker's own where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The progress of a job, by finished items only."""

    items: int = 0
    rows: int = 0
    size_bytes: int = 0
    weight: int = 0


class _Counters:
    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self.items, self.rows, self.size_bytes, self.weight = (
            context.accumulator(0) for _ in range(4)
        )

    def now(self) -> Done:
        return Done(
            items=self.items.value,
            rows=self.rows.value,
            size_bytes=self.size_bytes.value,
            weight=self.weight.value,
        )


@dataclass(frozen=True, slots=True)
class _Task(Generic[Item, R]):
    work: Callable[[Item], R]
    items: Accumulator[int]
    rows: Accumulator[int]
    size_bytes: Accumulator[int]
    weight: Accumulator[int]

    def __call__(self, given: Iterable[Item]) -> Iterator[R]:
        for item in given:
            result = self.work(item)
            self.items.add(1)
            self.rows.add(result.rows)
            self.size_bytes.add(result.size_bytes)
            self.weight.add(result.weight)
            yield result


def run_job(
    spark: SparkSession,
    work: Callable[[Item], R],
    items: Sequence[Item],
    *,
    name: str,
    show: Callable[[Done], None],
    stop: threading.Event,
) -> list[R]:
    """The results in the order of the items. `work` runs in workers and pickles; what it raises
    fails the task, and Spark tries it again.

    `show` is called a few times a second. JobStopped: `stop` was set; the workers at work are
    ended. JobFailed: a task failed as often as Spark allows. Any other exception in the calling
    thread (Ctrl-C) ends the job too.
    """
    if not items:
        return []
    counters = _Counters(spark)
    group = f"{name}-{clock.now_ms()}"
    outcome: _Outcome[R] = _Outcome()
    task = _Task(work, counters.items, counters.rows, counters.size_bytes, counters.weight)

    def submit() -> None:
        context = spark.sparkContext
        context.setJobGroup(group, name, interruptOnCancel=True)
        try:
            outcome.results = context.parallelize(items, len(items)).mapPartitions(task).collect()
        except Exception as error:  # noqa: BLE001 - carried to the calling thread
            outcome.error = error

    thread = InheritableThread(target=submit, daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not stop.is_set():
            thread.join(_POLL_S)
            show(counters.now())
    finally:
        for _ in range(round(_END_WAIT_S / _POLL_S)):
            if not thread.is_alive():
                break
            spark.sparkContext.cancelJobGroup(group)  # again: the job may not have started yet
            thread.join(_POLL_S)
    if outcome.error is not None and not stop.is_set():
        raise JobFailed(told_by(outcome.error)) from outcome.error
    if outcome.results is None:
        raise JobStopped
    return outcome.results


class _Outcome(Generic[R]):
    results: list[R] | None = None
    error: Exception | None = None


def told_by(error: Exception) -> str:
    """The worker's own message where there is one."""
    text = str(error)
    if raised := _RAISED.findall(text):
        return str(raised[-1][1]).strip() or str(raised[-1][0])
    if lost := _LOST.search(text):
        return lost[1].strip()
    return text.strip().partition("\n")[0]
