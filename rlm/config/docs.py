"""The table as markdown: `python -m rlm.config.docs` prints docs/settings.md."""

import sys
from typing import Any

from rlm.config.service import NOT_YET, REQUIRED, Setting, settings

_HEAD = """\
# Settings of `rlm serve`

One YAML file, one line a setting. Made from `rlm/config/service.py`; edit there.

| key | value | default | meaning |
|---|---|---|---|
"""
_TAIL = """\
| `rsm.config.*` | plain values | none | As in the plugin's own file; `prefix` is recorded. |

Not yet supported, and refused by name; `(secret)` is never shown or logged:

| key | meaning |
|---|---|
"""


def generate_docs() -> str:
    """docs/settings.md, whole."""
    rows = "".join(_row(row) for row in settings().values())
    return _HEAD + rows + _TAIL + "".join(_later(row) for row in NOT_YET)


def _row(row: Setting) -> str:
    unit = f" ({row.unit})" if row.unit else ""
    return f"| `{row.key}` | {row.kind.allowed}{unit} | {_default(row)} | {row.doc} |\n"


def _later(row: Setting) -> str:
    return f"| `{row.key}` | {row.doc}{' (secret)' if row.secret else ''} |\n"


def _default(row: Setting) -> str:
    if row.default_doc:
        return row.default_doc
    if row.default is REQUIRED:
        return "required"
    return _shown(row.default)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.stdout.write(generate_docs())
