"""The table of alerts as rules for Prometheus, as a PrometheusRule, and as a page."""

import re
from typing import Any

import yaml

from build_tools.reference.alerts import ALERTS, Alert
from build_tools.reference.markdown import table

_MADE = "# Made by `make reference` from build_tools/reference/alerts.py; edit there.\n"
_LABEL = re.compile(r"\{(\w+)\}")


def rule(alert: Alert) -> dict[str, Any]:
    """One rule, as both files have it."""
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": _LABEL.sub(r"{{ $labels.\1 }}", alert.summary),
            "runbook": f"docs/runbooks/{alert.page}.md",
        },
    }


def generate_rules() -> str:
    """A file for `rule_files` of prometheus.yml."""
    return _MADE + _yaml({"groups": [_group()]})


def generate_prometheus_rule() -> str:
    """The same for the operator of Prometheus."""
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "rlm"},
        "spec": {"groups": [_group()]},
    }
    return _MADE + _yaml(manifest)


def generate_docs() -> str:
    """The whole text of docs/reference/alerts.md."""
    rows = (
        (
            f"[{alert.name}](../runbooks/{alert.page}.md)",
            alert.severity,
            alert.lasts,
            f"`{alert.expression}`".replace("|", "\\|"),
            _LABEL.sub(r"`\1`", alert.summary),
        )
        for alert in ALERTS
    )
    return _HEAD + table(("alert", "severity", "for", "expression", "meaning"), rows)


_HEAD = (
    "# Alerts\n\n"
    "Made from `build_tools/reference/alerts.py`; edit there. The rules are in `docker/alerts.yml` "
    "for `rule_files` of\nPrometheus, and in `k8s/base/alerts` for its operator. The name of an "
    "alert leads to its runbook. `critical`: data is at\nrisk, or readers do not get it. "
    "[Alerts of Prometheus](../operate.md#alerts-of-prometheus) says how they are tested.\n\n"
    "In the commands of runbooks, `/etc/rlm/rlm.yaml` is the settings file of the service, as "
    "containers have it; with\nsystemd it is `/etc/kafka-rlm/service.yaml`, and with the manifests "
    "for Kubernetes `/etc/rlm/service/rlm.yaml`, or\n`/etc/rlm/service/$POD_NAME.yaml` in a "
    "sidecar.\n\n"
)


def _group() -> dict[str, Any]:
    return {"name": "rlm", "rules": [rule(alert) for alert in ALERTS]}


def _yaml(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, width=10_000))
