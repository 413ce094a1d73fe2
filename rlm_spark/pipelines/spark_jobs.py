"""Runs many independent pieces of work as one Spark job, shows progress, and stops on request.

The job is an RDD with one task for each item, which works alike on PySpark 3.5 and 4. No record
crosses into the JVM, and results are small. On a terminal the progress is one line that is updated;
elsewhere a line is printed every few seconds. The first SIGINT or SIGTERM requests a stop, a second
one ends the process. This module must not know what the work is.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Generic, Protocol, TextIO, TypeVar

from pyspark import Accumulator, InheritableThread
from pyspark.sql import SparkSession

from tiered_reads import clock
from tiered_reads.errors import ConnectorError

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
        raise JobFailed(message_of(outcome.error)) from outcome.error
    if outcome.results is None:
        raise JobStopped
    return outcome.results


class _Outcome(Generic[R]):
    results: list[R] | None = None
    error: Exception | None = None


def message_of(error: Exception) -> str:
    """The worker's own message where there is one."""
    text = str(error)
    if raised := _RAISED.findall(text):
        return str(raised[-1][1]).strip() or str(raised[-1][0])
    if lost := _LOST.search(text):
        return lost[1].strip()
    return text.strip().partition("\n")[0]


_LIVE_EVERY_MS = 200
_LINE_EVERY_MS = 5_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB = 1024


class Shown:
    """`total_weight`: what `Done.weight` grows to; `unit`: the word for items."""

    def __init__(
        self,
        to: TextIO,
        *,
        name: str,
        unit: str,
        total_items: int,
        total_weight: int,
        monotonic_ms: Callable[[], int] = clock.monotonic_ms,
    ) -> None:
        self._to = to
        self._is_live = to.isatty()
        self._name = name
        self._unit = unit
        self._total_items = total_items
        self._total_weight = total_weight
        self._monotonic_ms = monotonic_ms
        self._begun_ms = self._shown_ms = monotonic_ms()
        self._is_open = False

    def show(self, now: Done) -> None:
        """Show the progress if enough time has passed."""
        every_ms = _LIVE_EVERY_MS if self._is_live else _LINE_EVERY_MS
        at_ms = self._monotonic_ms()
        if at_ms - self._shown_ms >= every_ms:
            self._shown_ms = at_ms
            self._write(self.line(now))

    def end(self, now: Done) -> None:
        """The last line."""
        self._write(self.line(now))
        if self._is_open:
            self._to.write("\n")
            self._is_open = False
        self._to.flush()

    def line(self, now: Done) -> str:
        """`export: 12 of 40 chunks, 3.2M rows, 410.0 MiB, 85.0 MiB/s, 1m20s left`."""
        elapsed_ms = max(self._monotonic_ms() - self._begun_ms, 1)
        speed = now.size_bytes * 1000 / elapsed_ms
        parts = [
            f"{self._name}: {now.items} of {self._total_items} {self._unit}",
            f"{_count(now.rows)} rows",
            human_bytes(now.size_bytes),
            f"{human_bytes(speed)}/s",
        ]
        if 0 < now.weight < self._total_weight:
            left_ms = elapsed_ms * (self._total_weight - now.weight) / now.weight
            parts.append(f"{human_seconds(left_ms / 1000)} left")
        return ", ".join(parts)

    def _write(self, line: str) -> None:
        if self._is_live:
            width = os.get_terminal_size(self._to.fileno()).columns
            self._to.write(f"\r\x1b[K{line[: max(width - 1, 20)]}")
            self._is_open = True
        else:
            self._to.write(f"{line}\n")
        self._to.flush()


def human_bytes(size: float) -> str:
    """`1.5 GiB`."""
    for unit in _UNITS[:-1]:
        if size < _KIB:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIB
    return f"{size:.1f} {_UNITS[-1]}"


def human_seconds(seconds: float) -> str:
    """`45s`, `12m05s`, `3h07m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _count(number: int) -> str:
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / min(size, 1_000 if letter == 'k' else size):.1f}{letter}"
    return str(number)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BASE_STATUS = 128


class Interrupts:
    """`stop` is set by the first signal; `status` is what the process then ends with."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._number = 0

    @property
    def status(self) -> int:
        return _BASE_STATUS + self._number

    def _came(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self.stop.set()
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Call in the main thread after Spark has started, which installs its own handler."""
    found = Interrupts()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, found._came)
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
