"""What the metric of an alert is at one scrape, or between two, compared with its threshold."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from build_tools.reference.alerts import ALERTS, Alert
from rlm.service.metrics import GaugeSource, ServiceMetrics

_AGGREGATES: Mapping[str, Callable[[Iterable[float]], float]] = {"min": min, "max": max, "sum": sum}
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """A scrape, and one of before, where the alert is about the difference."""

    text: str
    earlier: str = ""

    def is_firing(self, name: str) -> bool:
        """Whether the alert of that name is pending or fires by this scrape."""
        (alert,) = (one for one in ALERTS if one.name == name)
        return any(map(alert.is_beyond, self.groups(alert).values()))

    def groups(self, alert: Alert) -> dict[tuple[str, ...], float]:
        """The number that the alert compares, for each combination of the labels `by`."""
        measure = alert.measure
        now = dict(samples(self.text, measure.metric, measure.where))
        if measure.aggregate == "absent":
            return {} if now else {(): 1.0}
        if measure.increase_of or measure.since:
            before = dict(samples(self.earlier, measure.metric, measure.where))
            now = {one: value - before[one] for one, value in now.items() if one in before}
        if measure.part_of:
            whole = dict(samples(self.text, measure.part_of, {}))
            now = {one: value / whole[one] for one, value in now.items()}
        groups: dict[tuple[str, ...], list[float]] = {}
        for labels, value in now.items():
            group = tuple(dict(labels).get(name, "") for name in measure.by)
            groups.setdefault(group, []).append(abs(value) if measure.is_absolute else value)
        return {group: _AGGREGATES[measure.aggregate](found) for group, found in groups.items()}


def samples(text: str, name: str, where: Mapping[str, str]) -> Iterator[tuple[Labels, float]]:
    """The samples of a metric in a scrape, of which `where` picks some by their labels."""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == name and all(
                re.fullmatch(value, one.labels[label]) for label, value in where.items()
            ):
                yield frozenset(one.labels.items()), one.value


def scraped(*sources: GaugeSource) -> str:
    """The text of a scrape of these gauges."""
    metrics = ServiceMetrics()
    metrics.add_gauges(*sources)
    return metrics.render().decode()
