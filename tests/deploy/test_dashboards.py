"""Grafana's dashboards: queries of metrics and labels that exist, and files that Compose loads."""

import json
import re
from typing import Any

import pytest
import yaml

from build_tools.reference.dashboards import DASHBOARDS, Dashboard
from rlm.service.partition_rows import PARTITION_ROWS
from tests.deploy.test_alerts import OF_TARGETS, ROWS, labels_for_certain
from tests.project.tree import ROOT

DOCKER = ROOT / "docker"
_NAME = re.compile(r"\brlm_\w+")
_SELECTED = re.compile(r"(\w+)=")
_KEPT = re.compile(r"\bby \(([^)]*)\)")
QUERIES = [
    (dashboard, query, legend)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query, legend in panel.queries.items()
]


def faults_of(query: str, *, of_partition: bool = False) -> list[str]:
    """What is wrong with a query. `of_partition`: it is known that partitions have samples."""
    names = _NAME.findall(query)
    unknown = [f"there is no metric {name}" for name in names if name not in ROWS]
    if unknown or not names:
        return unknown or ["there is no metric"]
    rows = [ROWS[name] for name in names]
    known = [set(row.labels) if of_partition else labels_for_certain(row) for row in rows]
    labels = set.intersection(*known) | OF_TARGETS
    kept = {one for text in _KEPT.findall(query) for one in text.split(", ")}
    named = kept | set(_SELECTED.findall(query))
    if any(name.endswith("_bucket") for name in names):
        named -= {"le"}
    found = [f"no label {one}" for one in sorted(named - labels)]
    if not of_partition:
        found += [
            f"{row.name} has no sample of a topic"
            for row in rows
            if row in PARTITION_ROWS and not row.of_topic
        ]
    return found


@pytest.mark.parametrize(("dashboard", "query", "legend"), QUERIES, ids=lambda one: str(one)[:60])
def test_each_query_is_of_metrics_and_labels_that_exist(
    dashboard: Dashboard, query: str, legend: str
) -> None:
    assert faults_of(query, of_partition=dashboard.name == "partition") == []
    kept = {one for text in _KEPT.findall(query) for one in text.split(", ")}
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept, "the legend names another label"
    assert set(re.findall(r"\$(\w+)", query)) <= set(dashboard.variables)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sum(rlm_no)", "no metric rlm_no"),
        ("sum(up)", "there is no metric"),
        ("max by (poll) (rlm_threads_hung)", "no label poll"),
        ('max(rlm_threads_hung{kind="x"})', "no label kind"),
        ("max by (partition) (rlm_partition_holes)", "no label partition"),
        ("max by (topic) (rlm_remote_next_offset)", "no sample of a topic"),
        ("max by (log_dir) (rlm_log_dir_free_bytes / rlm_tasks_slots)", "no label log_dir"),
    ],
)
def test_a_wrong_query_is_noticed(query: str, words: str) -> None:
    assert words in " ".join(faults_of(query))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_variables_are_labels_of_their_metrics(dashboard: Dashboard) -> None:
    for name, metric in dashboard.variables.items():
        assert name in ROWS[metric].labels


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((DOCKER / "dashboards" / f"{name}.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_panels_lie_beside_each_other_and_ask_the_chosen_source(dashboard: Dashboard) -> None:
    content = read(dashboard.name)
    assert [one["title"] for one in content["panels"]] == [one.title for one in dashboard.panels]
    corners = {(one["gridPos"]["x"], one["gridPos"]["y"]) for one in content["panels"]}
    assert len(corners) == len(dashboard.panels)
    assert all(x + 8 <= 24 for x, _ in corners)
    names = [one["name"] for one in content["templating"]["list"]]
    assert names == ["source", *dashboard.variables]
    assert {one["datasource"]["uid"] for one in content["panels"]} == {"${source}"}


def test_grafana_of_compose_loads_every_dashboard() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    mounts = dict(
        mount.removesuffix(":ro").split(":") for mount in compose["services"]["grafana"]["volumes"]
    )
    (provider,) = yaml.safe_load((DOCKER / "grafana-dashboards.yaml").read_text(encoding="utf-8"))[
        "providers"
    ]
    assert mounts["./dashboards"] == provider["options"]["path"]
    assert mounts["./grafana-dashboards.yaml"].startswith("/etc/grafana/provisioning/dashboards/")
    assert {path.stem for path in (DOCKER / "dashboards").iterdir()} == {
        one.name for one in DASHBOARDS
    }
