"""Asks for the current problems periodically and logs those that appeared and those that ended.

Everything that shows problems reads them here. Must not know what a problem is
(rlm/plans/problems.py) nor where it is shown.
"""

import logging
from collections.abc import Callable, Iterable

import structlog

from rlm.clock import Clock
from rlm.plans.problems import Finding, Problem, ProblemKind, ProblemRegister, Severity

log = structlog.get_logger()
_LEVELS = {
    Severity.ALARM: logging.ERROR,
    Severity.WARNING: logging.WARNING,
    Severity.NOTE: logging.INFO,
}
FindingSource = Callable[[], Iterable[Finding]]
"""Current findings; never waits, never raises."""
_INTERVAL_MS = 5_000
_MOST_LINES_A_KIND = 20
"""Limit of lines of one kind at one time: a broker that is down must not log a line for each
partition.
"""


class ProblemWatch:
    """`current()` asks the sources at each call, so that its answer is never outdated."""

    def __init__(self, sources: Iterable[FindingSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._register = ProblemRegister()

    async def run(self) -> None:
        """Run until cancelled, so that problems are logged even when nobody asks for them."""
        while True:
            self.current()
            await self._clock.sleep_ms(_INTERVAL_MS)

    def current(self) -> tuple[Problem, ...]:
        """All current problems, alarms first."""
        findings = [finding for source in self._sources for finding in source()]
        changes = self._register.update(findings, self._clock.now_ms())
        _log_each(changes.appeared, _log_appeared)
        _log_each(changes.ended, _log_ended)
        return self._register.current


def _log_each(problems: Iterable[Problem], log_one: Callable[[Problem, int], None]) -> None:
    by_kind: dict[ProblemKind, list[Problem]] = {}
    for problem in problems:
        by_kind.setdefault(problem.kind, []).append(problem)
    for alike in by_kind.values():
        shown = alike[:_MOST_LINES_A_KIND]
        for number, problem in enumerate(shown, start=1):
            is_last = number == len(shown)
            log_one(problem, len(alike) - len(shown) if is_last else 0)


def _log_appeared(problem: Problem, more: int) -> None:
    log.log(_LEVELS[problem.severity], "problem", **_shown(problem, more), problem=problem.text)


def _log_ended(problem: Problem, more: int) -> None:
    log.info("problem_ended", **_shown(problem, more), since_ms=problem.since_ms)


def _shown(problem: Problem, more: int) -> dict[str, object]:
    """`more_of_this_kind`: how many other problems of the kind get no line of their own."""
    shown: dict[str, object] = {"kind": problem.kind.value, "subject": problem.subject}
    return {**shown, "more_of_this_kind": more} if more else shown
