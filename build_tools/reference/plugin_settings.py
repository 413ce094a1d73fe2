"""The settings tables of plugins -> docs/reference/plugin-settings.md."""

from collections.abc import Sequence

from rsm_plugins.process.config import SETTINGS
from rsm_plugins.settings.kinds import KIND_NAMES, store_kind
from rsm_plugins.settings.table import Setting

_HEAD = (
    "# Settings of `rsm-plugin serve`\n\n"
    "The plugin reads one YAML file with one setting a line. Made from "
    "`rsm_plugins/process/config.py` and the settings of each kind of store; edit there.\n"
)
_TABLE_HEAD = "| key | value | default | meaning |\n|---|---|---|---|\n"


def generate_docs() -> str:
    """The page, whole."""
    parts = [_table("## Every plugin", SETTINGS)]
    parts += [_table(f"## `plugin: {name}`", store_kind(name).settings) for name in KIND_NAMES]
    return _HEAD + "".join(parts)


def _table(head: str, rows: Sequence[Setting]) -> str:
    return f"\n{head}\n\n{_TABLE_HEAD}" + "".join(map(_row, rows))


def _row(row: Setting) -> str:
    allowed = row.allowed.replace(" | ", " or ")
    doc = f"{row.doc} Secret: never shown." if row.secret else row.doc
    return f"| `{row.key}` | {allowed} | {_default(row)} | {doc} |\n"


def _default(row: Setting) -> str:
    if row.required:
        return "required"
    if isinstance(row.default, bool):
        return str(row.default).lower()
    return "none" if row.default in (None, "") else str(row.default)
