"""Settings that say how much of the past a Kafka client is shown: rows and checks. Pure.

What follows from them is decided in rlm/plans/client_history.py.
"""

import re
from collections.abc import Mapping
from typing import Any

from kip405.amounts import parse_duration_ms
from kip405.errors import Invalid
from kip405.history import HISTORY_WORDS, History, HistoryRule
from kip405.settings import REQUIRED, TEXT, Kind, Setting, Table
from rlm.config.stores import rules_of

HISTORY_RULES_ALLOWED = "a list of rules like {principals: 'etl-.*', history: 7d}"
_MOST_WINDOWS = 8  # where each of them begins is kept for each partition
_LONGEST_MS = 1 << 53


def _read_history(value: Any) -> History:
    if isinstance(value, str) and value in HISTORY_WORDS:
        return HISTORY_WORDS[value]
    try:
        window_ms = value if type(value) is int else parse_duration_ms(value)
    except (Invalid, AttributeError, TypeError) as error:
        raise ValueError from error
    if not 0 < window_ms <= _LONGEST_MS:
        raise ValueError
    return History(window_ms)


HISTORY = Kind(allowed="full, local, or a duration such as 7d or 12h", read=_read_history)

HISTORY_ROWS = Table(
    Setting(
        key="principals",
        kind=TEXT,
        default="",
        default_doc="client.ids",
        doc="Regular expression that must match a whole principal: the SASL user of PLAIN and "
        "SCRAM, else the subject of the client's certificate; with `User:` before it or without.",
    ),
    Setting(
        key="client.ids",
        kind=TEXT,
        default="",
        default_doc="principals",
        doc="Regular expression that must match a whole client id. Clients choose their ids "
        "themselves.",
    ),
    Setting(
        key="history",
        kind=HISTORY,
        default=REQUIRED,
        doc="What such clients are shown of the past: all of it, what the broker itself has, or "
        "the remote segments whose newest record is not older than this as well.",
    ),
)
"""Rows of one rule of `proxy.history.rules`."""


def read_history_rules(content: Any) -> tuple[HistoryRule, ...]:
    """`proxy.history.rules`; Invalid names the setting of the rule."""
    rules = rules_of("proxy.history.rules", content, HISTORY_RULES_ALLOWED)
    return tuple(_read_rule(rule, where) for rule, where in rules)


def _read_rule(given: Mapping[str, Any], where: str) -> HistoryRule:
    HISTORY_ROWS.refuse_unknown(given, where)
    values = HISTORY_ROWS.values(given, where)
    patterns = [key for key in ("principals", "client.ids") if values[key]]
    if len(patterns) != 1:
        raise Invalid(f"{where}principals: a rule has either this or client.ids")
    try:
        re.compile(values[patterns[0]])
    except re.error as error:
        raise Invalid(f"{where}{patterns[0]}: is no regular expression: {error}") from error
    return HistoryRule(
        history=values["history"],
        principals=values["principals"],
        client_ids=values["client.ids"],
    )


def check_windows(windows_ms: tuple[int, ...]) -> None:
    """Invalid for more different windows than are kept."""
    if len(windows_ms) > _MOST_WINDOWS:
        raise Invalid(
            f"proxy.history.rules: at most {_MOST_WINDOWS} different durations, "
            f"got {len(windows_ms)}"
        )
