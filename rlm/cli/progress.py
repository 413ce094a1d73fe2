"""Progress of long commands on standard error: share done, rate and time left."""

import math
import sys
from collections.abc import Iterable
from typing import Protocol, Self

import click

from rlm.cli.output import human_rate, human_size
from rlm.clock import SystemClock
from rlm.plans.problems import human_duration

_PROGRESS_MS = 1_000
_PROGRESS_LINE_MS = 10_000


class Progress(Protocol):
    """What the progress rows of several calls have; bytes are 0 where they are not counted."""

    segments: int
    segments_total: int
    size_bytes: int
    size_total_bytes: int


class ShownProgress:
    """Progress on standard error: one line that changes on a terminal, a line now and then else."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began_ms = self._last_ms = self._clock.monotonic_ms()
        self._is_terminal = sys.stderr.isatty()
        self._pause_ms = _PROGRESS_MS if self._is_terminal else _PROGRESS_LINE_MS

    def update(self, rows: Iterable[Progress], remark: str = "") -> None:
        """Show them, and a remark, if it is time to."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_ms < self._pause_ms:
            return
        self._last_ms = now_ms
        text = progress_line(tuple(rows), now_ms - self._began_ms)
        text += f"; {remark}" if remark else ""
        end = "\x1b[K\r" if self._is_terminal else "\n"
        click.echo(text + end, err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Clears the line."""
        if self._is_terminal:
            click.echo("\x1b[K", err=True, nl=False)


def progress_line(rows: tuple[Progress, ...], duration_ms: int) -> str:
    """Share done, rate and time left, of all services together."""
    done, total = sum(one.segments for one in rows), sum(one.segments_total for one in rows)
    size = sum(one.size_bytes for one in rows)
    size_total = sum(one.size_total_bytes for one in rows)
    share = _share(size, size_total) if size_total else _share(done, total)
    parts = [f"{math.floor(share * 100)} %", f"{done} of {total} segments"]
    if size_total:
        parts.append(f"{human_size(size)} of {human_size(size_total)}")
        parts.append(human_rate(size * 1000 // max(duration_ms, 1)))
    if 0 < share < 1:
        parts.append(f"{human_duration(round(duration_ms * (1 - share) / share))} left")
    return ", ".join(parts)


def _share(done: int, total: int) -> float:
    return min(done / total, 1.0) if total else 0.0
