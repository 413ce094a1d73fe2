"""The rules as Prometheus' own promtool reads and evaluates them, where there is one.

It is `promtool` on PATH, or what RLM_PROMTOOL names. Debian has it in its package `prometheus`, and
Go makes it of github.com/prometheus/prometheus/cmd/promtool.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from build_tools.reference.alerts import ALERTS
from tests.deploy.manifests import written
from tests.deploy.test_dashboards import QUERIES
from tests.project.tree import ROOT
from tests.rlm.promtool_stories import AlertStory
from tests.rlm.test_alerts import CAUSES

RULES = ROOT / "docker" / "alerts.yml"


@pytest.fixture
def promtool() -> str:
    found = os.environ.get("RLM_PROMTOOL") or shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def test_prometheus_reads_the_rules(promtool: str, tmp_path: Path) -> None:
    (manifest,) = written()["k8s/base/alerts/prometheusrule.yaml"]
    of_the_operator = tmp_path / "rules.yml"
    of_the_operator.write_text(yaml.safe_dump(manifest["spec"]), encoding="utf-8")
    for file in (RULES, of_the_operator):
        done = run(promtool, "check", "rules", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(ALERTS)} rules found" in done.stdout


def test_prometheus_reads_the_configuration_of_compose(promtool: str) -> None:
    done = run(promtool, "check", "config", str(ROOT / "docker" / "prometheus.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_queries_of_dashboards(promtool: str, tmp_path: Path) -> None:
    queries = dict.fromkeys(query for _, query, _ in QUERIES)
    rules = [{"record": f"query_{n}", "expr": query} for n, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = run(promtool, "check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.timeout(1800)
async def test_prometheus_evaluates_each_story_as_the_tests_do(
    promtool: str, tmp_path: Path
) -> None:
    tests = []
    for alert in ALERTS:
        folder = tmp_path / alert.name
        folder.mkdir()
        scrapes = [scrape async for scrape in CAUSES[alert.name](folder)]
        tests.append(AlertStory(alert=alert, scrapes=tuple(scrapes)).as_test())
    file = tmp_path / "stories.yml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    done = run(promtool, "test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
