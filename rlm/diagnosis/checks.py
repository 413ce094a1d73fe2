"""The model of `rlm doctor`: a check, what it finds, and the verdict over all of them. Pure.

To add a check: write a pure function of Observed in the module of its subject, which yields
findings or raises NotAsked through `known`, and give it a row in that module's table. Its name is
an interface (field `check` in JSON). A test plants the fault and sees it found with what mends it.
Run `make reference`, which writes docs/reference/checks.md.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rlm.diagnosis.observed import NotAsked, NotWanted, Observed
from rlm.plans.problems import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """What one check found of one subject: a sentence, and what mends it."""

    severity: Severity
    subject: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row of docs/reference/checks.md. `asks`: the question, as a sentence. `remedy`: what
    mends it in general; a finding may say it more exactly.
    """

    name: str
    asks: str
    remedy: str
    decide: Callable[[Observed], Iterable[CheckFinding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The result of one check. `unasked`: why it could not be made; empty = it could. `unwanted`:
    which option it is made with, where that was not given.
    """

    check: Check
    findings: tuple[CheckFinding, ...] = ()
    unasked: str = ""
    unwanted: str = ""

    @property
    def is_sound(self) -> bool:
        return not self.unwanted and not self.is_failed

    @property
    def is_failed(self) -> bool:
        """Whether it changes the exit status: a check that nobody wanted does not."""
        return bool(self.unasked) or any(is_counted(one) for one in self.findings)


def is_counted(finding: CheckFinding) -> bool:
    """Whether it changes the exit status: notes do not."""
    return finding.severity is not Severity.NOTE


def examine(checks: Iterable[Check], site: Observed) -> Iterator[Examined]:
    """Make every check; one that needs what is not known is not made, and says so."""
    for check in checks:
        try:
            yield Examined(check=check, findings=tuple(check.decide(site)))
        except NotWanted as error:
            yield Examined(check=check, unwanted=str(error))
        except NotAsked as error:
            yield Examined(check=check, unasked=str(error))


def alarm(subject: str, text: str, remedy: str) -> CheckFinding:
    """Data is in danger, or a service refuses to work."""
    return CheckFinding(severity=Severity.ALARM, subject=subject, text=text, remedy=remedy)


def warning(subject: str, text: str, remedy: str) -> CheckFinding:
    """It may become an alarm."""
    return CheckFinding(severity=Severity.WARNING, subject=subject, text=text, remedy=remedy)


def note(subject: str, text: str, remedy: str) -> CheckFinding:
    """Nothing is wrong because of it."""
    return CheckFinding(severity=Severity.NOTE, subject=subject, text=text, remedy=remedy)


def of_problem(finding: Finding, remedy: str) -> CheckFinding:
    """What a rule of the running services finds."""
    return CheckFinding(
        severity=finding.severity, subject=finding.subject, text=finding.text, remedy=remedy
    )
