"""Brings the file map of ARCHITECTURE.md to the tree: new modules get a line, gone ones lose it.

`python -m tests.docs.file_map` does it. A new line is the module's docstring cut short: a draft to
be put better by hand; lines that are there stay as they are. Must not know what the modules do.
"""

import ast
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tests.docs import reading
from tests.project.tree import PACKAGES, ROOT, parse, show, sources

_AFTER = "### tests/"
_MAX_LINE = 118
MAPPED = {*PACKAGES, "bench", "build_tools"}


def modules() -> dict[str, Path]:
    """Every module that the map must have, by its name in the map."""
    return {
        show(path): path
        for path in sources(with_tests=False)
        if show(path).split("/")[0] in MAPPED and path.name != "__init__.py"
    }


def brought_up_to_date(text: str, wanted: Mapping[str, Path]) -> str:
    """The document with a map of exactly the modules wanted."""
    known = set(reading.file_map(text))
    lines = _without(text.splitlines(), known - wanted.keys())
    for name in sorted(wanted.keys() - known):
        _insert(lines, name, _draft(name, wanted[name]))
    return "\n".join(lines) + "\n"


def _without(lines: list[str], gone: set[str]) -> list[str]:
    kept, folder = [], ""
    for line in lines:
        if line.startswith("### "):
            folder = line.removeprefix("### ")
        if not any(line.startswith(f"- `{name.removeprefix(folder)}`:") for name in gone):
            kept.append(line)
    return kept


def _insert(lines: list[str], name: str, draft: str) -> None:
    heading = f"### {name.rpartition('/')[0]}/"
    if heading not in lines:
        first, last = (lines.index(one) for one in (_first_folder(lines), _AFTER))
        at = next((n for n in range(first, last) if _is_later(lines[n], heading)), last)
        lines[at:at] = [heading, "", draft, ""]
        return
    at = last = lines.index(heading)
    while at + 1 < len(lines) and not lines[at + 1].startswith("#"):
        at += 1
        if lines[at].startswith("- `"):
            if lines[at] > draft:
                lines.insert(at, draft)
                return
            last = at
    lines.insert(last + 1, draft)


def _first_folder(lines: list[str]) -> str:
    return next(line for line in lines if line.startswith("### "))


def _is_later(line: str, heading: str) -> bool:
    return line.startswith("### ") and line > heading


def _draft(name: str, path: Path) -> str:
    head = (ast.get_docstring(parse(path)) or "not described yet").split("\n\n")[0]
    line = f"- `{name.rpartition('/')[2]}`: {' '.join(head.split())}"
    return textwrap.shorten(line, _MAX_LINE, placeholder=" ...").rstrip(".")


if __name__ == "__main__":
    architecture = ROOT / "ARCHITECTURE.md"
    text = architecture.read_text(encoding="utf-8")
    architecture.write_text(brought_up_to_date(text, modules()), encoding="utf-8")
