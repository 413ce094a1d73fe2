"""How much of the past a Kafka client is shown: the values of `proxy.history` and its rules.

rlm/config/history.py reads them, and rlm/plans/client_history.py decides by them.
"""

from dataclasses import dataclass
from typing import NewType

History = NewType("History", int)
"""How much of the past is shown: FULL, LOCAL, or a window in ms."""

FULL = History(-1)
"""Both tiers."""

LOCAL = History(0)
"""What the broker itself has."""

HISTORY_WORDS = {"full": FULL, "local": LOCAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRule:
    """What clients are shown whose principal or client id matches one of these; the other pattern
    is empty.
    """

    history: History
    principals: str = ""
    client_ids: str = ""

    def __str__(self) -> str:
        key = "principals" if self.principals else "client.ids"
        return f"{key} {self.principals or self.client_ids} -> {history_text(self.history)}"


def history_text(history: History) -> str:
    """As it is written in a settings file."""
    for word, meant in HISTORY_WORDS.items():
        if history == meant:
            return word
    return f"{history}ms"


def windows_of(listener: History, rules: tuple[HistoryRule, ...]) -> tuple[int, ...]:
    """Every window in ms that is asked for, ascending."""
    found = {listener, *(rule.history for rule in rules)} - {FULL, LOCAL}
    return tuple(sorted(found))
