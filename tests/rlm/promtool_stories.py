"""The stories of alerts as a test file of promtool: series of their scrapes, and what has to fire.

Each story is three scrapes, and each is repeated every minute: while all is well, while the fault
lasts (five minutes longer than the alert waits), and after it is mended, until the longest window
of a rule is over. `alert_values` computes what fires; Prometheus has to agree with it, label by
label.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from build_tools.reference.alert_rules import rule
from build_tools.reference.alerts import Alert
from tests.rlm.alert_values import Labels, Scrape, samples

_WINDOW_MINUTES, _SINCE_MINUTES, _MORE_MINUTES = 20, 80, 5
"""Longer than the `increase` of any rule, and than `since`."""

_INSTANCE = {"instance": "rlm-1:19094"}
_MINUTES = {"m": 1, "h": 60}
Phases = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStory:
    """A story of an alert."""

    alert: Alert
    scrapes: tuple[Scrape, ...]

    @property
    def phases(self) -> Phases:
        """Minutes of each scrape."""
        calm = _SINCE_MINUTES if self.alert.measure.since else _WINDOW_MINUTES
        return calm, minutes_of(self.alert.lasts) + _MORE_MINUTES, calm

    def as_test(self) -> dict[str, Any]:
        """One test of promtool: silent, silent while it only waits, firing, silent."""
        calm, broken, _ = self.phases
        fires_at = calm + minutes_of(self.alert.lasts)
        checks = [(calm - 1, False), (calm + broken - 1, True), (sum(self.phases) - 1, False)]
        if fires_at > calm:
            checks.insert(1, (fires_at - 1, False))
        if since := self.alert.measure.since:
            checks.insert(-1, (calm + minutes_of(since) - 1, True))
        return {
            "name": self.alert.name,
            "interval": "1m",
            "input_series": [*self._series()],
            "alert_rule_test": [
                {
                    "eval_time": f"{minute}m",
                    "alertname": self.alert.name,
                    "exp_alerts": [*self._expected()] if is_firing else [],
                }
                for minute, is_firing in checks
            ],
        }

    def _series(self) -> Iterator[dict[str, str]]:
        measure = self.alert.measure
        for name in filter(None, (measure.metric, measure.part_of)):
            values = [dict(samples(scrape.text, name, {})) for scrape in self.scrapes]
            for labels in {one: None for found in values for one in found}:
                yield {
                    "series": _named(name, labels),
                    "values": " ".join(
                        _repeated(found.get(labels), minutes)
                        for found, minutes in zip(values, self.phases, strict=True)
                    ),
                }

    def _expected(self) -> Iterator[dict[str, Any]]:
        """What fires by the second scrape."""
        written = rule(self.alert)
        for group, value in self.scrapes[1].groups(self.alert).items():
            if self.alert.is_beyond(value):
                given = dict(zip(self.alert.measure.by, group, strict=True))
                labels = {**given, **{one: _INSTANCE[one] for one in _INSTANCE if one in given}}
                summary = written["annotations"]["summary"]
                for name, text in labels.items():
                    summary = summary.replace(f"{{{{ $labels.{name} }}}}", text)
                yield {
                    "exp_labels": {**labels, **written["labels"]},
                    "exp_annotations": {**written["annotations"], "summary": summary},
                }


def minutes_of(duration: str) -> int:
    """Of 5m or 1h, as rules have it."""
    return int(duration[:-1]) * _MINUTES[duration[-1]]


def _named(name: str, labels: Labels) -> str:
    pairs = (
        f"{label}={json.dumps(value)}" for label, value in {**dict(labels), **_INSTANCE}.items()
    )
    return f"{name}{{{','.join(pairs)}}}"


def _repeated(value: float | None, minutes: int) -> str:
    """A sample a minute, or none: Prometheus marks a series that is not scraped any more."""
    if value is None:
        return f"stale _x{minutes - 1}"
    return f"{value!r}+0x{minutes - 1}"
