"""Which page is made from what; numbers of hazards become links to them.

The tests compare the pages with these functions. Must not know a setting, a command or a message
by name.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from build_tools.reference import (
    alert_rules,
    api,
    api_rights,
    clients,
    commands,
    dashboards,
    formats,
    man,
    metrics,
    settings,
    store_rights,
)
from rlm.diagnosis import table
from rlm.plans import problems, rights

_HAZARD = re.compile(r"\bH(\d+)\b")

_PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings.generate_service_docs,
    "docs/reference/plugin-settings.md": settings.generate_plugin_docs,
    "docs/reference/metrics.md": metrics.generate_docs,
    "docs/reference/alerts.md": alert_rules.generate_docs,
    "docs/reference/problems.md": problems.generate_docs,
    "docs/reference/checks.md": table.generate_docs,
    "docs/reference/acls.md": rights.generate_docs,
    "docs/reference/api-rights.md": api_rights.generate_docs,
    "docs/reference/store-rights.md": store_rights.generate_docs,
    "docs/reference/clients.md": clients.generate_docs,
    "docs/reference/formats-by-example.md": formats.generate_docs,
    "docs/reference/commands.md": commands.generate_docs,
    "docs/reference/api.md": api.generate_service_docs,
    "docs/reference/plugin-api.md": api.generate_plugin_docs,
    "man/rlm.1": man.generate_rlm,
    "man/rsm-plugin.1": man.generate_rsm_plugin,
    "docker/alerts.yml": alert_rules.generate_rules,
    "k8s/base/alerts/prometheusrule.yaml": alert_rules.generate_prometheus_rule,
    **{
        f"docker/dashboards/{one.name}.json": partial(dashboards.generate, one.name)
        for one in dashboards.DASHBOARDS
    },
}
GENERATED = tuple(_PAGES)


def generate(name: str) -> str:
    """A generated page, whole."""
    if not name.endswith(".md"):
        return _PAGES[name]()
    return _HAZARD.sub(r"[H\1](../design/hazards.md#h\1)", _PAGES[name]())
