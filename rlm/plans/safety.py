"""The verdict of `rlm status --health`: SAFE, AT RISK or LOST, and why. Pure.

It is made of the present problems, whose kinds say what they mean for the data
(rlm.plans.problems), and of what is not known: a service that does not answer, a partition that
nobody has reported. Unknown is never SAFE (H38).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rlm.plans.problems import Risk

WORDS = {Risk.NONE: "SAFE", Risk.AT_RISK: "AT RISK", Risk.LOST: "LOST"}
_GRAVEST_FIRST = (Risk.LOST, Risk.AT_RISK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why the data is at risk or lost."""

    risk: Risk
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyVerdict:
    """`reasons`: the gravest first; empty = the data is safe."""

    reasons: tuple[Reason, ...]

    @property
    def risk(self) -> Risk:
        return self.reasons[0].risk if self.reasons else Risk.NONE

    @property
    def words(self) -> str:
        return WORDS[self.risk]


def risk_of(word: str) -> Risk:
    """What a problem means for the data by the word of the service that reports it. One that is
    not known here, or that an earlier version does not say, counts as at risk.
    """
    known = {one.value: one for one in Risk}
    return known.get(word, Risk.AT_RISK)


def safety_verdict(problems: Iterable[Reason], unknown: Iterable[str]) -> SafetyVerdict:
    """Of all problems, those that mean nothing for the data too, and of what is not known."""
    found = (*problems, *(Reason(risk=Risk.AT_RISK, text=text) for text in unknown))
    return SafetyVerdict(
        reasons=tuple(one for risk in _GRAVEST_FIRST for one in found if one.risk is risk)
    )
