"""Settings that say when segments are copied, by pattern of topics: rows and checks. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kip405.errors import Invalid
from kip405.settings import REQUIRED, TEXT, Setting, Table, integer
from rlm.config.stores import rules_of
from rlmm.settings_records import OffloadThresholds
from rsm_plugins.endpoints import topic_pattern

OFFLOAD_RULES_ALLOWED = "a list of rules like {topics: 'logs.*', remote.copy.lag.ms: 3600000}"

OFFLOAD_ROWS = Table(
    Setting(
        key="topics",
        kind=TEXT,
        default=REQUIRED,
        doc="Regular expression that must match the whole name of the topic.",
    ),
    Setting(
        key="remote.copy.lag.ms",
        kind=integer(-1),
        unit="ms",
        doc="A closed segment is copied when its newest record is so old. -1 = as local retention. "
        "Another name is offload.time.ms.",
        aliases=("offload.time.ms",),
    ),
    Setting(
        key="remote.copy.lag.bytes",
        kind=integer(-1),
        unit="bytes",
        doc="A closed segment is copied when so much newer data follows it. -1 = as local "
        "retention. Another name is offload.size.bytes.",
        aliases=("offload.size.bytes",),
    ),
    Setting(
        key="offload.deletion.lag.ms",
        kind=integer(0),
        unit="ms",
        doc="How long the brokers keep a segment after its copy, at least.",
    ),
)
"""Rows of one rule of `offload.rules`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadRule:
    """Topics whose whole name matches the pattern have these thresholds."""

    topics: re.Pattern[str]
    thresholds: OffloadThresholds


def read_offload_rules(content: Any) -> tuple[OffloadRule, ...]:
    """`offload.rules`; Invalid names the setting of the rule."""
    rules = rules_of("offload.rules", content, OFFLOAD_RULES_ALLOWED)
    return tuple(_read_rule(rule, where) for rule, where in rules)


def _read_rule(given: Mapping[str, Any], where: str) -> OffloadRule:
    OFFLOAD_ROWS.refuse_unknown(given, where)
    values = OFFLOAD_ROWS.values(given, where)
    try:
        topics = topic_pattern(values["topics"])
    except Invalid as error:
        raise Invalid(f"{where}topics: {error}") from error
    thresholds = OffloadThresholds(
        copy_lag_ms=values["remote.copy.lag.ms"],
        copy_lag_bytes=values["remote.copy.lag.bytes"],
        deletion_lag_ms=values["offload.deletion.lag.ms"],
    )
    if thresholds == OffloadThresholds():
        raise Invalid(f"{where}topics: the rule sets nothing; give it {OFFLOAD_ROWS.keys[1]}")
    return OffloadRule(topics=topics, thresholds=thresholds)
