"""The alerts: expressions of metrics that exist, a page for each, and the files made of them."""

import re
from typing import Any

import pytest
import yaml

from build_tools.reference.alert_rules import rule
from build_tools.reference.alerts import ALERTS, CRITICAL, WARNING, Alert, Measure
from rlm.config.service import settings
from rlm.plans.problems import KINDS
from rlm.service.metric_rows import MetricKind, MetricRow
from rlm.service.metrics import TABLE
from rlm.service.partition_rows import PARTITION, PARTITION_ROWS
from tests.deploy.manifests import written
from tests.project.tree import ROOT

RUNBOOKS = ROOT / "docs" / "runbooks"
HEADINGS = ["## What it means", "## What to check", "## What to do"]
OF_TARGETS = {"instance"}
"""Labels that Prometheus gives every sample."""

AGGREGATES = {"min", "max", "sum", "absent"}
ROWS = {
    f"{row.name}{ending}": row
    for row in TABLE
    for ending in (("_bucket", "_count", "_sum") if row.kind is MetricKind.HISTOGRAM else ("",))
}
BY_NAME = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def faults_of(measure: Measure) -> list[str]:
    """What is wrong with it."""
    found = [
        f"there is no metric {name}"
        for name in (measure.metric, measure.part_of)
        if name and name not in ROWS
    ]
    if found:
        return found
    row = ROWS[measure.metric]
    labels = labels_for_certain(row)
    found += [f"no label {one}" for one in {*measure.by, *measure.where} - labels - OF_TARGETS]
    if measure.part_of and labels_for_certain(ROWS[measure.part_of]) != labels:
        found.append("it is divided by a metric with other labels")
    is_total = row.kind is not MetricKind.GAUGE
    if is_total != bool(measure.increase_of):
        found.append("totals are for their increase, and gauges for their value")
    if measure.aggregate not in AGGREGATES:
        found.append(f"no aggregate {measure.aggregate}")
    if row in PARTITION_ROWS and measure.aggregate != row.of_topic:
        found.append("topics have another aggregate of partitions")
    return found


def labels_for_certain(row: MetricRow) -> set[str]:
    """Without `partition`, which is not there where partitions are many."""
    return set(row.labels) - ({PARTITION[1]} if row in PARTITION_ROWS else set())


@BY_NAME
def test_each_expression_is_of_metrics_and_labels_that_exist(alert: Alert) -> None:
    assert faults_of(alert.measure) == []
    named = set(re.findall(r"\{(\w+)\}", alert.summary))
    assert named <= set(alert.measure.by), "a label that the expression does not leave"


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (Measure(metric="rlm_no", aggregate="max"), "no metric rlm_no"),
        (Measure(metric="rlm_threads_hung", aggregate="max", by=("poll",)), "no label poll"),
        (Measure(metric="rlm_threads_hung", aggregate="max", where={"x": "1"}), "no label x"),
        (Measure(metric="rlm_threads_hung", aggregate="most"), "no aggregate most"),
        (Measure(metric="rlm_partition_holes", aggregate="sum", by=("partition",)), "partition"),
        (Measure(metric="rlm_partition_holes", aggregate="max"), "another aggregate"),
        (Measure(metric="rlm_plugin_restarts_total", aggregate="sum"), "for their increase"),
        (Measure(metric="rlm_remote_fetch_wait_seconds", aggregate="sum"), "no metric"),
        (
            Measure(metric="rlm_partitions_led", aggregate="max", part_of="rlm_tasks_slots"),
            "other labels",
        ),
    ],
)
def test_a_wrong_measure_is_noticed(measure: Measure, words: str) -> None:
    assert words in " ".join(faults_of(measure))


@BY_NAME
def test_values_of_labels_exist(alert: Alert) -> None:
    known = {
        "kind": {kind.value for kind in KINDS},
        "severity": {row.severity.value for row in KINDS.values()},
        "task": {"copy", "trim", "expiry", "verify"},
        "outcome": {"failed"},
    }
    for label, values in alert.measure.where.items():
        assert set(values.split("|")) <= known[label]


@BY_NAME
def test_each_alert_has_a_page_of_the_same_form(alert: Alert) -> None:
    text = (RUNBOOKS / f"{alert.page}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## .*$", text, re.MULTILINE) == HEADINGS


def test_there_is_no_page_without_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.iterdir()} == {alert.page for alert in ALERTS}
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_every_kind_of_alarm_has_an_alert() -> None:
    (rest,) = (alert for alert in ALERTS if alert.name == "RlmOtherAlarm")
    assert rest.measure.promql == 'max by (kind) (rlm_problems{severity="alarm"})'


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (Measure(metric="m", aggregate="absent"), "absent(m)"),
        (Measure(metric="m", aggregate="max", by=("a", "b")), "max by (a, b) (m)"),
        (
            Measure(metric="m", aggregate="sum", by=("a",), where={"a": "x|y", "b": "z"}),
            'sum by (a) (m{a=~"x|y",b="z"})',
        ),
        (
            Measure(metric="m", aggregate="sum", by=("a",), increase_of="5m"),
            "sum by (a) (increase(m[5m]))",
        ),
        (
            Measure(metric="m", aggregate="sum", by=("a",), since="1h"),
            "sum by (a) (m) - sum by (a) (max_over_time(m[10m] offset 1h))",
        ),
        (Measure(metric="m", aggregate="min", by=("a",), part_of="n"), "min by (a) (m / n)"),
        (Measure(metric="m", aggregate="max", by=("a",), is_absolute=True), "max by (a) (abs(m))"),
    ],
)
def test_how_a_measure_is_written(measure: Measure, text: str) -> None:
    assert measure.promql == text


def test_a_threshold_is_written_as_it_is_compared() -> None:
    for alert in ALERTS:
        operator, number = alert.expression.split()[-2:]
        assert float(number) == alert.threshold
        assert not alert.is_beyond(alert.threshold), "the threshold itself is well"
        beyond = alert.threshold + (-0.01 if operator == "<" else 0.01)
        assert alert.is_beyond(beyond)
        assert alert.severity in (CRITICAL, WARNING)
        assert re.fullmatch(r"\d+[mh]", alert.lasts)


def test_copies_do_not_seem_to_fail_while_one_segment_takes_as_long_as_it_may() -> None:
    (alert,) = (one for one in ALERTS if one.name == "RlmCopyFailing")
    assert alert.threshold * 1_000 > settings()["copy_deadline_ms"].default


def test_both_files_have_all_rules() -> None:
    expected: list[dict[str, Any]] = [rule(alert) for alert in ALERTS]
    plain = yaml.safe_load((ROOT / "docker" / "alerts.yml").read_text(encoding="utf-8"))
    (manifest,) = written()["k8s/base/alerts/prometheusrule.yaml"]
    for content in (plain, manifest["spec"]):
        (group,) = content["groups"]
        assert group["rules"] == expected


def test_a_rule_names_labels_in_the_words_of_prometheus() -> None:
    (found,) = (rule(alert) for alert in ALERTS if alert.name == "RlmClockSkew")
    assert "{{ $labels.node }}" in found["annotations"]["summary"]
    assert found["annotations"]["runbook"] == "docs/runbooks/clock-skew.md"


def test_prometheus_of_compose_loads_the_rules() -> None:
    scraped = yaml.safe_load((ROOT / "docker" / "prometheus.yml").read_text(encoding="utf-8"))
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    (name,) = scraped["rule_files"]
    mounts = compose["services"]["prometheus"]["volumes"]
    assert f"./{name}:/etc/prometheus/{name}:ro" in mounts
