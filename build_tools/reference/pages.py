"""Which page is made from what. The tests compare the pages with these functions.

Must not know a setting, a command or a message by name.
"""

from collections.abc import Callable, Mapping

from build_tools.reference import api, commands, plugin_settings
from rlm import metrics
from rlm.config import docs
from rlm.plans import problems

GENERATED: Mapping[str, Callable[[], str]] = {
    "docs/reference/settings.md": docs.generate_docs,
    "docs/reference/plugin-settings.md": plugin_settings.generate_docs,
    "docs/reference/metrics.md": metrics.generate_docs,
    "docs/reference/problems.md": problems.generate_docs,
    "docs/reference/commands.md": commands.generate_docs,
    "docs/reference/api.md": api.generate_service_docs,
    "docs/reference/plugin-api.md": api.generate_plugin_docs,
}
