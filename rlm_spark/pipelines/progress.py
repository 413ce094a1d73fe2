"""Shows the progress of a pipeline, and turns SIGINT and SIGTERM into a request to stop it.

On a terminal one line is updated; elsewhere a line is printed every few seconds. A second signal
ends the process. This module must not know what is counted.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from rlm_spark import clock
from rlm_spark.pipelines.spark_jobs import Done

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
