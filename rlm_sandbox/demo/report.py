"""Shows the demo: a status line while a step runs, one line when it ends, a table at the end.

On a terminal the status line changes in place; elsewhere it becomes a plain line every few seconds.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlm.clock import Clock

_PLAIN_EVERY_MS = 5_000
_PLAIN_WIDTH = 160


def mib(size_bytes: int) -> str:
    """Bytes in words."""
    return f"{size_bytes / (1 << 20):.0f} MiB"


def new_console() -> Console:
    """Standard output; wide where it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


@dataclass(slots=True)
class Step:
    """One step while it runs; `result` is its text in the summary."""

    title: str
    report: "Report"
    started_ms: int
    result: str = ""
    took_ms: int = 0
    failed: bool = False

    def show(self, progress: str) -> None:
        """Show the progress."""
        self.report.progress(f"{self.title}: {progress}")


class Report:
    """Writes to one console; knows every step that ran and how long it took."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console = console
        self._clock = clock
        self._steps: list[Step] = []
        self._started_ms = clock.monotonic_ms()
        self._last_plain_ms = self._started_ms
        self._status = console.status("") if console.is_terminal else None

    def say(self, text: str = "") -> None:
        """Print plain lines."""
        self.console.print(escape(text), soft_wrap=True)

    def progress(self, text: str) -> None:
        """Replace the status line, or print one now and then where there is no terminal."""
        if self._status is not None:
            self._status.update(escape(text))
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_plain_ms >= _PLAIN_EVERY_MS:
            self._last_plain_ms = now_ms
            self.say(f"  ... {text}")

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Time a step and print its line, whether it succeeds or not."""
        step = Step(title=title, report=self, started_ms=self._clock.monotonic_ms())
        self._steps.append(step)
        self._last_plain_ms = step.started_ms
        if self._status is not None:
            self._status.update(escape(title))
            self._status.start()
        try:
            yield step
        except BaseException:
            step.failed = True
            raise
        finally:
            step.took_ms = self._clock.monotonic_ms() - step.started_ms
            if self._status is not None:
                self._status.stop()
            result = "[red]failed[/red]" if step.failed else "[green]ok[/green]"
            line = f"{result} {step.took_ms / 1000:6.1f} s  [bold]{escape(title)}[/bold]"
            result = f": {escape(step.result)}" if step.result else ""
            self.console.print(line + result, soft_wrap=True)

    def listing(self, title: str, lines: Sequence[str]) -> None:
        """An indented block under a title."""
        self.say(f"  {title}")
        for line in lines:
            self.say(f"    {line}")

    def summary(self, *, verdict: str, good: bool) -> None:
        """The table of all steps and the last word."""
        table = Table("step", "result", title="kafka-rlm demo")
        table.add_column("seconds", justify="right")
        for step in self._steps:
            result = f"FAILED {step.result}".strip() if step.failed else step.result
            table.add_row(escape(step.title), escape(result), f"{step.took_ms / 1000:.1f}")
        total_ms = self._clock.monotonic_ms() - self._started_ms
        table.add_section()
        table.add_row("all", "", f"{total_ms / 1000:.1f}")
        self.console.print(table)
        colour = "green" if good else "red"
        self.console.print(f"[bold {colour}]{escape(verdict)}[/bold {colour}]", soft_wrap=True)


class DemoError(Exception):
    """A step failed; one or a few lines for the user."""
