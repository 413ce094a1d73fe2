"""Words of the code as Markdown: cells, paragraphs, and the tables that comments draw."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

_CODE = re.compile(r"(`[^`]*`)")
_MARKS = re.compile(r"([<*])")


def escape(text: str) -> str:
    """Plain text of which only what is in backquotes is taken for Markdown."""
    pieces = _CODE.split(text)
    return "".join(part if part[:1] == "`" else _MARKS.sub(r"\\\1", part) for part in pieces)


def cell(text: str) -> str:
    """A cell of a table, from one or more lines of plain text."""
    return escape(" ".join(text.split())).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def prose(comment: str) -> str:
    """A comment of one or more paragraphs and tables; ends with a line break, empty stays empty."""
    return "\n".join(_blocks(comment.splitlines()))


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    for kind, block in groupby(lines, _kind_of):
        if kind == "table":
            yield _drawn_table(list(block))
        elif kind == "text":
            yield escape(_joined(line.strip() for line in block)) + "\n"


def _joined(lines: Iterable[str]) -> str:
    """One line a paragraph or item of a list; an empty line comes before a list."""
    text = ""
    for line in lines:
        if line.startswith("- "):
            text += f"\n{line}" if "\n- " in text else f"\n\n{line}"
        else:
            text += f" {line}"
    return text.strip()


def _kind_of(line: str) -> str:
    if not line.strip():
        return ""
    return "table" if re.search(r"(^|\s|-)\|(\s|-|$)|\w\|\s", line) else "text"


def _drawn_table(lines: Sequence[str]) -> str:
    """Columns are separated by |; a line whose first column is indented continues the last one."""
    rows: list[list[str]] = []
    for line in lines:
        cells = line.split("|")
        if not line.replace("-", "").replace("|", "").strip():
            continue
        if rows and cells[0].startswith("  "):
            rows[-1] = [f"{one} {more}" for one, more in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    head, *body = ([cell(one) for one in row] for row in rows)
    return table(head, body)
