"""The documents made from tables: `python -m tests.docs.generated` writes them anew, and brings the
file map of ARCHITECTURE.md to the tree.

The tests hold the files against the same functions. Must not know any setting by name.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rlm import metrics
from rlm.config import docs
from rlm.plans import problems
from rsm_plugins.config import SETTINGS
from rsm_plugins.settings_table import Setting
from rsm_plugins.store_kind import KIND_NAMES, store_kind
from tests.docs.file_map import brought_up_to_date, modules

ROOT = Path(__file__).resolve().parents[2]

_PLUGIN_HEAD = (
    "# Settings of `rsm-plugin serve`\n\n"
    "One YAML file, one line a setting. Made from `rsm_plugins/config.py` and the settings of each "
    "kind of store; edit there.\n"
)
_TABLE_HEAD = "| key | value | default | meaning |\n|---|---|---|---|\n"


def plugin_settings() -> str:
    """docs/reference/plugin-settings.md, whole."""
    parts = [_plugin_table("## Every plugin", SETTINGS)]
    parts += [
        _plugin_table(f"## `plugin: {name}`", store_kind(name).settings) for name in KIND_NAMES
    ]
    return _PLUGIN_HEAD + "".join(parts)


def _plugin_table(head: str, rows: Sequence[Setting]) -> str:
    return f"\n{head}\n\n{_TABLE_HEAD}" + "".join(_plugin_row(row) for row in rows)


def _plugin_row(row: Setting) -> str:
    allowed = row.allowed.replace(" | ", " or ")
    doc = f"{row.doc} Secret: never shown." if row.secret else row.doc
    return f"| `{row.key}` | {allowed} | {_default(row)} | {doc} |\n"


def _default(row: Setting) -> str:
    if row.required:
        return "required"
    if isinstance(row.default, bool):
        return str(row.default).lower()
    return "none" if row.default in (None, "") else str(row.default)


GENERATED: Mapping[str, Callable[[], str]] = {
    "docs/reference/settings.md": docs.generate_docs,
    "docs/reference/plugin-settings.md": plugin_settings,
    "docs/reference/metrics.md": metrics.generate_docs,
    "docs/reference/problems.md": problems.generate_docs,
}


def write() -> None:
    """Write every generated document."""
    for name, generate in GENERATED.items():
        (ROOT / name).write_text(generate().rstrip("\n") + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}\n")
    architecture = ROOT / "ARCHITECTURE.md"
    text = architecture.read_text(encoding="utf-8")
    architecture.write_text(brought_up_to_date(text, modules()), encoding="utf-8")


if __name__ == "__main__":
    write()
